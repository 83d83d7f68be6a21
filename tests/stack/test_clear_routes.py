# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A clear by any route starts one job, and an automatic retry right after it starts none."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.stack.kills import until
from tests.stack.runs import Lab, Laboratory, Run, Together, selected

pytestmark = pytest.mark.stack

DAGS = """
    import json
    import os
    import time
    from datetime import datetime, timedelta
    from pathlib import Path

    from airflow.sdk import DAG, get_current_context, task
    from airflow_resumable.testing.local_job import LocalJobOperator

    GATED = "while [ ! -e '{{ params.gate }}' ]; do sleep 0.05; done; echo '{\\"rows\\": 7}'"
    UNTIL_MENDED = "if [ -e '{{ params.gate }}' ]; then echo 7; else exit 3; fi"
    NEVER_BY_ITSELF = {
        "schedule": "@daily", "catchup": False,
        "start_date": datetime(2020, 1, 1), "end_date": datetime(2020, 2, 1),
    }

    class ClearsTheStore(LocalJobOperator):
        def get_job_status(self, external_id, context):
            context["task_state_store"].set("mine", 1)
            context["task_state_store"].clear()
            return super().get_job_status(external_id, context)

    class PushFailsOnce(LocalJobOperator):
        def execute(self, context):
            super().execute(context)
            # Airflow refuses to push this as several outputs.
            self.multiple_outputs = context["ti"].try_number == 1
            return 7

    @task
    def hold():
        while not os.path.exists(get_current_context()["params"]["gate"] + "-held"):
            time.sleep(0.1)

    @task
    def listed():
        items = json.loads(Path(get_current_context()["params"]["gate"] + "-list").read_text())
        return [["/bin/echo", json.dumps(item)] for item in items]

    def job(operator=LocalJobOperator, **arguments):
        common = {
            "task_id": "job",
            "service_url": "{{ params.service }}",
            "poll_interval": 0.3,
            "retries": 2,
            "retry_delay": timedelta(seconds=1),
        }
        return operator, {**common, "command": ["/bin/sh", "-c", GATED], **arguments}

    OPERATORS = {
        "routes": job(),
        "routes_cli": job(),
        "routes_clears_the_store": job(ClearsTheStore),
        "routes_push_fails": job(PushFailsOnce),
        "routes_going_on": job(),
        "routes_mapped": job(),
        "routes_completed": job(),
        "routes_failed": job(command=["/bin/sh", "-c", UNTIL_MENDED], retries=0),
    }
    for name, (operator, arguments) in OPERATORS.items():
        dates = NEVER_BY_ITSELF if name in ("routes_completed", "routes_failed") else {"schedule": None}
        with DAG(name, params={"service": "", "gate": ""}, **dates) as dag:
            if name == "routes_mapped":
                del arguments["command"]
                operator.partial(**arguments).expand(command=listed())
            else:
                operator(**arguments)
            if name == "routes_going_on":
                hold()
        globals()[name] = dag
"""

EDITED = """
    from datetime import timedelta

    from airflow.sdk import DAG
    from airflow_resumable.testing.local_job import LocalJobOperator

    with DAG("routes_edited", schedule=None, params={{"service": "", "gate": ""}}):
        LocalJobOperator(
            task_id="job", service_url="{{{{ params.service }}}}", command=["/bin/echo", "7"],
            retries={retries}, retry_delay=timedelta(seconds=1),
        )
"""


def _crashing(run: Run, *tries: int) -> None:
    """Kill each of the tries once its job is on record; Airflow retries them by itself."""
    for number in tries:
        run.on("after_id", "kill_task", try_number=number)


def _finished_once(run: Run) -> None:
    """Run to success with an automatic retry in between."""
    _crashing(run, 1, 3)
    run.gate.touch()
    run.trigger()
    run.ends(try_number=2)
    assert len(run.started) == 1
    run.reported()


def _finished_again(run: Run, try_number: int = 4) -> None:
    run.ends(try_number=try_number)
    assert len(run.started) == 2


def rest_task(run: Run) -> None:
    """A REST clear of the task, which is the UI's."""
    _finished_once(run)
    run.api.clear(run.dag, run.run, run.task)
    _finished_again(run)


def rest_run(run: Run) -> None:
    """A REST clear of the whole run."""
    _finished_once(run)
    run.api.wait_for_run(run.dag, run.run)
    run.api.clear_run(run.dag, run.run)
    _finished_again(run)


def cli(run: Run) -> None:
    """``airflow tasks clear``, which knows no run: this Dag has one only."""
    _finished_once(run)
    run.api.wait_for_run(run.dag, run.run)
    run.lab.stack.cli("tasks", "clear", "--yes", run.dag)
    _finished_again(run)


