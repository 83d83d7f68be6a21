# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Attempts of one task instance against the real local job service, some of them as processes that die."""

from __future__ import annotations

import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_resumable.jobs.attempt import JobAttempt
from airflow_resumable.jobs.crashpoints import check_point
from airflow_resumable.sdk import ResumableJobMixin
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from airflow_resumable.testing.variants import broken
from tests.forkserver import processes

SUCCEED = [sys.executable, "-c", "print('{\"rows\": 7}')"]
FAIL = [sys.executable, "-c", "raise SystemExit(3)"]
RUN_STARTED = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)

_processes = processes("tests.attempts")


def until_released(gate: Path) -> list[str]:
    """Return a command that runs until `gate` exists, then succeeds."""
    return ["/bin/sh", "-c", f"while [ ! -e '{gate}' ]; do sleep 0.05; done; echo '{{\"rows\": 7}}'"]


class TokenOnlyJobOperator(LocalJobOperator):
    """The local job service used as one that takes tokens and lists nothing."""

    find_job_by_token: Any = ResumableJobMixin.find_job_by_token
    find_jobs_by_family: Any = ResumableJobMixin.find_jobs_by_family


@dataclass
class TaskInstance:
    """One task instance: its store, its service, and the attempts that are made of it."""

    service_url: str
    store_dir: Path
    command: list[str]
    retries: int = 2
    max_tries: int = 2
    run_id: str = "run"
    map_index: int = -1
    policy: dict[str, Any] = field(default_factory=dict)
    run_started: datetime = RUN_STARTED
    server_state: str | None = "running"
    operator_class: type[LocalJobOperator] = LocalJobOperator
    ti_id: uuid.UUID | None = None
    variant: str | None = None
    """A variant of `airflow_resumable.testing.variants` that every attempt runs under."""

    @property
    def store(self) -> FileTaskStateStore:
        """What the task instance's attempts share."""
        return FileTaskStateStore(self.store_dir)

    def operator(self, **arguments: Any) -> LocalJobOperator:
        """Return a fresh operator, as each attempt has its own."""
        return self.operator_class(
            task_id="task",
            service_url=self.service_url,
            command=self.command,
            retries=self.retries,
            poll_interval=0.02,
            resume_policy=self.policy,
            **arguments,
        )

    def context(self, operator: Any, try_number: int, store: Any = None) -> Any:
        """Return the context of one attempt."""
        ti = SimpleNamespace(
            id=self.ti_id or uuid.uuid4(),
            dag_id="dag",
            run_id=self.run_id,
            task_id="task",
            map_index=self.map_index,
            try_number=try_number,
            max_tries=self.max_tries,
            stats_tags={},
            get_task_states=self._get_task_states,
        )
        return {
            "ti": ti,
            "task": operator,
            "dag_run": SimpleNamespace(start_date=self.run_started),
            "task_state_store": self.store if store is None else store,
        }

    def _get_task_states(self, **_: Any) -> dict[str, dict[str, str | None]]:
        if self.server_state == "unreachable":
            raise ConnectionError("the API server does not answer")
        if self.server_state == "hangs":
            threading.Event().wait()
        return {self.run_id: {f"task_{self.map_index}" if self.map_index >= 0 else "task": self.server_state}}

    def attempt(self, try_number: int = 1, store: Any = None, **arguments: Any) -> Any:
        """Make an attempt in this process and return its result."""
        operator = self.operator(**arguments)
        with broken(self.variant) if self.variant else nullcontext():
            return operator.execute(self.context(operator, try_number, store))

    def attempt_killed(self, point: str, try_number: int = 1, may_end: tuple[str, ...] = ()) -> str | None:
        """Make an attempt in a process of its own that is killed with SIGKILL at a crash point.

        Returns None, or how it ended before it came there, if that is one of `may_end`: "returned" or
        an exception's name.
        """
        here, there = _processes.Pipe(duplex=False)
        process = _processes.Process(target=_die_at, args=(self, check_point(point), try_number, there))
        process.start()
        there.close()
        try:
            ended: str | None = here.recv()
        except EOFError:
            ended = None
        process.join()
        here.close()
        if process.exitcode != -signal.SIGKILL and ended not in may_end:
            raise AssertionError(f"the attempt was not killed at {point}: {ended}, exit {process.exitcode}")
        return ended

    def attempt_stopped(
        self,
        point: str | None,
        try_number: int = 1,
        signals: int = 1,
        when: Callable[[], object] | None = None,
        hold: bool = False,
    ) -> tuple[str, str]:
        """Make an attempt in a process of its own that gets SIGTERM at a crash point, None for any time.

        With `when`, the signal is sent once that has returned too; with `hold`, the attempt goes on from the
        point once the signal has reached it. Returns how the attempt ended:
        ("returned" or the exception's name, text).
        """
        here, there = _processes.Pipe()
        process = _processes.Process(
            target=_stoppable, args=(self, point and check_point(point), try_number, there, hold)
        )
        process.start()
        there.close()
        if point is not None and here.recv() != (point, ""):
            raise AssertionError(f"the attempt ended before {point}")
        if when is not None:
            when()
        for _ in range(signals):
            os.kill(process.pid or 0, signal.SIGTERM)
        ended: tuple[str, str] = here.recv()
        process.join()
        here.close()
        return ended

    @property
    def record(self) -> Any:
        """The record as it lies in the store."""
        return self.store.get("resumable.local_job_id")


class KilledAt(JobAttempt):
    """An attempt whose process is killed when it passes one crash point."""

    point = ""

    def reach(self, point: str) -> None:
        """Kill the process for good at the point."""
        if point == self.point:
            os.kill(os.getpid(), signal.SIGKILL)
        super().reach(point)


def _die_at(instance: TaskInstance, point: str, try_number: int, pipe: Any) -> None:
    from airflow_resumable.jobs import attempt

    KilledAt.point = point
    attempt.JobAttempt = KilledAt  # type: ignore[misc]
    try:
        instance.attempt(try_number)
    except Exception as error:
        pipe.send(type(error).__name__)
    else:
        pipe.send("returned")


def _stoppable(instance: TaskInstance, point: str | None, try_number: int, pipe: Any, hold: bool) -> None:
    from airflow_resumable.jobs import attempt

    operator = instance.operator()

    # Airflow's own handler has this name, by which on_kill knows that it runs inside a signal.
    arrived = threading.Event()

    def _on_term(signum: int, frame: object) -> None:
        arrived.set()
        operator.on_kill()

    class Tells(JobAttempt):
        told = False

        def reach(self, passed: str) -> None:
            if passed == point and not Tells.told:
                Tells.told = True
                pipe.send((point, ""))
                if hold and not arrived.wait(10):
                    raise AssertionError("no signal came")
            super().reach(passed)

    attempt.JobAttempt = Tells  # type: ignore[misc]
    signal.signal(signal.SIGTERM, _on_term)
    try:
        with broken(instance.variant) if instance.variant else nullcontext():
            result = operator.execute(instance.context(operator, try_number))
    except BaseException as error:
        pipe.send((type(error).__name__, str(error)))
    else:
        pipe.send(("returned", str(result)))


def started(service: JobService) -> list[dict[str, Any]]:
    """Return the service's own log of jobs it started."""
    return [entry for entry in requests(service, "submit") if entry["created"]]


def requests(service: JobService, verb: str) -> list[dict[str, Any]]:
    """Return the service's own log of one kind of request."""
    return service.requests(verb)
