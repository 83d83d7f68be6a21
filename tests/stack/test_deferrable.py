# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Case 32 on a real Airflow with a real triggerer: a deferred job is watched, kept, cancelled once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.stack import AirflowStack
from tests.stack.kills import until

pytestmark = pytest.mark.stack

DAG = """
from datetime import timedelta

from airflow.sdk import DAG

from airflow_resumable.testing.local_job import LocalJobOperator

WAIT = "while [ ! -e '{{ params.gate }}-NAME' ]; do sleep 0.1; done; echo '{\\"rows\\": 7}'"

with DAG("deferred", schedule=None, params={"service": "", "gate": ""}):
    for name, more in {
        "job": {},
        "timed": {"execution_timeout": timedelta(seconds=6), "retries": 1},
    }.items():
        LocalJobOperator(
            task_id=name,
            service_url="{{ params.service }}",
            command=["/bin/sh", "-c", WAIT.replace("NAME", name)],
            poll_interval=0.3,
            deferrable=True,
            **{"retries": 2, "retry_delay": timedelta(0), **more},
        )
"""


@pytest.fixture(scope="module")
def triggering(
    tmp_path_factory: pytest.TempPathFactory, template_db: Path, crash_controller: CrashController
) -> Iterator[AirflowStack]:
    """An Airflow with a triggerer."""
    home = tmp_path_factory.mktemp("triggering")
    with AirflowStack(home, env=crash_controller.env, template_db=template_db, triggerer=True) as running:
        running.add_dag(DAG, "deferred.py")
        running.wait_for_dag("deferred")
        yield running


class DeferredJob:
    """One run of which one task is looked at."""

    def __init__(self, stack: AirflowStack, service: JobService, gate: Path, task: str) -> None:
        self.stack, self.service, self.task = stack, service, task
        self.gate = gate.with_name(f"{gate.name}-{task}")
        other = {"job": "timed", "timed": "job"}[task]
        gate.with_name(f"{gate.name}-{other}").touch()
        self.run = stack.trigger("deferred", conf={"service": service.url, "gate": str(gate)})

    @property
    def submits(self) -> list[dict[str, Any]]:
        """The jobs that the service started for the task."""
        mine = f"deferred/{self.run}/{self.task}/"
        return [
            entry
            for entry in self.service.requests("submit", created=True)
            if entry["client"].startswith(mine)
        ]

    @property
    def cancels(self) -> list[dict[str, Any]]:
        """The cancel requests for the task's jobs."""
        jobs = {entry["job"] for entry in self.submits}
        return [entry for entry in self.service.requests("cancel") if entry["job"] in jobs]

    def is_deferred(self, crash: CrashController, **facts: Any) -> None:
        """Wait until the trigger has looked at the job."""
        crash.wait("in_trigger", run_id=self.run, task_id=self.task, **facts)

    def ends(self, *states: str) -> dict[str, Any]:
        """Wait for the task's end."""
        return self.stack.wait_for("deferred", self.run, self.task, set(states or ("success",)), timeout=90)

    def status(self, number: int = 0) -> str:
        """What the service says of the task's job."""
        return str(self.service.client().status(self.submits[number]["job"])["status"])


@pytest.fixture
def job(
    triggering: AirflowStack, jobservice: JobService, crash: CrashController, tmp_path: Path
) -> Iterator[Any]:
    """Start a run."""
    made: list[DeferredJob] = []

    def start(task: str = "job") -> DeferredJob:
        made.append(DeferredJob(triggering, jobservice, tmp_path / f"gate{len(made)}", task))
        return made[-1]

    yield start
    for one in made:
        one.gate.touch()


def test_a_deferred_job_runs_once_and_returns_its_result(
    job: Any, triggering: AirflowStack, crash: CrashController
) -> None:
    """No worker holds a slot while the trigger looks; the XCom is that of any other run."""
    one = job()
    one.is_deferred(crash)
    one.gate.touch()
    assert one.ends()["try_number"] == 1
    assert triggering.xcom("deferred", one.run, "job") == {"rows": 7}
    assert (len(one.submits), one.cancels) == (1, [])


def test_a_triggerer_that_dies_and_comes_back_keeps_the_job(
    job: Any, triggering: AirflowStack, crash: CrashController
) -> None:
    """Killed, and stopped in good order: the new triggerer watches the same job."""
    import signal

    one = job()
    for number in (signal.SIGKILL, signal.SIGTERM):
        one.is_deferred(crash)
        triggering.restart("triggerer", number)
        crash.reset()
    one.is_deferred(crash)
    assert one.status() == "RUNNING"
    one.gate.touch()
    assert one.ends()["try_number"] == 1
    assert (len(one.submits), one.cancels) == (1, [])


@pytest.mark.parametrize("state", ["failed", "success", "skipped"])
def test_a_user_who_ends_a_deferred_task_ends_its_job_once(
    job: Any, triggering: AirflowStack, crash: CrashController, state: str
) -> None:
    """Marked while deferred: no worker is there, so the trigger cancels."""
    one = job()
    one.is_deferred(crash)
    triggering.mark("deferred", one.run, "job", state)
    until("the job is cancelled", lambda: one.status() == "CANCELLED")
    assert (len(one.submits), len(one.cancels)) == (1, 1)


def test_a_task_cleared_while_deferred_starts_afresh_and_its_new_job_lives(
    job: Any, triggering: AirflowStack, crash: CrashController
) -> None:
    """Cleared and deferred again at once: the old job is cancelled once, the new one never."""
    one = job()
    one.is_deferred(crash)
    triggering.clear("deferred", one.run, "job")
    until("a second job is started", lambda: len(one.submits) == 2)
    one.is_deferred(crash, try_number=2)
    assert (one.status(0), one.status(1)) == ("CANCELLED", "RUNNING")
    one.gate.touch()
    assert one.ends()["state"] == "success"
    # On 3.4 both the trigger and the next try may ask for it; a job that stops is asked once.
    assert {entry["job"] for entry in one.cancels} == {one.submits[0]["job"]}
    assert len(one.submits) == 2


def test_a_deferred_task_that_times_out_reconnects_and_its_last_try_cancels(
    job: Any, crash: CrashController
) -> None:
    """execution_timeout with a try left keeps the job; on the last try it is cancelled."""
    one = job("timed")
    one.is_deferred(crash, try_number=1)
    one.is_deferred(crash, try_number=2)
    assert (len(one.submits), one.cancels) == (1, [])
    assert one.ends("failed")["try_number"] == 2
    until("the job is cancelled", lambda: one.status() == "CANCELLED")
    assert (len(one.submits), len(one.cancels)) == (1, 1)


def test_a_trigger_that_fails_hands_the_job_back_to_a_worker(job: Any, crash: CrashController) -> None:
    """The worker watches on; nothing is started or cancelled."""
    crash.on("in_trigger", lambda event: "raise:broken on purpose", task_id="job")
    one = job()
    crash.wait("mid_poll", run_id=one.run, task_id="job")
    one.gate.touch()
    assert one.ends()["try_number"] == 1
    assert (len(one.submits), one.cancels) == (1, [])


@pytest.mark.parametrize("point", ["after_accept", "before_defer"])
def test_a_worker_killed_on_the_way_to_the_triggerer_leaves_one_job(
    job: Any, crash: CrashController, point: str
) -> None:
    """The second try reconnects and defers."""
    crash.on(point, "kill_task", task_id="job")
    one = job()
    one.is_deferred(crash, try_number=2)
    one.gate.touch()
    assert one.ends()["try_number"] == 2
    assert (len(one.submits), one.cancels) == (1, [])
