# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What happens to the job when its task is killed, stopped, ended or timed out, on a real Airflow.

With ``AIRFLOW_RESUMABLE_RECORD=<file>`` in the environment every outcome is written to that file, from
which ``make generate`` makes a table of the documentation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_resumable.testing.jobservice.process import JobService
from tests.stack.kills import until
from tests.stack.runs import AIRFLOW, Lab, Laboratory, Run, Together, selected

pytestmark = pytest.mark.stack

DAGS = """
    from datetime import timedelta

    from airflow.sdk import DAG
    from airflow_resumable.testing.local_job import LocalJobOperator

    GATED = "while [ ! -e '{{ params.gate }}' ]; do sleep 0.05; done; echo '{\\"rows\\": 7}'"
    SHORT = timedelta(seconds=3)
    ON_TIMEOUT, ON_THE_LAST = {"execution_timeout": SHORT}, {"execution_timeout": SHORT, "retries": 1}
    TASKS = {
        "stops": {},
        "stops_timeout": {**ON_TIMEOUT, "retries": 5},
        "stops_last_timeout": ON_THE_LAST,
        "stops_last": {"retries": 1},
        "stops_often": {"retries": 9},
        "stops_run_timeout": {},
        "stops_kept": {"resume_policy": {"on_user_stop": "keep", "on_clear": "reconnect"}},
        "stops_kept_last": {"resume_policy": {"on_final_failure": "keep"}, **ON_THE_LAST},
        "stops_cancelled": {"resume_policy": {"on_infrastructure_stop": "cancel"}},
        "stops_cancelled_timeout": {"resume_policy": {"on_timeout": "cancel"}, **ON_TIMEOUT},
        "stops_by_site": {},
    }

    for name, arguments in TASKS.items():
        with DAG(
            name,
            schedule=None,
            params={"service": "", "gate": ""},
            tags=["evictions cancel"] if name == "stops_by_site" else [],
            dagrun_timeout=timedelta(seconds=10) if name == "stops_run_timeout" else None,
        ) as dag:
            LocalJobOperator(
                task_id="job",
                service_url="{{ params.service }}",
                command=["/bin/sh", "-c", GATED],
                poll_interval=0.3,
                retry_delay=timedelta(seconds=1),
                **{"retries": 2, **arguments},
            )
        globals()[name] = dag
"""


@dataclass(frozen=True)
class Event:
    """Something that ends a try, and what must become of the job and the task.

    Args:
        title: What happens, as the documentation says it.
        act: Brings it about and returns once it has taken effect.
        job: ``kept`` or ``cancelled``: the job that was running.
        state: The task's state in the end.
        started: How many jobs were started in the end, 1 unless the next try or a clear starts another.
        dag: The Dag.
        policy: What is set other than by default, as the documentation says it.
        prepare: Makes rules before the run is triggered.
        deployment: ``busy_stack``, or ``site_stack``, which has a configuration and a cluster policy.
    """

    title: str
    act: Callable[[Run], None]
    job: str
    state: str
    started: int = 1
    dag: str = "stops"
    policy: str = ""
    prepare: Callable[[Run], None] = lambda run: None
    deployment: str = "busy_stack"


def _rule(action: str, **more: Any) -> Callable[[Run], None]:
    return lambda run: run.on("mid_poll", action, **more)


def _second_try(run: Run) -> None:
    run.reaches("mid_poll", 2)


def _polled_on(run: Run) -> None:
    # 3.4 calls the supervisor's SIGTERM a warm shutdown: the task goes on as if nothing had happened.
    if AIRFLOW >= (3, 4):
        run.reaches("mid_poll", 1, count=6)
    else:
        _second_try(run)


def _mark(state: str) -> Callable[[Run], None]:
    def act(run: Run) -> None:
        pid = run.reaches("mid_poll").pid
        run.api.mark(run.dag, run.run, run.task, state)
        _gone(run, pid)

    return act


def _gone(run: Run, pid: int) -> None:
    until("the task's process is gone", lambda: not Path(f"/proc/{pid}").exists())


def _clear(run: Run) -> None:
    pid = run.reaches("mid_poll").pid
    run.api.clear(run.dag, run.run, run.task)
    _gone(run, pid)
    _second_try(run)


