# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Attempts that live on beside their successors: stopped and woken late, orphaned, or delivered twice."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.stack.kills import until
from tests.stack.runs import AIRFLOW, Lab, Laboratory, Run, Together, selected

pytestmark = pytest.mark.stack

DAGS = """
    from datetime import timedelta

    from airflow.sdk import DAG
    from airflow_resumable.testing.local_job import LocalJobOperator

    GATED = "while [ ! -e '{{ params.gate }}' ]; do sleep 0.05; done; echo '{\\"rows\\": 7}'"

    with DAG("fencing", schedule=None, params={"service": "", "gate": ""}):
        LocalJobOperator(
            task_id="job",
            service_url="{{ params.service }}",
            command=["/bin/sh", "-c", GATED],
            poll_interval=0.3,
            retries=2,
            retry_delay=timedelta(seconds=1),
        )
"""

# What the LocalExecutor hands to the supervisor, made once more: a broker that delivers a message twice.
WORKLOAD = """
import sys
from airflow.executors import workloads
from airflow.executors.local_executor import LocalExecutor
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

with create_session() as session:
    ti = session.scalars(select(TaskInstance).where(TaskInstance.run_id == sys.argv[1])).one()
    workload = workloads.ExecuteTask.make(ti, generator=LocalExecutor().jwt_generator)
    print("workload:", workload.model_dump_json(), sep="")
"""


def _gone(event: Any) -> None:
    until("the first try's process is gone", lambda: not _alive(event), timeout=90)


def _alive(event: Any) -> bool:
    try:
        process = psutil.Process(event.pid)
        same = process.create_time() == event.started[event.pid]
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _ended_by_the_second_try(run: Run) -> None:
    run.gate.touch()
    run.ends(try_number=2)
    run.reported()
    assert len(run.started) == 1
    assert run.cancels == 0
    assert run.record()["owner"]["try_number"] == 2
    assert run.api.xcom(run.dag, run.run, run.task) == {"rows": 7}


def _paused_at(point: str) -> Callable[[Run], None]:
    def fence(run: Run) -> None:
        run.on(point, "stop_both")
        run.trigger()
        paused = run.reaches(point)
        run.reaches("mid_poll", 2)
        run.lab.crash.resume(paused)
        _gone(paused)
        _ended_by_the_second_try(run)
        # A try stopped right before its submit asks the service once more, which knows the token.
        late = len(run.requests("submit")) - 1
        assert late <= (point == "after_intent")

    return fence


def woken_before_its_supervisor(run: Run) -> None:
    """The late try sees the job's end and wants to write it down, after the second one has."""
    run.on("mid_poll", "stop_both")
    run.trigger()
    paused = run.reaches("mid_poll")
    run.reaches("mid_poll", 2)
    paused.signal(paused.pid, signal.SIGCONT)
    run.gate.touch()
    run.reaches("before_outcome", 1)
    run.ends(try_number=2)
    run.reported()
    record = run.record()
    run.lab.crash.resume(paused)
    _gone(paused)
    _ended_by_the_second_try(run)
    assert run.record() == record


def orphaned(run: Run) -> None:
    """The task outlives its supervisor and polls the job to its end beside the second try."""
    run.on("mid_poll", "kill_supervisor")
    run.trigger()
    orphan = run.reaches("mid_poll")
    run.reaches("mid_poll", 2)
    _ended_by_the_second_try(run)
    _gone(orphan)
    assert run.cancels == 0


