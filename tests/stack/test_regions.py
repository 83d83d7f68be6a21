# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Mapped tasks, and from Airflow 3.4 on loops: each task instance and each pass has one job of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.stack import AirflowStack
from tests.stack.kills import until
from tests.stack.runs import AIRFLOW, Lab, Run

pytestmark = pytest.mark.stack

loops = pytest.mark.skipif(AIRFLOW < (3, 4), reason="loops are new in Airflow 3.4")

DAGS = """
    from datetime import timedelta

    from airflow.sdk import DAG, task_group
    from airflow_resumable.testing.local_job import LocalJobOperator

    GATED = "while [ ! -e '{{ params.gate }}' ]; do sleep 0.05; done; echo 7"
    ARGUMENTS = {
        "task_id": "job",
        "service_url": "{{ params.service }}",
        "poll_interval": 0.1,
        "retries": 2,
        "retry_delay": timedelta(seconds=1),
    }

    with DAG("regions_mapped", schedule=None, params={"service": "", "gate": ""}):
        commands = [["/bin/sh", "-c", GATED], ["/bin/sh", "-c", GATED]]
        LocalJobOperator.partial(**ARGUMENTS).expand(command=commands)

    with DAG("regions_loop", schedule=None, params={"service": "", "gate": ""}):

        @task_group
        def passes():
            LocalJobOperator(**ARGUMENTS, command=["/bin/sh", "-c", GATED])

        if hasattr(passes, "loop"):
            passes.loop(max_iterations=2)
"""


@pytest.fixture
def start(
    stack: AirflowStack, jobservice: JobService, crash: CrashController, tmp_path: Path
) -> Iterator[Callable[..., Run]]:
    """Make a run; it is triggered by the test, after its rules for the crash controller."""
    if not (stack.dags_folder / "regions.py").exists():
        stack.add_dag(DAGS, "regions.py")
    lab = Lab(stack, crash, jobservice, tmp_path)
    with ExitStack() as runs:

        def begin(dag: str, **more: str | bool) -> Run:
            stack.wait_for_dag(dag)
            return runs.enter_context(lab.run(dag, **more))  # type: ignore[arg-type]

        yield begin


def test_each_mapped_task_instance_keeps_its_own_job(start: Callable[..., Run]) -> None:
    """One of two workers is killed: its next try goes on with its own job, and the other one's runs on."""
    run = start("regions_mapped")
    run.on("mid_poll", "kill_both", map_index=1)
    run.trigger()
    run.reaches("mid_poll", try_number=2, map_index=1)
    run.gate.touch()

    assert [run.ends(map_index=index)["try_number"] for index in (0, 1)] == [1, 2]
    assert len(run.started) == 2
    assert len({entry["family"] for entry in run.started}) == 2
    assert run.cancels == 0
    assert {run.record(map_index=index)["external_id"] for index in (0, 1)} == {
        entry["job"] for entry in run.started
    }


def test_a_clear_of_one_mapped_task_instance_runs_that_one_again(start: Callable[..., Run]) -> None:
    """Cleared while running: its job is cancelled and replaced, and its sibling's goes on undisturbed."""
    run = start("regions_mapped")
    run.trigger()
    for index in (0, 1):
        run.reaches("mid_poll", map_index=index)
    first = run.record(map_index=1)["external_id"]

    run.api.clear(run.dag, run.run, run.task, 1)
    run.reaches("mid_poll", try_number=2, map_index=1)
    run.gate.touch()

    assert [run.ends(map_index=index)["try_number"] for index in (0, 1)] == [1, 2]
    states = {entry["job"]: run.status(number) for number, entry in enumerate(run.started)}
    assert states.pop(first) == "CANCELLED"
    assert list(states.values()) == ["SUCCEEDED", "SUCCEEDED"]
    assert run.cancels == 1


@loops
def test_each_pass_of_a_loop_has_one_job_of_its_own(start: Callable[..., Run]) -> None:
    """The first pass's worker is killed and its next try goes on; two passes are two jobs of two families."""
    run = start("regions_loop", task="passes.job", released=True)
    run.on("after_accept", "kill_both")
    run.trigger()
    until("the run has ended", lambda: run.api.run_state(run.dag, run.run) in ("success", "failed"))
    assert run.api.run_state(run.dag, run.run) == "success"
    assert len(run.started) == 2
    assert len({entry["family"] for entry in run.started}) == 2