def _ended(*states: str) -> Callable[[Run], None]:
    def act(run: Run) -> None:
        run.ends(*states)

    return act


def _timed_out_run(run: Run) -> None:
    pid = run.reaches("mid_poll").pid
    run.ends("skipped")
    _gone(run, pid)


def _api_down(run: Run) -> None:
    stack = run.lab.stack
    run.reaches("mid_poll")
    stack.kill("api-server")
    try:
        # 45 looks of the job at 0.3 s are longer than the deployment's heartbeat time-out, 12 s. After that
        # the scheduler of 3.4.0b2 dies: "duplicate key value violates ... task_instance_current_key".
        looks = 45 if AIRFLOW < (3, 4) else 12
        seen = len(run.requests("status"))
        until("the job is watched on", lambda: len(run.requests("status")) >= seen + looks)
    finally:
        stack.start("api-server")


EVENTS: dict[str, Event] = {
    "kill task": Event(
        "SIGKILL of the task's process", _second_try, "kept", "success", prepare=_rule("kill_task")
    ),
    "kill supervisor": Event(
        "SIGKILL of the task's supervisor", _second_try, "kept", "success", prepare=_rule("kill_supervisor")
    ),
    "term task": Event(
        "SIGTERM to the task's process", _second_try, "kept", "success", prepare=_rule("term_task")
    ),
    "term supervisor": Event(
        "SIGTERM to the task's supervisor (eviction, redeploy)",
        _polled_on,
        "kept",
        "success",
        prepare=_rule("term_supervisor"),
    ),
    "mark failed": Event("A user marks the running task failed", _mark("failed"), "cancelled", "failed"),
    "mark success": Event("A user marks the running task success", _mark("success"), "cancelled", "success"),
    "mark skipped": Event("A user marks the running task skipped", _mark("skipped"), "cancelled", "skipped"),
    "clear": Event("A user clears the running task", _clear, "cancelled", "success", 2),
    "execution_timeout": Event(
        "`execution_timeout`, tries left", _second_try, "kept", "success", dag="stops_timeout"
    ),
    "execution_timeout, last try": Event(
        "`execution_timeout` in the last try",
        _ended("failed"),
        "cancelled",
        "failed",
        dag="stops_last_timeout",
    ),
    "dagrun_timeout": Event(
        "`dagrun_timeout`", _timed_out_run, "cancelled", "skipped", dag="stops_run_timeout"
    ),
    "poll raises": Event(
        "Polling raises in the task's code, tries left",
        _second_try,
        "kept",
        "success",
        # The second time: the first is answered by a look at the job, which is alive.
        prepare=_rule("raise:a mistake in the poll loop", times=2),
    ),
    "poll raises, last try": Event(
        "Polling raises in the task's code in the last try",
        _ended("failed"),
        "cancelled",
        "failed",
        dag="stops_last",
        prepare=_rule("raise:a mistake in the poll loop", try_number=None, times=100),
    ),
    "api server down": Event(
        "The API server is down for a while, in mid poll",
        _api_down,
        "kept",
        "success",
        # A try that begins while the API server is down is soon up for the next one.
        dag="stops_often",
    ),
    "term task, cancel": Event(
        "SIGTERM to the task's process",
        _second_try,
        "cancelled",
        "success",
        2,
        dag="stops_cancelled",
        policy="`on_infrastructure_stop=cancel` on the operator",
        prepare=_rule("term_task"),
    ),
    "mark failed, keep": Event(
        "A user marks the running task failed",
        _mark("failed"),
        "kept",
        "failed",
        dag="stops_kept",
        policy="`on_user_stop=keep` on the operator",
    ),
    "clear, reconnect": Event(
        "A user clears the running task",
        _clear,
        "kept",
        "success",
        dag="stops_kept",
        policy="`on_clear=reconnect` on the operator",
    ),
    "execution_timeout, cancel": Event(
        "`execution_timeout`, tries left",
        _second_try,
        "cancelled",
        "success",
        2,
        dag="stops_cancelled_timeout",
        policy="`on_timeout=cancel` on the operator",
    ),
    "execution_timeout, last try, keep": Event(
        "`execution_timeout` in the last try",
        _ended("failed"),
        "kept",
        "failed",
        dag="stops_kept_last",
        policy="`on_final_failure=keep` on the operator",
    ),
    "mark failed, keep by configuration": Event(
        "A user marks the running task failed",
        _mark("failed"),
        "kept",
        "failed",
        policy="`[resumable] on_user_stop = keep`",
        deployment="site_stack",
    ),
    "term task, cancel by cluster policy": Event(
        "SIGTERM to the task's process",
        _second_try,
        "cancelled",
        "success",
        2,
        dag="stops_by_site",
        policy="`on_infrastructure_stop=cancel` by a cluster policy",
        prepare=_rule("term_task"),
        deployment="site_stack",
    ),
}
"""Every event of the table in the documentation; nothing else is in it."""

