# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Clears that discard the task's state, and with it the job's record, as Airflow 3.4 does by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.stack import AirflowStack
from tests.stack.runs import AIRFLOW, Lab, Run

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(AIRFLOW < (3, 4), reason="before Airflow 3.4 no clear discards the task state store"),
]

either = pytest.mark.parametrize("kept", [None, True], ids=["discarded", "kept"])

DAGS = """
    from datetime import timedelta

    from airflow.sdk import DAG
    from airflow_resumable.testing.local_job import LocalJobOperator

    GATED = "while [ ! -e '{{ params.gate }}' ]; do sleep 0.05; done; echo '{\\"rows\\": 7}'"

    for name, wait in ("discard", timedelta(seconds=1)), ("discard_waiting", timedelta(hours=1)):
        with DAG(name, schedule=None, params={"service": "", "gate": ""}) as dag:
            LocalJobOperator(
                task_id="job",
                service_url="{{ params.service }}",
                command=["/bin/sh", "-c", GATED],
                poll_interval=0.1,
                retries=2,
                retry_delay=wait,
            )
        globals()[name] = dag
"""


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory,
    template_db: Path,
    crash_controller: CrashController,
    jobservice: JobService,
) -> Iterator[Lab]:
    """An Airflow that knows which installation it is, and so which jobs of a family are its own."""
    env = {**crash_controller.env, "AIRFLOW__RESUMABLE__INSTALLATION_ID": "tests"}
    home = tmp_path_factory.mktemp("discard")
    with AirflowStack(home, env=env, template_db=template_db) as stack:
        stack.add_dag(DAGS, "discard.py")
        for dag in ("discard", "discard_waiting"):
            stack.wait_for_dag(dag)
        yield Lab(stack, crash_controller, jobservice, tmp_path_factory.mktemp("gates"))


@pytest.fixture
def start(lab: Lab, crash: CrashController) -> Iterator[Callable[..., Run]]:
    """Make a run; it is triggered by the test, after its rules for the crash controller."""
    with ExitStack() as runs:
        yield lambda dag="discard", **more: runs.enter_context(lab.run(dag, **more))


def one_after_the_other(run: Run) -> None:
    """Check that the run's two jobs have tokens of their own and that they were never alive together."""
    first, second = run.started
    assert first["token"] != second["token"]
    client = run.lab.service.client()
    old, new = (client.status(entry["job"]) for entry in (first, second))
    client.close()
    assert old["finished_at"] <= new["started_at"]


@either
def test_a_task_cleared_after_success_runs_again_once(start: Callable[..., Run], kept: bool | None) -> None:
    """Whether the record of the job that succeeded is there or not, another one is started."""
    run = start(released=True)
    run.on("before_intent", "hold", try_number=2)
    run.trigger()
    run.ends()
    run.reported()

    run.api.clear(run.dag, run.run, run.task, keep_task_state=kept)
    again = run.reaches("before_intent", try_number=2)
    assert (run.record() is not None) == bool(kept)
    run.lab.crash.release(again)

    run.ends(try_number=2)
    assert (run.status(0), run.status(1)) == ("SUCCEEDED", "SUCCEEDED")
    assert run.cancels == 0
    one_after_the_other(run)


@either
def test_a_task_cleared_while_running_starts_afresh(start: Callable[..., Run], kept: bool | None) -> None:
    """The task itself cancels its job, once, though its record may be gone under it."""
    run = start()
    run.trigger()
    run.reaches("mid_poll")

    run.api.clear(run.dag, run.run, run.task, keep_task_state=kept)
    run.reaches("mid_poll", try_number=2)
    run.gate.touch()

    run.ends(try_number=2)
    assert (run.status(0), run.status(1)) == ("CANCELLED", "SUCCEEDED")
    assert run.cancels == 1
    one_after_the_other(run)


@either
def test_the_job_of_a_dead_worker_is_cancelled_by_the_try_after_the_clear(
    start: Callable[..., Run], kept: bool | None
) -> None:
    """The task waits for its retry, which the clear makes a fresh start of.

    Without its record the job is found by its family.
    """
    run = start("discard_waiting")
    run.on("mid_poll", "kill_both")
    run.trigger()
    run.ends("up_for_retry")
    assert run.cancels == 0

    run.api.clear(run.dag, run.run, run.task, keep_task_state=kept)
    run.reaches("mid_poll", try_number=2)
    run.gate.touch()

    run.ends(try_number=2)
    assert (run.status(0), run.status(1)) == ("CANCELLED", "SUCCEEDED")
    assert run.cancels == 1
    one_after_the_other(run)
