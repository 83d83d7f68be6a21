# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A job that the service no longer knows is a policy, never a silent second start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_resumable.sdk import JobFailed, JobMissing
from airflow_resumable.testing.jobservice.process import JobService
from tests.attempts import TaskInstance, requests, started, until_released


def test_a_forgotten_job_fails_the_task_without_a_retry(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Case 40's kind: a restarted master knows nothing; the error says that a clear starts afresh."""
    instance.command = until_released(tmp_path / "gate")
    instance.attempt_killed("mid_poll")
    service.client().forget(instance.record["external_id"])
    with pytest.raises(JobMissing, match="clear the task to start afresh") as caught:
        instance.attempt(try_number=2)
    assert isinstance(caught.value, AirflowFailException)
    assert len(requests(service, "submit")) == 1


def test_a_job_forgotten_while_it_is_watched_fails_the_task(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The same in mid-poll, where the attempt itself saw the job running."""
    from airflow_resumable.testing.local_job import LocalJobOperator

    class ForgetsAfterOneLook(LocalJobOperator):
        looks = 0

        def get_job_status(self, external_id: object, context: object) -> str:
            type(self).looks += 1
            if type(self).looks == 2:
                service.client().forget(external_id)  # type: ignore[arg-type]
            return super().get_job_status(external_id, context)  # type: ignore[arg-type]

    instance.command, instance.operator_class = until_released(tmp_path / "gate"), ForgetsAfterOneLook
    with pytest.raises(JobMissing, match="RUNNING"):
        instance.attempt()
    assert len(requests(service, "submit")) == 1


def test_on_missing_resubmit_starts_the_next_generation(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The policy may accept that the old job perhaps did its work."""
    instance.command = until_released(tmp_path / "gate")
    instance.attempt_killed("mid_poll")
    service.client().forget(instance.record["external_id"])
    instance.command, instance.policy = ["/bin/echo", "5"], {"on_missing": "resubmit"}
    assert instance.attempt(try_number=2) == 5
    assert instance.record["generation"] == 2
    assert len(started(service)) == 2


def test_a_recorded_success_outlives_the_services_memory(service: JobService, instance: TaskInstance) -> None:
    """The outcome and result were stored; that the service forgot the job since does not matter."""
    instance.attempt_killed("after_outcome")
    service.client().forget(instance.record["external_id"])
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(requests(service, "submit")) == 1


def test_a_recorded_success_without_its_result_says_so(service: JobService, instance: TaskInstance) -> None:
    """A result too large to be kept is not made up when the service has forgotten the job."""
    instance.command = ["/bin/sh", "-c", "head -c 20000 /dev/zero | tr '\\0' x; echo"]
    instance.attempt_killed("after_outcome")
    service.client().forget(instance.record["external_id"])
    with pytest.raises(JobMissing, match="result was not kept"):
        instance.attempt(try_number=2)


def test_an_intent_older_than_the_services_memory_of_tokens_is_not_submitted_again(
    service: JobService, instance: TaskInstance
) -> None:
    """Nobody can say whether its job was started, so `on_missing` decides."""
    from datetime import timedelta

    from airflow_resumable.testing.local_job import LocalJobOperator

    class ForgetfulService(LocalJobOperator):
        token_memory = timedelta(0)

    instance.attempt_killed("after_intent")
    instance.operator_class = ForgetfulService
    with pytest.raises(JobMissing, match="remembers a token"):
        instance.attempt(try_number=2)
    assert requests(service, "submit") == []


def test_a_service_that_forgets_every_job_is_not_flooded(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """on_missing=resubmit starts at most one job a try."""
    from airflow_resumable.testing.local_job import LocalJobOperator

    class ForgetsAtOnce(LocalJobOperator):
        def submit_job(self, context: Any) -> Any:
            external_id = super().submit_job(context)
            service.client().forget(external_id)
            return external_id

    instance.command, instance.policy = until_released(tmp_path / "gate"), {"on_missing": "resubmit"}
    instance.operator_class = ForgetsAtOnce
    for number in (1, 2):
        with pytest.raises(JobFailed, match=f"generation {number}.*the next try"):
            instance.attempt(try_number=number)
    assert len(started(service)) == 2
