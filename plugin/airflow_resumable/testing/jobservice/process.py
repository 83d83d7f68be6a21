# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Starts and stops a job service, and reads its request log whether it is alive or not."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from airflow_resumable.testing.jobservice import leftovers
from airflow_resumable.testing.jobservice.journal import open_readonly, select_requests

if TYPE_CHECKING:
    from airflow_resumable.testing.jobservice.client import JobServiceClient

_SOURCE_ROOT = str(Path(__file__).parents[3])
_STOP_WITHIN = 30.0
_START = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    "from airflow_resumable.testing.jobservice.__main__ import run; run()"
)


class JobServiceError(RuntimeError):
    """The service did not start or did not stop; the message says what it said."""


class JobService:
    """A job service as a process of its own, which ends with the block or, at the latest, with this process.

    Args:
        data_dir: Where it keeps its jobs, their logs and the request log; a used one is taken up again.
        port: TCP port, 0 for a free one.
        max_running: Jobs at once, further ones are QUEUED; None for no limit.
        first_id: Number of the first job of a new data directory.
        plain_ids: Make ids bare integers, from ``first_id`` on.
        credential_uses: Ask for credentials, each good for so many requests.
        start_timeout: Seconds to wait for it to listen.

    Raises:
        JobServiceError: It does not start; raised by ``start`` and on entering the block.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        *,
        port: int = 0,
        max_running: int | None = None,
        first_id: int = 1,
        plain_ids: bool = False,
        credential_uses: int | None = None,
        start_timeout: float = 30.0,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._port = port
        self._options = ["--first-id", str(first_id)]
        if plain_ids:
            self._options.append("--plain-ids")
        if max_running is not None:
            self._options += ["--max-running", str(max_running)]
        if credential_uses is not None:
            self._options += ["--credential-uses", str(credential_uses)]
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[JobServiceClient] = []
        self._url = ""

    def __enter__(self) -> Self:
        """Start the service."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop the service and its jobs."""
        self.stop()

    @property
    def url(self) -> str:
        """The base URL; it stays the same after ``restart``."""
        if not self._url:
            raise JobServiceError("the job service was never started: call start() or use it in a with block")
        return self._url

    @property
    def pid(self) -> int:
        """The process id of the running service."""
        if self._process is None:
            raise JobServiceError("the job service is not running")
        return self._process.pid

    def start(self) -> Self:
        """Start the service and return once it listens."""
        if self._process is not None:
            raise JobServiceError(f"the job service runs already, at {self.url}")
        self.data_dir.mkdir(parents=True, exist_ok=True)
        error_log = self.data_dir / "service.log"
        said_before = error_log.stat().st_size if error_log.exists() else 0
        # Isolated and without site-packages: the service needs the standard library only, and starts faster.
        command = [sys.executable, "-I", "-S", "-c", _START, _SOURCE_ROOT, "--data-dir", str(self.data_dir)]
        command += ["--port", str(self._port), "--parent-pid", str(os.getpid()), *self._options]
        with error_log.open("ab") as log:
            # In a session of its own, so that a Ctrl-C at the terminal reaches the test first.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        self._process = process
        try:
            line = self._first_line(process)
            if not line:
                code = process.wait(self._start_timeout)
                said = error_log.read_bytes()[said_before:].decode(errors="replace").strip()
                raise JobServiceError(f"the job service ended with status {code} before it listened: {said}")
        except BaseException:
            # What is wrong with the journal, if anything, is what the service ended with.
            with contextlib.suppress(sqlite3.Error, JobServiceError):
                self.stop()
            raise
        self._url = line
        self._port = int(line.rpartition(":")[2])
        return self

    def _first_line(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        deadline = time.monotonic() + self._start_timeout
        line = b""
        readable = select.poll()
        readable.register(process.stdout, select.POLLIN)
        with process.stdout as stream:
            while not line.endswith(b"\n"):
                # Not select(): the descriptor may be above 1023 in a large test process.
                if not readable.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise JobServiceError(f"the job service does not listen after {self._start_timeout:g} s")
                chunk = os.read(stream.fileno(), 4096)
                if not chunk:
                    return ""
                line += chunk
        return line.decode().strip()

    def stop(self) -> None:
        """Stop the service with SIGTERM, and its jobs; does nothing when it isn't running.

        Jobs that a killed service left behind are killed too.

        Raises:
            JobServiceError: It had to be killed, or it ended with an error.
        """
        try:
            self._end(signal.SIGTERM)
        finally:
            for client in self._clients:
                client.close()
            self._clients.clear()
            if (self.data_dir / "journal.sqlite").exists():
                self._kill_leftovers()

    def kill(self) -> None:
        """Kill the service with SIGKILL; its jobs run on until ``stop`` or the next ``start``."""
        self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """Stop the service unless it was killed, and start it again on the same port and data directory."""
        self._end(signal.SIGTERM)
        return self.start()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise JobServiceError(
                f"the job service was killed: it had not ended {_STOP_WITHIN:g} s after SIGTERM"
            ) from None
        if process.returncode > 0:
            log = self.data_dir / "service.log"
            raise JobServiceError(f"the job service ended with status {process.returncode}: see {log}")

    def _kill_leftovers(self) -> None:
        with open_readonly(self.data_dir / "journal.sqlite") as db:
            meta = dict(db.execute("SELECT name, value FROM meta").fetchall())
            leaders = db.execute(
                "SELECT pid, pid_ticks FROM jobs"
                " WHERE pid_ticks IS NOT NULL AND status IN ('RUNNING', 'STOPPING')"
            ).fetchall()
        leftovers.kill(meta["cookie"], leaders)

    def client(self, client_name: str = "", *, timeout: float = 5.0) -> JobServiceClient:
        """Return a client of this service; ``stop`` closes it.

        Args:
            client_name: Free text that the request log shows as ``client``.
            timeout: Seconds to wait for a connection, and for each part of a reply.
        """
        from airflow_resumable.testing.jobservice.client import JobServiceClient

        client = JobServiceClient(self.url, client_name=client_name, timeout=timeout)
        self._clients.append(client)
        return client

    def requests(
        self, verb: str | None = None, *, client_contains: str | None = None, **filters: Any
    ) -> list[dict[str, Any]]:
        """Return logged requests in order of arrival, read from disk, so of a dead service too.

        Args:
            verb: submit, status, find, cancel, forget, credentials or other; None for all.
            client_contains: Only requests whose ``X-Client`` header contains this.
            filters: Any of job, token, family, fault, created, since_seq (numbers above it).
        """
        with open_readonly(self.data_dir / "journal.sqlite") as db:
            rows = select_requests(db, {"verb": verb, **filters})
        return [row for row in rows if client_contains is None or client_contains in (row["client"] or "")]

    def jobs_started(
        self, family: str | None = None, token: str | None = None, client_contains: str | None = None
    ) -> int:
        """Count the jobs that were started, by the request log.

        Args:
            family: Only jobs of this family.
            token: Only jobs submitted with this token.
            client_contains: Only jobs whose submitter's ``X-Client`` header contains this.
        """
        return len(
            self.requests("submit", created=True, family=family, token=token, client_contains=client_contains)
        )

    def wait_for_request(self, verb: str, *, timeout: float = 10.0, **filters: Any) -> dict[str, Any]:
        """Return the first logged request that matches, as soon as there is one.

        Args:
            verb: The verb.
            timeout: Seconds to wait.
            filters: Any of job, token, family, fault, created, since_seq (numbers above it).

        Raises:
            TimeoutError: There is none by then.
        """
        with self._new_client() as client:
            rows = client.log(wait=timeout, verb=verb, **filters)
        if not rows:
            raise TimeoutError(f"no {verb} request with {filters} within {timeout:g} s")
        return rows[0]

    def _new_client(self) -> JobServiceClient:
        from airflow_resumable.testing.jobservice.client import JobServiceClient

        return JobServiceClient(self.url)