DISRUPTS = "api server down"
"""The event that everybody else on the same Airflow would notice."""


def happen(lab: Lab, name: str) -> dict[str, Any]:
    """Let an event happen to a run and return what became of job and task."""
    event = EVENTS[name]
    with lab.run(event.dag) as run:
        event.prepare(run)
        run.trigger()
        event.act(run)
        run.gate.touch()
        end = run.ends("success", "failed", "skipped")
        until("the first job has ended", lambda: run.status() in ("SUCCEEDED", "CANCELLED"))
        return {
            "title": event.title,
            "policy": event.policy,
            "job": "cancelled" if run.status() == "CANCELLED" else "kept",
            "state": end["state"],
            "started": len(run.started),
            "cancels": run.cancels,
        }


def record(name: str, outcome: dict[str, Any]) -> None:
    """Add an outcome to the file that the environment names, if it names one."""
    target = os.environ.get("AIRFLOW_RESUMABLE_RECORD")
    if not target:
        return
    file = Path(target)
    recorded = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"events": {}}
    events = {**recorded["events"], name: outcome}
    recorded = {
        "airflow": version("apache-airflow-core"),
        "events": {one: events[one] for one in EVENTS if one in events},
    }
    file.write_text(json.dumps(recorded, indent=2) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def labs(request: pytest.FixtureRequest) -> Laboratory:
    """The deployments with the Dags."""
    return Laboratory(request, "stops.py", DAGS, {event.dag for event in EVENTS.values()})


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, labs: Laboratory) -> Iterator[Together]:
    """Let all events happen whose tests are going to run, several at a time."""
    chosen = [name for name in selected(request, "name") if name != DISRUPTS]
    together = Together(
        labs, [(name, EVENTS[name].deployment, partial(happen, name=name)) for name in chosen]
    )
    yield together
    together.finish()


def _check(name: str, outcome: dict[str, Any]) -> None:
    event = EVENTS[name]
    assert (outcome["job"], outcome["state"], outcome["started"]) == (event.job, event.state, event.started)
    assert outcome["cancels"] == (event.job == "cancelled")
    record(name, outcome)


@pytest.mark.parametrize("name", [name for name in EVENTS if name != DISRUPTS])
def test_the_event_does_to_the_job_what_the_table_says(outcomes: Together, name: str) -> None:
    """Cases 23 to 27: the service's own log has the starts and the cancels."""
    _check(name, outcomes[name])


def test_an_api_server_that_is_down_for_a_while_costs_nothing(outcomes: Together, labs: Laboratory) -> None:
    """Case 29: the job is neither cancelled nor started twice."""
    outcomes.finish()
    _check(DISRUPTS, happen(labs(), DISRUPTS))


def test_a_task_whose_service_hangs_ends_before_the_supervisor_kills_it(
    labs: Laboratory, tmp_path: Path
) -> None:
    """Marked failed while the service takes connections and never answers: the task ends by itself."""
    lab = labs()
    with JobService(tmp_path / "service") as service, replace(lab, service=service).run("stops") as run:
        run.trigger()
        pid = run.reaches("mid_poll").pid
        process = psutil.Process(service.pid)
        process.suspend()
        try:
            run.api.mark(run.dag, run.run, run.task, "failed")
            _gone(run, pid)
        finally:
            process.resume()
        told = (lab.stack.home / "processes" / "scheduler.log").read_text(encoding="utf-8").splitlines()
        (exit_,) = [line for line in told if "Process exited" in line and f"pid={pid} " in f"{line} "]
        assert "signal_sent=SIGTERM" in exit_
        assert "NOT cancelled" in run.log(1)