def marked_failed_after_success(run: Run) -> None:
    """A success marked failed, then cleared."""
    _finished_once(run)
    run.api.wait_for_run(run.dag, run.run)
    run.api.mark(run.dag, run.run, run.task, "failed")
    run.api.clear(run.dag, run.run, run.task)
    _finished_again(run)


def marked_failed_while_running(run: Run) -> None:
    """A running task marked failed, then cleared: its job is cancelled once, at the mark."""
    _crashing(run, 2)
    run.trigger()
    run.reaches("mid_poll")
    run.api.mark(run.dag, run.run, run.task, "failed")
    until("the job is cancelled", lambda: run.status() == "CANCELLED")
    run.gate.touch()
    run.api.clear(run.dag, run.run, run.task)
    _finished_again(run, 3)
    assert run.cancels == 1


def while_running(run: Run) -> None:
    """A clear of the running task: its job is cancelled once, by whoever comes first."""
    _crashing(run, 2)
    run.trigger()
    run.reaches("mid_poll")
    run.api.clear(run.dag, run.run, run.task)
    run.reaches("after_id", 2)
    assert run.status() == "CANCELLED"
    run.gate.touch()
    _finished_again(run, 3)
    assert run.cancels == 1


def _backfill(run: Run, behavior: str) -> None:
    run.lab.stack.cli(
        *("backfill", "create", "--dag-id", run.dag, "--reprocess-behavior", behavior),
        *("--from-date", "2020-01-02", "--to-date", "2020-01-02"),
        *("--dag-run-conf", json.dumps(run.conf)),
    )


def backfill_completed(run: Run) -> None:
    """A backfill that reprocesses completed runs."""
    run.run = "backfill__2020-01-02T00:00:00+00:00"
    _crashing(run, 1, 3)
    run.gate.touch()
    _backfill(run, "none")
    until("the first try", lambda: bool(run.started))
    run.ends(try_number=2)
    run.api.wait_for_run(run.dag, run.run)
    _no_backfill_goes_on(run)
    _backfill(run, "completed")
    _finished_again(run)


def backfill_failed(run: Run) -> None:
    """A backfill that reprocesses failed runs; the Dag has no tries left, so only a new job can help."""
    run.run = "backfill__2020-01-02T00:00:00+00:00"
    _backfill(run, "none")
    until("the first try", lambda: bool(run.started))
    run.ends("failed")
    run.api.wait_for_run(run.dag, run.run)
    _no_backfill_goes_on(run)
    run.gate.touch()
    _backfill(run, "failed")
    _finished_again(run, 2)


def _no_backfill_goes_on(run: Run) -> None:
    until("the backfill is completed", lambda: all(one["completed_at"] for one in run.api.backfills(run.dag)))


def mapped_list_changed(run: Run) -> None:
    """Case 34: [a, b, c] becomes [x, a, b, c] and the run is cleared: each item is run, x too."""
    file = run.gate.with_name(run.gate.name + "-list")
    file.write_text(json.dumps(["a", "b", "c"]))
    run.on("after_id", "kill_task", map_index=0, try_number=1)
    run.on("after_id", "kill_task", map_index=0, try_number=3)
    run.trigger()
    run.api.wait_for_run(run.dag, run.run, timeout=90)
    assert _items(run, 3) == ["a", "b", "c"]
    assert len(run.started) == 3
    file.write_text(json.dumps(["x", "a", "b", "c"]))
    run.api.clear(run.dag, run.run)
    run.ends(map_index=0, try_number=4)
    run.api.wait_for_run(run.dag, run.run, timeout=90)
    assert _items(run, 4) == ["x", "a", "b", "c"]
    assert len(run.started) == 7


def _items(run: Run, number: int) -> list[Any]:
    return [run.api.xcom(run.dag, run.run, run.task, map_index=index) for index in range(number)]


def mapped_one(run: Run) -> None:
    """A clear of one of several mapped task instances."""
    run.gate.with_name(run.gate.name + "-list").write_text(json.dumps(["a", "b"]))
    run.on("after_id", "kill_task", map_index=1, try_number=2)
    run.trigger()
    run.api.wait_for_run(run.dag, run.run, timeout=90)
    run.api.clear(run.dag, run.run, task_ids=[[run.task, 1]])
    run.ends(map_index=1, try_number=3)
    jobs = [entry["client"].split("/")[-2] for entry in run.started]
    assert sorted(jobs) == ["0", "1", "1"]


def retries_edited(run: Run) -> None:
    """`retries` edited so that the clear comes out at the old max_tries."""
    _edit(run, retries=2)
    run.trigger()
    before = run.ends(try_number=1)
    run.reported()
    _edit(run, retries=1)
    _crashing(run, 2)
    run.api.clear(run.dag, run.run, run.task)
    after = run.ends(try_number=3)
    assert before["max_tries"] == after["max_tries"]
    assert len(run.started) == 2


