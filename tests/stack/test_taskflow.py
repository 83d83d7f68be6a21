# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`resumable_job` in a `@task` function under a real Airflow: killed, evicted, ended and cleared."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from airflow_resumable.testing.crash import Event
from tests.stack.kills import until
from tests.stack.runs import Lab, Laboratory, Run, Together, selected

pytestmark = pytest.mark.stack

DAGS = """
    from datetime import timedelta

    from airflow.sdk import DAG, get_current_context, task
    from airflow_resumable.sdk import ExternalJob, FoundJob, SubmitWindow, resumable_job
    from airflow_resumable.testing.jobservice.client import JobServiceClient

    class Job(ExternalJob):
        submit_window = SubmitWindow.CLOSED
        poll_interval = 0.3

        def __init__(self, key, name, gate=None):
            context = get_current_context()
            params, ti = context["params"], context["ti"]
            self.external_id_key = key
            waits = f"while [ ! -e '{params['gate']}' ]; do sleep 0.05; done; " if gate else ""
            self.command = ["/bin/sh", "-c", f"{waits}echo '\\"{name}\\"'"]
            who = f"{ti.dag_id}/{ti.run_id}/{ti.task_id}/{ti.map_index}/{ti.try_number}"
            self._client = JobServiceClient(params["service"], client_name=who)

        def submit_job(self, context):
            marks = {"token": self.idempotency_token, "family": self.job_family}
            return self._client.submit(self.command, **marks)["id"]

        def get_job_status(self, external_id, context):
            return self._client.status(external_id)["status"]

        def is_job_active(self, status):
            return status in ("QUEUED", "RUNNING")

        def is_job_stopping(self, status):
            return status == "STOPPING"

        def is_job_succeeded(self, status):
            return status == "SUCCEEDED"

        def is_job_failed(self, status):
            return status in ("FAILED", "CANCELLED")

        def get_job_result(self, external_id, context):
            return self._client.status(external_id)["result"]

        def find_job_by_token(self, token, since, context):
            found = self._client.find(token=token, since=since.timestamp())
            return [FoundJob(job["id"], job["status"], job["token"]) for job in found]

        def find_jobs_by_family(self, family, since, context):
            found = self._client.find(family=family, since=since.timestamp())
            return [FoundJob(job["id"], job["status"], job["token"]) for job in found]

        def cancel_job(self, external_id, context):
            self._client.cancel(external_id)

    with DAG("function", schedule=None, params={"service": "", "gate": ""}):
        @task(retries=2, retry_delay=timedelta(seconds=1))
        def job():
            return resumable_job(Job("only", "one", gate=True))
        job()

    with DAG("function_of_two", schedule=None, params={"service": "", "gate": ""}):
        @task(task_id="job", retries=2, retry_delay=timedelta(seconds=1))
        def two():
            return [resumable_job(Job("first", "one")), resumable_job(Job("second", "two", gate=True))]
        two()
"""


def _interrupted(action: str) -> Callable[[Run], None]:
    def happen(run: Run) -> None:
        run.on("mid_poll", action)
        run.trigger()
        run.reaches("mid_poll", 2)
        run.gate.touch()
        run.ends(try_number=2)
        assert (len(run.started), run.cancels) == (1, 0)
        assert run.api.xcom(run.dag, run.run, run.task) == "one"

    return happen


def marked_failed(run: Run) -> None:
    """A user marks the running function failed."""
    run.trigger()
    run.reaches("mid_poll")
    run.api.mark(run.dag, run.run, run.task, "failed")
    until("the job is cancelled", lambda: run.status() == "CANCELLED")
    run.ends("failed")
    assert (len(run.started), run.cancels) == (1, 1)


def cleared_after_success(run: Run) -> None:
    """A user clears the function, and the first try after it dies."""
    run.on("after_id", "kill_task", try_number=2)
    run.gate.touch()
    run.trigger()
    run.ends(try_number=1)
    run.api.clear(run.dag, run.run, run.task)
    run.ends(try_number=3)
    assert (len(run.started), run.cancels) == (2, 0)


def _kill_in_the_second(run: Run) -> Callable[[Event], None]:
    def kill(event: Event) -> None:
        # The first job may be seen at work too.
        if len(run.started) == 2:
            event.signal(event.pid, signal.SIGKILL)

    return kill


def two_jobs(run: Run) -> None:
    """The worker dies in the second job: neither is started again; a clear starts both."""
    run.on("mid_poll", _kill_in_the_second(run), try_number=1, times=100)
    run.trigger()
    run.reaches("mid_poll", 2)
    assert len(run.started) == 2
    run.gate.touch()
    run.ends(try_number=2)
    assert (len(run.started), run.cancels) == (2, 0)
    assert run.api.xcom(run.dag, run.run, run.task) == ["one", "two"]
    run.api.clear(run.dag, run.run, run.task)
    run.ends(try_number=3)
    assert (len(run.started), run.cancels) == (4, 0)


def two_jobs_marked_failed(run: Run) -> None:
    """A user marks the function failed while its second job runs: that one is cancelled."""
    run.trigger()
    until("the second job is started", lambda: len(run.started) == 2)
    run.reaches("mid_poll")
    run.api.mark(run.dag, run.run, run.task, "failed")
    until("the second job is cancelled", lambda: run.status(1) == "CANCELLED")
    assert run.status(0) == "SUCCEEDED"
    assert run.cancels == 1


HAPPENINGS: dict[str, tuple[str, Callable[[Run], None]]] = {
    "SIGKILL": ("function", _interrupted("kill_task")),
    "SIGTERM": ("function", _interrupted("term_task")),
    "marked failed": ("function", marked_failed),
    "cleared after success": ("function", cleared_after_success),
    "two jobs": ("function_of_two", two_jobs),
    "two jobs, marked failed": ("function_of_two", two_jobs_marked_failed),
}


@pytest.fixture(scope="module")
def happenings(request: pytest.FixtureRequest) -> Iterator[Together]:
    """Let all of them happen whose tests are going to run, several at a time."""
    labs = Laboratory(request, "functions.py", DAGS, ["function", "function_of_two"])

    def take(lab: Lab, name: str) -> None:
        dag, happening = HAPPENINGS[name]
        with lab.run(dag) as run:
            happening(run)

    chosen = [
        (name, "busy_stack", lambda lab, name=name: take(lab, name)) for name in selected(request, "name")
    ]
    together = Together(labs, chosen)
    yield together
    together.finish()


@pytest.mark.parametrize("name", HAPPENINGS)
def test_a_functions_job_fares_as_an_operators(happenings: Together, name: str) -> None:
    """Jobs started and cancels asked for, by the service's own log."""
    assert happenings[name] is None
