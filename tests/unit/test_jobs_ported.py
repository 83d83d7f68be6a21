# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""An operator written for Airflow's own mixin works on ours by changing one import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator
from airflow.sdk import ResumableJobMixin as AirflowMixin
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.sdk import JobFailed, ResumableJobMixin, StatusBudgetExhausted, SubmitWindow
from airflow_resumable.testing.memory_store import InMemoryTaskStateStore
from tests.attempts import TaskInstance


class Service:
    """What the ported operator talks to: jobs by number, and a script of what polling raises."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.poll_errors: Iterator[Exception] = iter(())
        self.polls = 0


def ported(mixin: Any, service: Service) -> Any:
    """Return an operator with the six methods only, on either mixin."""

    class Operator(mixin, BaseOperator):  # type: ignore[misc]
        external_id_key = "ported_id"

        def execute(self, context: Any) -> Any:
            return self.execute_resumable(context)

        def submit_job(self, context: Any) -> str:
            external_id = f"job-{len(service.jobs)}"
            service.jobs[external_id] = "RUNNING"
            return external_id

        def get_job_status(self, external_id: Any, context: Any) -> str:
            return service.jobs[external_id]

        def is_job_active(self, status: str) -> bool:
            return status == "RUNNING"

        def is_job_succeeded(self, status: str) -> bool:
            return status == "DONE"

        def poll_until_complete(self, external_id: Any, context: Any) -> None:
            service.polls += 1
            for error in service.poll_errors:
                raise error
            if service.jobs[external_id] == "RUNNING":
                service.jobs[external_id] = "DONE"
            if service.jobs[external_id] != "DONE":
                raise AirflowException(f"the job ended as {service.jobs[external_id]}")

        def get_job_result(self, external_id: Any, context: Any) -> Any:
            return {"id": external_id}

    return Operator(task_id="task", retries=2)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Run an operator as one attempt with a store that lasts for the test."""
    instance = TaskInstance("", tmp_path / "unused", [])
    store = InMemoryTaskStateStore()

    def run(operator: Any, try_number: int = 1) -> Any:
        return operator.execute(instance.context(operator, try_number, store))

    run.store = store  # type: ignore[attr-defined]
    return run


@pytest.mark.parametrize("mixin", [AirflowMixin, ResumableJobMixin])
def test_the_same_class_body_gives_the_same_result(run: Any, mixin: Any) -> None:
    """Undisturbed, nobody can tell the two mixins apart."""
    service = Service()
    assert run(ported(mixin, service)) == {"id": "job-0"}
    assert run.store.peek("ported_id") == "job-0"
    assert service.jobs == {"job-0": "DONE"}


def test_its_window_is_open_and_it_can_do_nothing_more(run: Any) -> None:
    """What the operator doesn't define is not claimed."""
    can = ported(ResumableJobMixin, Service()).resumable_capabilities()
    assert can.submit_window is SubmitWindow.OPEN
    assert [can.find_by_token, can.find_by_family, can.cancel, can.tells_failed] == [False] * 4


def test_a_poll_loop_that_gives_up_is_not_believed_while_the_job_runs(run: Any) -> None:
    """A provider's loop that raises after three 503s fails the task on the stock mixin; here it goes on."""
    stock, ours = Service(), Service()
    for service in (stock, ours):
        service.poll_errors = iter([AirflowException("503 three times"), ConnectionError("reset")])
    with pytest.raises(AirflowException, match="503"):
        run(ported(AirflowMixin, stock))
    run.store.clear()
    assert run(ported(ResumableJobMixin, ours)) == {"id": "job-0"}
    assert ours.polls == 3
    assert len(ours.jobs) == 1


def test_a_poll_loop_that_never_holds_uses_up_the_budget(run: Any) -> None:
    """The attempt fails, the job is left alone, the next try reconnects."""
    service = Service()
    service.poll_errors = (AirflowException("503") for _ in range(10_000))
    operator = ported(ResumableJobMixin, service)
    operator.resume_policy = type(operator.resume_policy)(status_error_budget=0.3)
    with pytest.raises(StatusBudgetExhausted, match="left alone"):
        run(operator)
    service.poll_errors = iter(())
    assert run(ported(ResumableJobMixin, service), 2) == {"id": "job-0"}
    assert len(service.jobs) == 1


def test_the_operators_own_exception_is_passed_on_when_its_job_failed(run: Any) -> None:
    """What is neither active nor succeeded has failed, as on Airflow's own mixin."""
    service = Service()
    operator = ported(ResumableJobMixin, service)
    submit = operator.submit_job

    def submit_a_failing_job(context: Any) -> str:
        external_id: str = submit(context)
        service.jobs[external_id] = "EXPLODED"
        return external_id

    operator.submit_job = submit_a_failing_job
    with pytest.raises(AirflowException, match="the job ended as EXPLODED"):
        run(operator)
    assert run.store.peek("resumable.ported_id")["phase"] == "failed"
    assert run(ported(ResumableJobMixin, service), 2) == {"id": "job-1"}


def test_a_poll_loop_that_returns_though_the_job_failed_is_no_success(run: Any) -> None:
    """The task is success only if the service says that the job succeeded."""
    service = Service()
    operator = ported(ResumableJobMixin, service)

    def return_at_once(external_id: Any, context: Any) -> None:
        service.jobs[external_id] = "EXPLODED"

    operator.poll_until_complete = return_at_once
    with pytest.raises(JobFailed, match="EXPLODED"):
        run(operator)


def test_a_falsy_id_is_reconnected_to(run: Any) -> None:
    """Airflow's own mixin takes the id 0 for "no id"; ours does not."""
    service = Service()
    run.store.set("ported_id", 0)
    service.jobs[0] = "RUNNING"  # type: ignore[index]
    assert run(ported(ResumableJobMixin, service), 2) == {"id": 0}
    assert len(service.jobs) == 1


def test_the_result_of_a_reconnected_job_is_that_of_an_undisturbed_one(run: Any) -> None:
    """Airflow's own mixin returns what the poll loop returns, None here, after a reconnect."""
    service = Service()
    service.jobs["job-0"] = "RUNNING"
    run.store.set("ported_id", "job-0")
    assert run(ported(AirflowMixin, service), 2) is None
    service.jobs["job-0"] = "RUNNING"
    assert run(ported(ResumableJobMixin, service), 2) == {"id": "job-0"}