def _cleared_while(action: str, *, is_lost: bool) -> Callable[[Run], None]:
    def fence(run: Run) -> None:
        run.on("mid_poll", action)
        run.trigger()
        paused = run.reaches("mid_poll")
        first = run.api.task_instance(run.dag, run.run, run.task)
        # On 3.4 a clear discards the record unless told not to, which tests/stack/test_discard.py is about.
        kept = True if AIRFLOW >= (3, 4) else None
        run.api.clear(run.dag, run.run, run.task, keep_task_state=kept)
        until("the try has another id", lambda: _id_of(run) != first["id"])
        run.reaches("mid_poll", 2)
        run.lab.crash.resume(paused)
        _gone(paused)
        run.gate.touch()
        end = run.ends(try_number=2)
        assert (end["max_tries"] == first["max_tries"]) is is_lost
        if is_lost:
            assert (len(run.started), run.cancels) == (1, 0)
        else:
            assert (len(run.started), run.cancels) == (2, 1)
            assert (run.status(0), run.status(1)) == ("CANCELLED", "SUCCEEDED")

    return fence


def _id_of(run: Run) -> str:
    return str(run.api.task_instance(run.dag, run.run, run.task)["id"])


def delivered_twice(run: Run) -> None:
    """The same workload is run by a second supervisor while the first one's task polls the job."""
    run.trigger()
    first = run.reaches("mid_poll")
    stack = run.lab.stack

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [stack.python, *arguments],
            env=stack.env,
            cwd=stack.home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    made = python("-c", WORKLOAD, run.run)
    (workload,) = [line[9:] for line in made.stdout.splitlines() if line.startswith("workload:")]
    assert json.loads(workload)["ti"]["try_number"] == 1
    again = python("-m", "airflow.sdk.execution_time.execute_workload", "--json-string", workload)
    # The API server lets one supervisor start a try; the other's task is never run.
    assert "TI was not in a state where it could be marked as running" in again.stdout + again.stderr
    assert _alive(first)
    run.gate.touch()
    run.ends(try_number=1)
    assert {event.pid for event in run.lab.crash.events if event.run_id == run.run} == {first.pid}
    assert (len(run.requests("submit")), run.cancels) == (1, 0)


FENCES: dict[str, Callable[[Run], None]] = {
    "paused in mid poll": _paused_at("mid_poll"),
    "paused before the submit": _paused_at("after_intent"),
    "paused before the id is on record": _paused_at("after_accept"),
    "woken before its supervisor": woken_before_its_supervisor,
    "orphaned": orphaned,
    # A supervisor that lives ends its task and reports that to the executor: so the scheduler knows.
    "cleared while the task is stopped": _cleared_while("stop_task", is_lost=False),
    # Up to 3.3 a restarting task without a heartbeat is one that has failed, up for its next try: nothing
    # tells that there was a clear, so the job goes on.
    "cleared while the supervisor is stopped too": _cleared_while("stop_both", is_lost=AIRFLOW < (3, 4)),
    "delivered twice": delivered_twice,
}
ENDS_THE_SCHEDULER = tuple(name for name in FENCES if name not in ("orphaned", "delivered twice"))
"""Not on 3.4.0b2, where nothing could be tested after it."""


@pytest.fixture(scope="module")
def fences(request: pytest.FixtureRequest) -> Iterator[Together]:
    """Take all of them whose tests are going to run, several at a time."""
    labs = Laboratory(request, "fencing.py", DAGS, ["fencing"])

    def take(lab: Lab, name: str) -> None:
        with lab.run("fencing") as run:
            FENCES[name](run)

    names = [name for name in selected(request, "name") if AIRFLOW < (3, 4) or name not in ENDS_THE_SCHEDULER]
    chosen = [(name, "busy_stack", lambda lab, name=name: take(lab, name)) for name in names]
    together = Together(labs, chosen)
    yield together
    together.finish()


@pytest.mark.parametrize("name", FENCES)
def test_an_attempt_that_was_replaced_neither_submits_nor_writes_nor_cancels(
    fences: Together, name: str
) -> None:
    """Case 28 and its kind, by the service's own log and the record that is left."""
    if name in ENDS_THE_SCHEDULER and AIRFLOW >= (3, 4):
        pytest.skip(
            "Airflow 3.4.0b2's scheduler dies when it purges a restarting task without heartbeats: a "
            "duplicate key in task_instance_current_key"
        )
    assert fences[name] is None