def _edit(run: Run, retries: int) -> None:
    run.lab.stack.add_dag(EDITED.format(retries=retries), "routes_edited.py")
    run.lab.stack.wait_for_dag("routes_edited")


def record_deleted_under_a_running_task(run: Run) -> None:
    """The record is deleted over REST and the worker dies: the retry finds the job all the same."""

    def delete_and_kill(event: Any) -> None:
        run.api.delete_task_state(run.dag, run.run, run.task)
        event.signal(event.pid, signal.SIGKILL)

    run.on("mid_poll", delete_and_kill)
    _crashing(run, 3)
    run.trigger()
    run.reaches("mid_poll", 2)
    assert len(run.started) == 1
    run.gate.touch()
    run.ends(try_number=2)
    run.reported()
    run.api.clear(run.dag, run.run, run.task)
    _finished_again(run)


def record_deleted_after_success(run: Run) -> None:
    """The record is deleted over REST, as a clear on 3.4 does it, before the clear."""
    _finished_once(run)
    run.api.delete_task_state(run.dag, run.run, run.task)
    run.api.clear(run.dag, run.run, run.task)
    _finished_again(run)


def store_cleared_by_the_task(run: Run) -> None:
    """Case 36: the task's own code calls `clear()` on the store; the record survives it."""
    run.on("mid_poll", "kill_task")
    run.trigger()
    run.reaches("mid_poll", 2)
    assert run.record()["adoptions"] == 0
    run.gate.touch()
    run.ends(try_number=2)
    assert len(run.started) == 1
    assert set(run.api.task_states(run.dag, run.run, run.task)) == {
        "local_job_id",
        "resumable.local_job_id",
    }


def dropped_by_clear_on_success(run: Run) -> None:
    """The success has dropped the record while the run goes on; then the task is cleared."""
    _crashing(run, 1, 3)
    run.gate.touch()
    run.trigger()
    run.ends(try_number=2)
    until("the record is dropped", lambda: run.record() is None)
    assert run.api.run_state(run.dag, run.run) == "running"
    run.api.clear(run.dag, run.run, run.task)
    _finished_again(run)
    run.gate.with_name(run.gate.name + "-held").touch()


def push_failed(run: Run) -> None:
    """Case 35: `clear_on_success`, and the XCom push failed: the retry returns the result of the one job."""
    run.gate.touch()
    run.trigger()
    run.ends(try_number=2)
    assert "multiple_outputs" in run.log(1)
    assert len(run.started) == 1
    assert run.api.xcom(run.dag, run.run, run.task) == 7


ROUTES: dict[str, tuple[str, str, Callable[[Run], None]]] = {
    "REST, task": ("busy_stack", "routes", rest_task),
    "REST, run": ("busy_stack", "routes", rest_run),
    "CLI": ("busy_stack", "routes_cli", cli),
    "marked failed, then cleared": ("busy_stack", "routes", marked_failed_after_success),
    "marked failed while running, then cleared": ("busy_stack", "routes", marked_failed_while_running),
    "while running": ("busy_stack", "routes", while_running),
    "backfill, completed": ("busy_stack", "routes_completed", backfill_completed),
    "backfill, failed": ("busy_stack", "routes_failed", backfill_failed),
    "mapped, list changed": ("busy_stack", "routes_mapped", mapped_list_changed),
    "mapped, one of them": ("busy_stack", "routes_mapped", mapped_one),
    "retries edited": ("busy_stack", "routes_edited", retries_edited),
    "record deleted, retry, clear": ("busy_stack", "routes", record_deleted_under_a_running_task),
    "record deleted, clear": ("busy_stack", "routes", record_deleted_after_success),
    "store cleared by the task": ("busy_stack", "routes_clears_the_store", store_cleared_by_the_task),
    "clear_on_success, then cleared": ("site_stack", "routes_going_on", dropped_by_clear_on_success),
    "clear_on_success, push failed": ("site_stack", "routes_push_fails", push_failed),
}


@pytest.fixture(scope="module")
def routes(request: pytest.FixtureRequest) -> Iterator[Together]:
    """Take all routes whose tests are going to run, several at a time."""
    labs = Laboratory(request, "routes.py", DAGS, {dag for _, dag, _ in ROUTES.values()} - {"routes_edited"})

    def take(lab: Lab, name: str) -> None:
        _, dag, route = ROUTES[name]
        with lab.run(dag) as run:
            route(run)

    chosen = [
        (name, ROUTES[name][0], lambda lab, name=name: take(lab, name)) for name in selected(request, "name")
    ]
    together = Together(labs, chosen)
    yield together
    together.finish()


@pytest.mark.parametrize("name", ROUTES)
def test_a_clear_starts_one_job_and_a_retry_none(routes: Together, name: str) -> None:
    """Cases 33 to 36, by the service's own log; each route's function says what is special about it."""
    assert routes[name] is None
