# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Every error of the protocol names its job, the generation and what was last seen of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_resumable.jobs import errors
from airflow_resumable.sdk import (
    JobFailed,
    JobMissing,
    JobNotSettled,
    ResumableJobError,
    StatusBudgetExhausted,
)
from airflow_resumable.testing.jobservice.process import JobService
from tests.attempts import FAIL, TaskInstance, until_released


def told(instance: TaskInstance, expected: type[ResumableJobError], try_number: int = 1) -> ResumableJobError:
    with pytest.raises(expected) as caught:
        instance.attempt(try_number)
    return caught.value


def test_a_failed_jobs_error_names_its_last_status(service: JobService, instance: TaskInstance) -> None:
    """The service's own word for it."""
    instance.command = FAIL
    error = told(instance, JobFailed)
    assert (error.external_id, error.generation, error.last_status) == ("job-000001", 1, "FAILED")


def test_a_missing_jobs_error_names_what_an_earlier_try_saw(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """This try has seen nothing of it any more."""
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed("mid_poll")
    service.client().forget("job-000001")
    error = told(instance, JobMissing, 2)
    assert (error.external_id, error.generation, error.last_status) == ("job-000001", 1, "RUNNING")


def test_a_used_up_budgets_error_names_the_job_that_goes_on(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Whoever is on call has to find it in the service."""
    instance.command, instance.policy = until_released(tmp_path / "never"), {"status_error_budget": 0.1}
    instance.attempt_killed("mid_poll")
    service.client().add_fault("status", "unavailable", times=0)
    error = told(instance, StatusBudgetExhausted, 2)
    assert (error.external_id, error.generation, error.last_status) == ("job-000001", 1, "RUNNING")


def test_an_unsettled_jobs_error_names_its_state(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Here one that nobody has heard of."""
    instance.command, instance.policy = until_released(tmp_path / "never"), {"unknown_status_timeout": 0.0}
    service.client().add_fault("status", "unknown_status", status="HIBERNATING", times=0)
    error = told(instance, JobNotSettled)
    assert (error.external_id, error.generation, error.last_status) == ("job-000001", 1, "HIBERNATING")


@pytest.mark.parametrize(
    ("kind", "retried"),
    [
        (errors.JobFailed, True),
        (errors.JobNotSettled, True),
        (errors.JobNotCancelled, True),
        (errors.JobSuperseded, True),
        (errors.StatusBudgetExhausted, True),
        (errors.StoreUnavailable, True),
        (errors.JobMissing, False),
        (errors.JobAmbiguous, False),
        (errors.RecordUnreadable, False),
    ],
)
def test_airflow_retries_what_another_try_can_mend(kind: type[ResumableJobError], retried: bool) -> None:
    """Airflow fails a task without a retry for an AirflowFailException, and retries any other of its own."""
    assert issubclass(kind, AirflowException)
    assert issubclass(kind, AirflowFailException) is not retried
