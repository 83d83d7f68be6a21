# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of the jobs: started, watched to their end, stopped.

Each job is the leader of its own session and process group. It is finished when its first process ends;
whatever it left in its group is killed then, as at the end of a container. Its log holds stdout and stderr;
stdout comes by way of the service, so the order of lines written to both at nearly the same time may change.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from airflow_resumable.testing.jobservice import leftovers
from airflow_resumable.testing.jobservice.faults import Fault
from airflow_resumable.testing.jobservice.job import Job, JobId, Status
from airflow_resumable.testing.jobservice.journal import Journal
from airflow_resumable.testing.jobservice.payload import JobSpec, parse_json

_GRACE = 2.0
_DRAIN = 1.0
_LINE_LIMIT = 1 << 20
_RESTARTED = "service restarted"


class Stopping(RuntimeError):
    """The service is shutting down and starts nothing any more."""


@dataclass(slots=True)
class _Live:
    number: int
    process: subprocess.Popen[bytes]
    pump: threading.Thread
    output: _LastLine
    done: threading.Event = field(default_factory=threading.Event)


class _LastLine:
    """Copies a job's stdout to its log and keeps the last line that isn't blank."""

    def __init__(self, log: IO[bytes]) -> None:
        self._log = log
        self._last = b""
        self._open = b""

    def pump(self, stream: IO[bytes]) -> None:
        """Copy until the end of the stream, closing both files."""
        with stream, self._log:
            while chunk := os.read(stream.fileno(), 65536):
                self._log.write(chunk)
                self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        *lines, rest = (self._open + chunk).split(b"\n")
        self._last = next((line for line in reversed(lines) if line.strip()), self._last)
        self._open = rest[-_LINE_LIMIT:]

    def result(self) -> Any:
        """Return the last line, parsed if it is JSON; None if there was no line."""
        line = self._open if self._open.strip() else self._last
        text = line.decode("utf-8", "replace").strip()
        if not text:
            return None
        try:
            return parse_json(text)
        except ValueError:
            return text


