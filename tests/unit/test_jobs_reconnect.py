# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""An attempt takes up what an earlier one left, whatever its try number says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.sdk import JobNotFound
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from tests.attempts import TaskInstance, requests, started, until_released


@pytest.mark.parametrize("point", ["after_accept", "between_key_writes", "after_id", "mid_poll"])
def test_a_worker_killed_anywhere_after_the_accept_leaves_one_job(
    service: JobService, instance: TaskInstance, tmp_path: Path, point: str
) -> None:
    """Case 1: the attempt is killed with SIGKILL, the next one goes on with the same job."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed(point)
    gate.touch()
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1
    assert requests(service, "cancel") == []


@pytest.mark.parametrize("point", ["before_result", "before_outcome", "after_outcome", "before_return"])
def test_a_worker_killed_between_success_and_return_hands_on_the_result(
    service: JobService, instance: TaskInstance, point: str
) -> None:
    """Once the job has succeeded, the next attempt returns its result and submits nothing."""
    instance.attempt_killed(point)
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(requests(service, "submit")) == 1
    assert instance.record["phase"] == "succeeded"


@pytest.mark.parametrize("try_number", [1, 2])
def test_the_same_try_number_reconnects_too(
    service: JobService, instance: TaskInstance, tmp_path: Path, try_number: int
) -> None:
    """Case 2: the scheduler may run a task again under its old try number."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("mid_poll")
    gate.touch()
    instance.attempt(try_number=try_number)
    assert len(started(service)) == 1


def test_a_task_without_retries_reconnects_when_it_is_run_again(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Case 2, with retries=0: nothing hangs on the number of tries."""
    gate = tmp_path / "gate"
    instance.command, instance.retries, instance.max_tries = until_released(gate), 0, 0
    with pytest.warns(UserWarning, match="retries=0"):
        operator = instance.operator()
    instance.attempt_killed("mid_poll")
    gate.touch()
    operator.execute(instance.context(operator, 1))
    assert len(started(service)) == 1


def test_a_reconnecting_attempt_makes_no_submit_call(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Case 3: a service that allows one concurrent run hears nothing of a second one."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("mid_poll")
    before = len(requests(service, "submit"))
    gate.touch()
    instance.attempt(try_number=2)
    assert (before, len(requests(service, "submit"))) == (1, 1)


def test_a_job_that_finished_while_nobody_watched_is_returned(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Case 16: no worker was alive when the job ended; the result is that of an undisturbed run."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("mid_poll")
    gate.touch()
    service.client().wait(instance.record["external_id"])
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(requests(service, "submit")) == 1
    assert instance.record["phase"] == "succeeded"


def test_a_lost_record_is_made_good_by_a_search_for_the_family(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Without record and key, a second try looks for its jobs before it submits one."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("mid_poll")
    instance.store.clear()
    gate.touch()
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1
    assert instance.record["adoptions"] == 1


def test_a_job_that_the_stock_operator_started_is_taken_over(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """A run may move from Airflow's own mixin to ours while its job is running."""
    gate = tmp_path / "gate"
    job = service.client().submit(until_released(gate))
    instance.store.set("local_job_id", job["id"])
    gate.touch()
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert instance.record["ids"] == [job["id"]]
    assert len(started(service)) == 1


def test_the_stock_operator_finds_our_job_under_its_own_key(instance: TaskInstance) -> None:
    """A run may move back to Airflow's own mixin: the bare id lies where that looks for it."""
    instance.attempt()
    assert instance.store.get("local_job_id") == instance.record["external_id"]


def test_another_run_of_the_same_task_is_never_taken(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Case 17: yesterday's job of the same task is not adopted, even without any record."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("mid_poll")
    today = TaskInstance(service.url, tmp_path / "today", instance.command, run_id="today")
    gate.touch()
    today.attempt(try_number=2)
    assert len(started(service)) == 2


def test_a_changed_job_is_reconnected_to_and_said(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """A command edited between two tries does not start a second job unless on_change says so."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("mid_poll")
    gate.touch()
    instance.command = ["/bin/true"]
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1


def test_a_changed_job_is_replaced_when_the_policy_says_so(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """on_change=resubmit cancels the old job, waits until it is gone and starts the changed one."""
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed("mid_poll")
    instance.command, instance.policy = ["/bin/echo", "5"], {"on_change": "resubmit"}
    assert instance.attempt(try_number=2) == 5
    first, second = started(service)
    assert service.client().status(first["job"])["status"] == "CANCELLED"
    assert first["job"] != second["job"]


def test_a_worker_whose_clock_runs_ahead_does_not_lock_the_task(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The record claims a start an hour from now; the same try, run again, takes the job over."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("mid_poll")
    record = instance.record
    record["owner"]["started_at"] = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    instance.store.set("resumable.local_job_id", record)
    gate.touch()
    assert instance.attempt(try_number=1) == {"rows": 7}
    assert len(started(service)) == 1


def test_a_status_that_is_no_text_is_recorded_as_text(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """A service that answers with numbers or an enum is asked about them, and the record stays readable."""

    class Numbers(LocalJobOperator):
        def get_job_status(self, external_id: Any, context: Any) -> Any:
            return ["RUNNING", "SUCCEEDED"].index(super().get_job_status(external_id, context))

        def is_job_active(self, status: Any) -> bool:
            return bool(status == 0)

        def is_job_succeeded(self, status: Any) -> bool:
            return bool(status == 1)

        def get_job_uid(self, external_id: Any, context: Any) -> Any:
            return 12345

    instance.operator_class = Numbers
    assert instance.attempt() == {"rows": 7}
    assert (instance.record["last_status"], instance.record["uid"]) == ("1", "12345")


def test_one_not_found_is_not_believed(service: JobService, instance: TaskInstance) -> None:
    """A service's reads may lag behind its writes: the job is looked for again before it counts as lost."""

    class Lags(LocalJobOperator):
        looks = 0

        def get_job_status(self, external_id: Any, context: Any) -> str:
            Lags.looks += 1
            if Lags.looks == 1:
                raise JobNotFound(external_id)
            return super().get_job_status(external_id, context)

    instance.operator_class = Lags
    assert instance.attempt() == {"rows": 7}
    assert len(started(service)) == 1
