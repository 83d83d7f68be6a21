# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The job protocol under a real Airflow: real workers are killed, real clears are made, one job results."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.stack import AirflowStack
from tests.stack.kills import until
from tests.stack.runs import AIRFLOW

pytestmark = pytest.mark.stack

DAG = """
    from datetime import timedelta

    from airflow.sdk import DAG
    from airflow_resumable.testing.local_job import LocalJobOperator

    GATED = "while [ ! -e '{{ params.gate }}' ]; do sleep 0.05; done; echo '{\\"rows\\": 7}'"

    with DAG("protocol", schedule=None, params={"service": "", "gate": "", "timeout": 0}):
        LocalJobOperator(
            task_id="job",
            service_url="{{ params.service }}",
            command=["/bin/sh", "-c", GATED],
            poll_interval=0.1,
            retries=2,
            retry_delay=timedelta(seconds=1),
        )
"""


class Job:
    """One run of the Dag, and what the service's log says of it."""

    def __init__(self, stack: AirflowStack, service: JobService, gate: Path) -> None:
        self.stack, self.service, self.gate = stack, service, gate
        self.run = stack.trigger("protocol", conf={"service": service.url, "gate": str(gate)})

    def requests(self, verb: str, **filters: Any) -> list[dict[str, Any]]:
        return self.service.requests(verb, client_contains=self.run, **filters)

    @property
    def started(self) -> list[dict[str, Any]]:
        return self.requests("submit", created=True)

    def ends(self, *states: str, timeout: float = 90) -> dict[str, Any]:
        return self.stack.wait_for("protocol", self.run, "job", set(states or ("success",)), timeout=timeout)

    def status(self, entry: dict[str, Any]) -> str:
        return str(self.service.client().status(entry["job"])["status"])


def reported(stack: AirflowStack, run: str) -> bool:
    record = stack.task_state("protocol", run, "job", "resumable.local_job_id")
    return record is not None and bool(record["value"]["reported"])


def polls(crash: CrashController, run: str) -> int:
    return sum(event.point == "mid_poll" and event.run_id == run for event in crash.events)


@pytest.fixture
def job(stack: AirflowStack, jobservice: JobService, crash: CrashController, tmp_path: Path) -> Iterator[Any]:
    """Start a run; rules for the crash controller are set up before."""
    stack.add_dag(DAG, "protocol.py")
    stack.wait_for_dag("protocol")
    gates: list[Path] = []

    def start(released: bool = False) -> Job:
        gate = tmp_path / f"gate-{len(gates)}"
        gates.append(gate)
        if released:
            gate.touch()
        return Job(stack, jobservice, gate)

    yield start
    for gate in gates:
        gate.touch()


def test_an_undisturbed_job_runs_once(job: Any, stack: AirflowStack) -> None:
    """One submit, no cancel, the result as XCom, the record under its key."""
    one = job(released=True)
    assert one.ends()["try_number"] == 1
    assert stack.xcom("protocol", one.run, "job") == {"rows": 7}
    assert len(one.requests("submit")) == 1
    assert one.requests("cancel") == []
    record = stack.task_state("protocol", one.run, "job", "resumable.local_job_id")
    assert record is not None
    assert (record["value"]["phase"], record["expires_at"]) == ("succeeded", None)
    # The listener runs after the success was reported, so a little later than the state is seen.
    until("the success is noted as reported", lambda: reported(stack, one.run))


@pytest.mark.parametrize(
    "point", ["before_intent", "after_intent", "after_accept", "between_key_writes", "after_id", "mid_poll"]
)
def test_a_worker_killed_before_the_end_leaves_one_job(job: Any, crash: CrashController, point: str) -> None:
    """SIGKILL of the real task process at each point of the protocol; the second try ends the task."""
    crash.on(point, "kill_task", task_id="job")
    one = job()
    crash.wait("mid_poll", run_id=one.run, try_number=2)
    one.gate.touch()
    assert one.ends()["try_number"] == 2
    assert len(one.started) == 1
    assert one.requests("cancel") == []


@pytest.mark.parametrize("point", ["before_result", "before_outcome", "after_outcome", "before_return"])
def test_a_worker_killed_after_the_jobs_end_returns_its_result(
    job: Any, crash: CrashController, stack: AirflowStack, point: str
) -> None:
    """The second try submits nothing and its XCom is that of an undisturbed run."""
    crash.on(point, "kill_task", task_id="job")
    one = job(released=True)
    assert one.ends()["try_number"] == 2
    assert len(one.requests("submit")) == 1
    assert stack.xcom("protocol", one.run, "job") == {"rows": 7}


def test_a_killed_supervisors_task_is_superseded(job: Any, crash: CrashController) -> None:
    """The orphan polls on beside the second try, writes nothing and cancels nothing."""
    crash.on("mid_poll", "kill_supervisor", task_id="job", hold=True)
    one = job()
    orphan = crash.wait("mid_poll", run_id=one.run, try_number=1)
    crash.wait("mid_poll", run_id=one.run, try_number=2)
    crash.release(orphan)
    one.gate.touch()
    assert one.ends()["try_number"] == 2
    assert len(one.started) == 1
    assert one.requests("cancel") == []