class Runner:
    """Runs jobs; all methods are atomic under threads.

    Args:
        journal: Where jobs and their ends are recorded.
        log_dir: Where ``<job id>.log`` files go.
        max_running: Jobs that run at once, further ones wait; None for no limit.
    """

    def __init__(self, journal: Journal, log_dir: Path, *, max_running: int | None = None) -> None:
        self._journal = journal
        self._log_dir = log_dir
        self._max_running = max_running
        # One lock for journal and processes: a pid is reaped, so may be used anew, only while it is held.
        self._lock = journal.lock
        self._live: dict[int, _Live] = {}
        self._closing = False

    def recover(self) -> None:
        """Settle what a killed service left: RUNNING is FAILED, STOPPING is CANCELLED, QUEUED waits on.

        Processes that outlived the service are killed first, so that a finished job is really gone.
        """
        orphans = self._journal.jobs_in(Status.RUNNING, Status.STOPPING)
        leaders = [(job.pid, job.pid_ticks) for job in orphans if job.pid and job.pid_ticks]
        leftovers.kill(self._journal.cookie, leaders)
        for job in orphans:
            end = Status.CANCELLED if job.status is Status.STOPPING else Status.FAILED
            self._journal.finish(job.number, end, reason=_RESTARTED)
        with self._lock:
            self._fill()

    def submit(self, spec: JobSpec, seq: int) -> tuple[Job, bool]:
        """Start or queue a job, or find the one that holds the token.

        Args:
            spec: What to run.
            seq: The logged request that asks for it.

        Returns:
            The job, and whether it is new.
        """
        with self._lock:
            if self._closing:
                raise Stopping
            with self._journal.transaction():
                known = self._journal.job_with_token(spec.token)
                if known is not None:
                    self._journal.log_submit(seq, known.id, created=False)
                    return known, False
                start = self._has_slot()
                number = self._journal.add_job(spec, Status.RUNNING if start else Status.QUEUED)
                job = self._journal.job(number)
                self._journal.log_submit(seq, job.id, created=True)
            if start:
                self._spawn(job)
            return self._journal.job(number), True

    def cancel(self, number: int, slow: Fault | None = None) -> bool:
        """Ask a job to stop; False if it had finished.

        Its group gets SIGTERM, and SIGKILL 2 s later; once gone it is CANCELLED, whatever its exit code.

        Args:
            number: The job.
            slow: A ``slow_stop`` fault: the SIGTERM waits for its seconds, or for its deletion.
        """
        with self._lock:
            status = self._journal.job(number).status
            if status.finished:
                return False
            if status is Status.QUEUED:
                self._journal.finish(number, Status.CANCELLED)
            elif status is Status.RUNNING:
                self._journal.set_stopping(number)
                live = self._live[number]
                if slow is None:
                    self._signal(live, signal.SIGTERM)
                _start_thread(self._stop, live, slow)
        return True

    def close(self) -> None:
        """Kill every job's processes; their ends are recorded by the next start, as after a crash."""
        with self._lock:
            self._closing = True
            live = list(self._live.values())
            for one in live:
                self._signal(one, signal.SIGKILL)
        # Before the wait, because one that left its group may hold a job's output open.
        leftovers.kill(self._journal.cookie)
        for one in live:
            one.done.wait(_GRACE)

    def _has_slot(self) -> bool:
        return self._max_running is None or len(self._live) < self._max_running

    def _fill(self) -> None:
        while not self._closing and self._has_slot() and (job := self._journal.next_queued()) is not None:
            self._journal.set_running(job.number)
            self._spawn(job)

    def _spawn(self, job: Job) -> None:
        try:
            log = (self._log_dir / f"{job.id}.log").open("ab", buffering=0)
        except OSError as error:
            self._journal.finish(job.number, Status.FAILED, reason=f"could not start: {error}")
            return
        try:
            process = subprocess.Popen(
                job.spec.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **_variables(job.id, self._journal.cookie)},
                start_new_session=True,
            )
        except OSError as error:
            with log:
                log.write(f"could not start: {error}\n".encode())
            self._journal.finish(job.number, Status.FAILED, reason=f"could not start: {error}")
            return
        self._journal.set_process(job.number, process.pid, leftovers.start_ticks(process.pid))
        assert process.stdout is not None
        output = _LastLine(log)
        live = _Live(job.number, process, _start_thread(output.pump, process.stdout), output)
        self._live[job.number] = live
        _start_thread(self._watch, live)

    def _watch(self, live: _Live) -> None:
        _wait_unreaped(live.process)
        self._signal(live, signal.SIGKILL)
        # A descendant that left the group may hold the pipe open for as long as it likes.
        live.pump.join(_DRAIN)
        with self._lock:
            code = live.process.wait()
            del self._live[live.number]
            if not self._closing:
                self._record_end(live, code)
                self._fill()
        live.done.set()

    def _record_end(self, live: _Live, code: int) -> None:
        if self._journal.job(live.number).status is Status.STOPPING:
            status = Status.CANCELLED
        else:
            status = Status.SUCCEEDED if code == 0 else Status.FAILED
        self._journal.finish(live.number, status, exit_code=code, result=live.output.result())

    def _stop(self, live: _Live, slow: Fault | None) -> None:
        if slow is not None:
            slow.released.wait(slow.seconds)
            self._signal(live, signal.SIGTERM)
        if not live.done.wait(_GRACE):
            self._signal(live, signal.SIGKILL)

    def _signal(self, live: _Live, number: signal.Signals) -> None:
        with self._lock:
            if live.number in self._live:
                # macOS answers EPERM where only the zombie is left in the group.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(live.process.pid, number)


def _variables(job_id: JobId, cookie: str) -> dict[str, str]:
    return {"JOB_ID": str(job_id), leftovers.COOKIE_VARIABLE: cookie}


def _wait_unreaped(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process but leave its pid taken, where the system can."""
    if sys.platform != "darwin":
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:
        process.wait()


def _start_thread(target: Any, *args: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread
