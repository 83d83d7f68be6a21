# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A BigQuery emulator of a test's own: real SQL jobs, real cancels, and a log of every request.

::

    with BigQueryEmulator(tmp_path) as bigquery:
        ...  # BIGQUERY_EMULATOR_HOST=bigquery.url, a connection with is_anonymous and project
        assert [job.job_id for job in bigquery.inserted()] == [...]

Needs ``scripts/bigquery_emulator.sh`` once. What it lacks of the real service is restored by the layer in
`airflow_resumable.testing.bigquery.server`.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from airflow_resumable.testing.bigquery.programs import find_programs
from airflow_resumable.testing.errors import StackError
from airflow_resumable.testing.ports import free_port
from airflow_resumable.testing.processes import Managed, ProcessTree

_SERVER = Path(__file__).with_name("server.py")


@dataclass(frozen=True, slots=True)
class Call:
    """A request about jobs, as the emulator's log has it.

    Attributes:
        at: When it came, seconds since the epoch.
        method, path: The HTTP request.
        status: The HTTP status of the answer.
        job_id, location: The job, empty for a listing.
        dry_run: Whether it was to start no job.
    """

    at: float
    method: str
    path: str
    status: int
    job_id: str = ""
    location: str = ""
    dry_run: bool = False

    @property
    def is_insert(self) -> bool:
        """Whether this is a ``jobs.insert``, and no dry run."""
        return self.method == "POST" and self.path.endswith("/jobs") and not self.dry_run

    @property
    def is_cancel(self) -> bool:
        """Whether this is a ``jobs.cancel``."""
        return self.path.endswith("/cancel")


class BigQueryEmulator:
    """The emulator, in a process of its own.

    Args:
        work_dir: Its tables, log and temporary files.
        project: The project that exists.
        start_timeout: Seconds until it must be ready.

    Raises:
        SystemUnavailable: It isn't installed; says how.
        StackError: It dies or isn't ready in time, with the end of its log.
    """

    def __init__(self, work_dir: Path, project: str = "proj", *, start_timeout: float = 60.0) -> None:
        self.work_dir = work_dir.resolve()
        self.project = project
        self.port = free_port()
        self._start_timeout = start_timeout
        self._tree = ProcessTree(self.work_dir / "processes")
        self._process: Managed | None = None
        self._http: httpx.Client | None = None

    @property
    def url(self) -> str:
        """Base URL, as BIGQUERY_EMULATOR_HOST wants it."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        """Start it."""
        self._http = httpx.Client(base_url=self.url, timeout=30.0, trust_env=False)
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.close()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        programs = find_programs()
        self.work_dir.mkdir(parents=True, exist_ok=True)
        argv = [str(programs.python), "-P", str(_SERVER), "--port", str(self.port)]
        argv += ["--project", self.project, "--folder", str(self.work_dir)]
        env = {"HOME": str(programs.home), "PATH": os.environ.get("PATH", ""), "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = self._tree.start("bigquery", argv, env=env, cwd=self.work_dir)
        deadline = time.monotonic() + self._start_timeout
        while not self._answers():
            if not self._process.alive or time.monotonic() > deadline:
                raise StackError(f"the BigQuery emulator did not start:\n{self._process.tail()}")
            time.sleep(0.05)

    def close(self) -> None:
        """Stop it; a second call does nothing."""
        self._tree.close()
        if self._http is not None:
            self._http.close()

    def _answers(self) -> bool:
        try:
            return self.request("GET", f"projects/{self.project}/datasets").status_code == 200
        except httpx.TransportError:
            return False

    def request(self, method: str, path: str, body: Any = None, **query: str) -> httpx.Response:
        """Send a request of the REST API.

        Args:
            method: The HTTP method.
            path: Below ``/bigquery/v2/``.
            body: What is sent as JSON.
            query: The query's parameters.
        """
        if self._http is None:
            raise StackError("the BigQuery emulator is not running")
        return self._http.request(method, f"/bigquery/v2/{path}", json=body, params=query)

    # --- what a test looks at ---

    def calls(self) -> list[Call]:
        """Return every request about jobs, oldest first: what clients asked for, not what they believe."""
        log = self.work_dir / "requests.jsonl"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [Call(**json.loads(line)) for line in lines]

    def inserted(self) -> list[Call]:
        """Return the submits that have started a job: each ``jobs.insert`` that was answered 200."""
        return [call for call in self.calls() if call.is_insert and call.status == 200]

    def job(self, job_id: str, location: str = "US") -> dict[str, Any] | None:
        """Return a job as ``jobs.get`` tells it, None where there is none."""
        answer = self.request("GET", f"projects/{self.project}/jobs/{job_id}", location=location)
        return answer.json() if answer.status_code == 200 else None

    # --- what a test does to it ---

    def insert(self, job_id: str, sql: str, location: str = "US", **configuration: Any) -> dict[str, Any]:
        """Start a query as another client would.

        Args:
            job_id: Its id.
            sql: Its text.
            location: Where.
            configuration: More of the job's configuration, such as `labels`.
        """
        reference = {"projectId": self.project, "jobId": job_id, "location": location}
        query = {"query": {"query": sql, "useLegacySql": False}, **configuration}
        body = {"jobReference": reference, "configuration": query}
        answer = self.request("POST", f"projects/{self.project}/jobs", body)
        answer.raise_for_status()
        told: dict[str, Any] = answer.json()
        return told

    def forget(self, job_id: str, location: str = "US") -> None:
        """Delete a job's metadata, as ``jobs.delete`` does and BigQuery itself after six months."""
        answer = self.request("DELETE", f"projects/{self.project}/jobs/{job_id}/delete", location=location)
        answer.raise_for_status()

    def show(self, job_id: str, state: str, reason: str | None = None, *, location: str = "US") -> None:
        """Let a job show a state that can't be brought about here.

        Args:
            job_id: The job.
            state: Its state from now on.
            reason: The reason of its error result, with state ``DONE``.
            location: Where it is.
        """
        status: dict[str, Any] = {"state": state}
        if reason is not None:
            error = {"reason": reason, "message": f"shown by a test: {reason}"}
            status |= {"errorResult": error, "errors": [error]}
        if self._http is None:
            raise StackError("the BigQuery emulator is not running")
        told = {"job_id": job_id, "location": location, "status": status}
        self._http.post("/layer/show", json=told).raise_for_status()


def until(gate: Path) -> str:
    """Return a query that runs until `gate` exists, for two minutes at most; a cancel ends it."""
    return f"SELECT _gate('{gate}') AS opened"
