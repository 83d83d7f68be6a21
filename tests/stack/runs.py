# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Runs of one-job Dags on a real Airflow, many at a time, and what the job service's log says of each."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import quote

import pytest

from airflow_resumable.testing.airflow_api import AirflowApi
from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.errors import StackError
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.stack import AirflowStack
from tests.stack.kills import until

AIRFLOW = tuple(int(part) for part in version("apache-airflow-core").split(".")[:2])

AT_ONCE = 3
"""How many runs go on at the same time: more would make each slower than the time-outs it is about."""


@dataclass(frozen=True)
class Lab:
    """What a run needs: an Airflow, a crash controller, a job service and a place for gates."""

    stack: AirflowStack
    crash: CrashController
    service: JobService
    place: Path

    def run(self, dag: str, *, task: str = "job", released: bool = False) -> Run:
        """Make a run that isn't triggered yet, so that rules can be made for it."""
        return Run(self, dag, task, f"run-{uuid.uuid4().hex[:12]}", released=released)


class PatientApi(AirflowApi):
    """SQLite lets one write at a time, and Airflow answers 500 to whoever waited too long."""

    def request(self, method: str, path: str, *, missing_ok: bool = False, **options: Any) -> Any:
        for left in reversed(range(5)):
            try:
                return super().request(method, path, missing_ok=missing_ok, **options)
            except StackError as error:
                if not left or "Database error" not in str(error):
                    raise
        raise AssertionError("not reached")

    def clear_run(self, dag: str, run: str) -> None:
        """Clear a whole run by the route of its own that the API has for that."""
        path = f"/dags/{quote(dag)}/dagRuns/{quote(run)}/clear"
        self.request("POST", path, json={"dry_run": False, "only_failed": False})

    def backfills(self, dag: str) -> list[dict[str, Any]]:
        """Return the backfills of a Dag."""
        found = self.request("GET", "/backfills", params={"dag_id": dag})
        return cast(list[dict[str, Any]], found["backfills"])


class Run:
    """One run of a Dag whose job waits for a gate; every wait and count is about this run alone."""

    def __init__(self, lab: Lab, dag: str, task: str, run: str, *, released: bool) -> None:
        self.lab, self.dag, self.task, self.run = lab, dag, task, run
        self.gate = lab.place / f"gate-{run}"
        # A deployment's own client is for one thread.
        self.api = PatientApi(lab.stack.url)
        if released:
            self.gate.touch()

    def __enter__(self) -> Self:
        """Return the run; leaving the block lets its job end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the job end and close the connections."""
        self.gate.touch()
        self.api.close()
        if "_client" in vars(self):
            self._client.close()

    @property
    def conf(self) -> dict[str, Any]:
        """The run's conf: where the service is, and the gate."""
        return {"service": self.lab.service.url, "gate": str(self.gate)}

    def trigger(self, **conf: Any) -> None:
        """Start the run."""
        self.api.trigger(self.dag, self.run, {**self.conf, **conf})

    def on(self, point: str, action: Any, **more: Any) -> None:
        """Add a rule of the crash controller for this run."""
        self.lab.crash.on(point, action, dag_id=self.dag, run_id=self.run, task_id=self.task, **more)

    def reaches(self, point: str, try_number: int = 1, timeout: float = 90, **more: Any) -> Any:
        """Wait until a try of this run passes a crash point."""
        return self.lab.crash.wait(
            point,
            dag_id=self.dag,
            run_id=self.run,
            task_id=self.task,
            try_number=try_number,
            timeout=timeout,
            **more,
        )

    def ends(self, *states: str, try_number: int | None = None, map_index: int = -1) -> dict[str, Any]:
        """Wait until the task is in a state, success when none is given."""
        return self.api.wait_for(
            self.dag,
            self.run,
            self.task,
            set(states or ("success",)),
            90,
            try_number=try_number,
            map_index=map_index,
        )

    def log(self, try_number: int) -> str:
        """Return the log of one try."""
        return self.api.task_log(self.dag, self.run, self.task, try_number)

    def record(self, key: str = "resumable.local_job_id", map_index: int = -1) -> Any:
        """Return the job's record, or None."""
        found = self.api.task_state(self.dag, self.run, self.task, key, map_index)
        return found["value"] if found else None

    def reported(self, map_index: int = -1) -> None:
        """Wait until the success is noted on record: the listener runs after the state is seen."""

        def noted() -> bool:
            record = self.record(map_index=map_index)
            return record is not None and bool(record["reported"])

        until("the success is noted as reported", noted)

    def requests(self, verb: str, **filters: Any) -> list[dict[str, Any]]:
        """Return the service's log of this run's requests of one kind."""
        return self.lab.service.requests(verb, client_contains=f"{self.dag}/{self.run}/", **filters)

    @property
    def started(self) -> list[dict[str, Any]]:
        """The submits that started a job."""
        return self.requests("submit", created=True)

    @property
    def cancels(self) -> int:
        """How many cancels of this run's jobs were asked for, by whomever."""
        jobs = {entry["job"] for entry in self.started}
        return sum(entry["job"] in jobs for entry in self.lab.service.requests("cancel"))

    @cached_property
    def _client(self) -> Any:
        return self.lab.service.client()

    def status(self, number: int = 0) -> str:
        """Return the state of the job that was started as the n-th."""
        return str(self._client.status(self.started[number]["job"])["status"])


class Laboratory:
    """The two deployments, each with a module's Dags, made when they are first asked for.

    Args:
        request: The module's fixture request.
        file: The Dag file's name.
        source: Its text.
        dags: The ids of its Dags.
    """

    def __init__(self, request: pytest.FixtureRequest, file: str, source: str, dags: Iterable[str]) -> None:
        self._request, self._file, self._source, self._dags = request, file, source, set(dags)
        self._known: dict[str, Lab] = {}
        paths: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        self._place = paths.mktemp("gates")
        request.getfixturevalue("crash_controller").reset()

    def __call__(self, deployment: str = "busy_stack") -> Lab:
        """Return the lab on ``busy_stack`` or ``site_stack``."""
        if deployment not in self._known:
            stack: AirflowStack = self._request.getfixturevalue(deployment)
            stack.add_dag(self._source, self._file)
            for dag in self._dags:
                stack.wait_for_dag(dag, 120)
            crash, service = map(self._request.getfixturevalue, ("crash_controller", "jobservice"))
            self._known[deployment] = Lab(stack, crash, service, self._place)
        return self._known[deployment]


class Together:
    """Functions of a `Lab` that run side by side, started all at once, asked for one by one."""

    def __init__(self, labs: Callable[[str], Lab], chosen: Iterable[tuple[str, str, Callable[[Lab], Any]]]):
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._futures: dict[str, Future[Any]] = {
            name: self._pool.submit(call, labs(where)) for name, where, call in chosen
        }

    def __getitem__(self, name: str) -> Any:
        """Wait for one and return what it returned, or raise what it raised."""
        return self._futures[name].result(timeout=400)

    def finish(self) -> None:
        """Wait until none runs any more."""
        self._pool.shutdown(wait=True)


def selected(request: pytest.FixtureRequest, argument: str) -> list[str]:
    """Return the values of a parameter with which tests of the requesting module are going to run."""
    calls = [
        item.callspec
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and hasattr(item, "callspec")
    ]
    return [str(call.params[argument]) for call in calls if argument in call.params]
