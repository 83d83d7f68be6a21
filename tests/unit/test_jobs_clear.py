# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A user's clear starts afresh, once, and only when what ran before is gone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from airflow_resumable.integration.listener import on_task_instance_success
from airflow_resumable.sdk import JobNotCancelled
from airflow_resumable.testing.jobservice.process import JobService
from tests.attempts import RUN_STARTED, TaskInstance, requests, started, until_released


def test_a_task_cleared_after_success_runs_again_once(service: JobService, instance: TaskInstance) -> None:
    """Airflow raises max_tries at a clear; the recorded success does not count any more."""
    instance.attempt()
    instance.max_tries = 3
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert instance.attempt(try_number=3) == {"rows": 7}
    assert len(started(service)) == 2
    assert requests(service, "cancel") == []


def test_a_run_cleared_after_its_end_gets_a_new_family_and_runs_again(
    service: JobService, instance: TaskInstance
) -> None:
    """Without an installation id the family holds the run's start date, which such a clear renews."""
    instance.attempt()
    instance.max_tries, instance.run_started = 3, RUN_STARTED + timedelta(hours=1)
    assert instance.attempt(try_number=2) == {"rows": 7}
    first, second = started(service)
    assert first["family"] != second["family"]


def test_a_job_that_was_alive_at_the_clear_is_cancelled_before_the_next_starts(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """At no moment are two jobs of one task instance alive."""
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed("mid_poll")
    instance.max_tries, instance.command = 3, ["/bin/echo", "5"]
    assert instance.attempt(try_number=2) == 5
    first, second = started(service)
    old = service.client().status(first["job"])
    assert old["status"] == "CANCELLED"
    assert old["finished_at"] <= service.client().status(second["job"])["started_at"]
    assert len(requests(service, "cancel")) == 1


def test_a_job_started_by_a_crashed_submit_is_found_and_cancelled_at_the_clear(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The record holds an intent only; the job is found by its token."""
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed("after_accept")
    instance.max_tries, instance.command = 3, ["/bin/echo", "5"]
    assert instance.attempt(try_number=2) == 5
    first, _ = started(service)
    assert service.client().status(first["job"])["status"] == "CANCELLED"


def test_a_refused_cancel_fails_the_attempt_rather_than_starting_a_second_job(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The error names the job and what to do."""
    instance.command, instance.policy = until_released(tmp_path / "never"), {"cancel_timeout": 0.2}
    instance.attempt_killed("mid_poll")
    service.client().add_fault("cancel", "refuse_cancel")
    instance.max_tries = 3
    with pytest.raises(JobNotCancelled, match=r"job 'job-\d+' .*clear the task again"):
        instance.attempt(try_number=2)
    assert len(requests(service, "submit")) == 1


def test_a_slow_cancel_is_waited_for(service: JobService, instance: TaskInstance, tmp_path: Path) -> None:
    """The next generation starts when the service says that the old job is gone."""
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed("mid_poll")
    service.client().add_fault("cancel", "slow_stop", seconds=0.5)
    instance.max_tries, instance.command = 3, ["/bin/echo", "5"]
    assert instance.attempt(try_number=2) == 5
    assert len(started(service)) == 2


def test_on_clear_reconnect_goes_on_with_the_job(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The policy keeps a running job over a clear."""
    gate = tmp_path / "gate"
    instance.command, instance.policy = until_released(gate), {"on_clear": "reconnect"}
    instance.attempt_killed("mid_poll")
    instance.max_tries = 3
    gate.touch()
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1


def test_retries_after_a_clear_reconnect_again(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The first try after a clear writes the new max_tries, so the second is a retry."""
    instance.attempt()
    gate = tmp_path / "gate"
    instance.max_tries, instance.command = 3, until_released(gate)
    instance.attempt_killed("mid_poll", try_number=2)
    gate.touch()
    assert instance.attempt(try_number=3) == {"rows": 7}
    assert len(started(service)) == 2


def test_a_clear_is_seen_after_a_reported_success_though_max_tries_is_the_same(
    service: JobService, instance: TaskInstance
) -> None:
    """The task's `retries` were edited so that the clear came out at the old max_tries."""
    operator = instance.operator()
    context = instance.context(operator, 1)
    operator.execute(context)
    instance.server_state = "success"
    context["ti"].task = operator
    on_task_instance_success(previous_state=None, task_instance=context["ti"])
    assert instance.record["reported"] is True
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 2


def test_a_success_that_the_server_did_not_take_is_not_marked(
    service: JobService, instance: TaskInstance
) -> None:
    """The listener runs after a refused report too; the retry has to find a success it can return."""
    operator = instance.operator()
    context = instance.context(operator, 1)
    operator.execute(context)
    context["ti"].task = operator
    on_task_instance_success(previous_state=None, task_instance=context["ti"])
    assert instance.record["reported"] is False
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1


def test_a_record_that_clear_on_success_has_dropped_is_not_brought_back(
    instance: TaskInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``[state_store] clear_on_success`` means it."""
    monkeypatch.setenv("AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS", "True")
    operator = instance.operator()
    context = instance.context(operator, 1)
    operator.execute(context)
    instance.server_state = "success"
    instance.store.clear()
    context["ti"].task = operator
    on_task_instance_success(previous_state=None, task_instance=context["ti"])
    assert instance.record is None


def test_an_unreported_success_is_returned_again(service: JobService, instance: TaskInstance) -> None:
    """Case 35: the job succeeded and the XCom push failed; the retry returns the result, no second job."""
    instance.attempt()
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1