@pytest.mark.parametrize(
    "who",
    [
        "term_task",
        pytest.param(
            "term_supervisor",
            marks=pytest.mark.skipif(
                AIRFLOW >= (3, 4), reason="from 3.4 on the supervisor passes no SIGTERM on to its task"
            ),
        ),
    ],
)
def test_an_evicted_worker_keeps_its_job(
    job: Any, crash: CrashController, stack: AirflowStack, who: Any
) -> None:
    """Case 23: SIGTERM, as an eviction sends it, ends the try as up for retry; the next one reconnects."""
    crash.on("mid_poll", who, task_id="job")
    one = job()
    crash.wait("mid_poll", run_id=one.run, try_number=2)
    # The attempt ended by itself: a task that had to be killed would not have said so.
    assert f"job '{one.started[0]['job']}', generation 1 is kept" in stack.task_log(
        "protocol", one.run, "job", 1
    )
    one.gate.touch()
    assert one.ends()["try_number"] == 2
    assert len(one.started) == 1
    assert one.requests("cancel") == []


@pytest.mark.skipif(AIRFLOW < (3, 4), reason="up to 3.3 the supervisor passes SIGTERM on to its task")
def test_a_warm_shutdown_lets_the_task_see_its_job_to_the_end(job: Any, crash: CrashController) -> None:
    """Case 23 on 3.4: SIGTERM to the supervisor only tells it to take nothing new; one try, one job."""
    crash.on("mid_poll", "term_supervisor", task_id="job")
    one = job()
    seen = crash.wait("mid_poll", run_id=one.run)
    until("the task polls on after the signal", lambda: polls(crash, one.run) > 3)
    assert psutil.pid_exists(seen.ppid)
    one.gate.touch()
    assert one.ends()["try_number"] == 1
    assert len(one.requests("submit")) == 1
    assert one.requests("cancel") == []


@pytest.mark.parametrize("state", ["failed", "success"])
def test_a_user_who_ends_the_task_ends_the_job(
    job: Any, crash: CrashController, stack: AirflowStack, state: str
) -> None:
    """Case 24: marked failed or success while running: cancelled once."""
    one = job()
    crash.wait("mid_poll", run_id=one.run)
    stack.mark("protocol", one.run, "job", state)
    (entry,) = one.started
    until("the job is cancelled", lambda: one.status(entry) == "CANCELLED")
    assert len(one.requests("cancel")) == 1


def test_a_task_cleared_while_running_starts_afresh(
    job: Any, crash: CrashController, stack: AirflowStack
) -> None:
    """Case 24: the running job is cancelled, a second one is started and succeeds."""
    one = job()
    crash.wait("mid_poll", run_id=one.run)
    stack.clear("protocol", one.run, "job")
    until("a second job is started", lambda: len(one.started) == 2)
    one.gate.touch()
    one.ends()
    first, second = one.started
    assert (one.status(first), one.status(second)) == ("CANCELLED", "SUCCEEDED")
    assert len({entry["token"] for entry in one.started}) == 2


def test_a_task_cleared_after_success_runs_again_once(job: Any, stack: AirflowStack) -> None:
    """Airflow's own mixin would be green at once."""
    one = job(released=True)
    one.ends()
    stack.clear("protocol", one.run, "job")
    until("the second try is done", lambda: one.ends()["try_number"] == 2)
    assert len(one.started) == 2


def test_the_log_tells_what_was_decided(job: Any, crash: CrashController, stack: AirflowStack) -> None:
    """Job id, generation and reason, for whoever is on call."""
    crash.on("mid_poll", "kill_task", task_id="job")
    one = job()
    crash.wait("mid_poll", run_id=one.run, try_number=2)
    one.gate.touch()
    one.ends()
    log = stack.task_log("protocol", one.run, "job", 2)
    assert f"decided: Watch; job '{one.started[0]['job']}', generation 1" in log
    assert "the job on record is active" in log


def test_airflow_dags_test_runs_the_operator(job: Any, stack: AirflowStack, jobservice: JobService) -> None:
    """``airflow dags test`` has no scheduler and no supervisor process; the job runs all the same."""
    before = len(jobservice.requests("submit"))
    gate = job(released=True).gate
    conf = json.dumps({"service": jobservice.url, "gate": str(gate)})
    done = stack.cli("dags", "test", "protocol", "--conf", conf, env=stack.apart())
    assert "state=success" in done.stdout + done.stderr
    assert len(jobservice.requests("submit", created=True)) >= before + 1


def test_dag_test_runs_the_operator(stack: AirflowStack, jobservice: JobService, tmp_path: Path) -> None:
    """``dag.test()`` gives the operator a store, and the task its result."""
    gate = tmp_path / "gate"
    gate.touch()
    conf = {"service": jobservice.url, "gate": str(gate)}
    source = textwrap.dedent(DAG).replace('"protocol"', '"tested"').replace("0}):", "0}) as dag:")
    file = stack.add_dag(
        f"{source}\nif __name__ == '__main__':\n    print('state:', dag.test(run_conf={conf!r}).state)\n",
        "tested.py",
    )
    stack.wait_for_dag("tested")
    done = subprocess.run(
        [stack.python, str(file)], env=stack.apart(), capture_output=True, text=True, timeout=120, check=False
    )
    assert "state: success" in done.stdout, done.stdout + done.stderr
