# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""From intent to recorded id, a crash, a lost reply or a refusal starts one job."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_resumable.jobs.token import family_of
from airflow_resumable.sdk import JobFailed, StoreUnavailable
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.memory_store import InMemoryTaskStateStore
from tests.attempts import FAIL, SUCCEED, TaskInstance, requests, started, until_released


def test_a_worker_killed_before_the_submit_submits_later_with_the_same_token(
    service: JobService, instance: TaskInstance
) -> None:
    """Case 20: an intent without a job is not polled; its token is used."""
    instance.attempt_killed("after_intent")
    token = instance.record["token"]
    assert requests(service, "submit") == []
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert [entry["token"] for entry in started(service)] == [token]


def test_a_worker_killed_before_the_intent_leaves_nothing(
    service: JobService, instance: TaskInstance
) -> None:
    """Before the intent nothing may have happened, at the service or in the store."""
    instance.attempt_killed("before_intent")
    assert instance.record is None
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1


@pytest.mark.parametrize("kind", ["lost_reply", "truncated", "reset", "unavailable", "error", "throttle"])
def test_a_submit_whose_answer_is_lost_or_refused_starts_one_job(
    service: JobService, instance: TaskInstance, kind: str
) -> None:
    """Cases 18 and 37: whether the service had accepted or not, one job is started."""
    service.client().add_fault("submit", kind)
    assert instance.attempt() == {"rows": 7}
    assert len(started(service)) == 1


def test_a_submit_that_answers_late_starts_one_job(service: JobService, instance: TaskInstance) -> None:
    """Case 18: the client's time-out strikes although the service accepted."""
    service.client().add_fault("submit", "slow_reply", seconds=6)
    assert instance.attempt() == {"rows": 7}
    assert len(started(service)) == 1


def test_five_throttles_on_submit_start_one_job(service: JobService, instance: TaskInstance) -> None:
    """Case 37: throttled five times in a row, then taken."""
    service.client().add_fault("submit", "throttle", times=5)
    assert instance.attempt() == {"rows": 7}
    assert len(started(service)) == 1


def test_the_second_generation_is_adopted_when_its_worker_dies(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Case 21: an old terminal id on record does not hide the job that was started after it."""
    instance.command = FAIL
    with pytest.raises(JobFailed, match="generation 1"):
        instance.attempt()
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("after_accept", try_number=2)
    gate.touch()
    assert instance.attempt(try_number=3) == {"rows": 7}
    first, second = started(service)
    assert first["token"] != second["token"]
    assert family_of(first["token"]) == family_of(second["token"])
    assert instance.record["ids"] == [first["job"], second["job"]]


def test_id_zero_is_an_id(tmp_path: Path) -> None:
    """Case 22: a service that counts from 0 is reconnected to like any other."""
    gate = tmp_path / "gate"
    with JobService(tmp_path / "service", first_id=0, plain_ids=True) as service:
        instance = TaskInstance(service.url, tmp_path / "store", until_released(gate))
        instance.attempt_killed("mid_poll")
        assert instance.record["external_id"] == 0
        gate.touch()
        assert instance.attempt(try_number=2) == {"rows": 7}
        assert len(started(service)) == 1


def test_the_store_refuses_the_write_after_a_submit_for_a_while(
    service: JobService, instance: TaskInstance
) -> None:
    """Case 19: the write of the id is tried again, and one job is started."""
    refusals = iter([True, True, False])

    def refuse(operation: str, key: str) -> None:
        if operation == "set" and key == "local_job_id" and next(refusals, False):
            raise ConnectionError("the API server answers 503")

    store = InMemoryTaskStateStore(before=refuse)
    assert instance.attempt(store=store) == {"rows": 7}
    assert store.peek("resumable.local_job_id")["phase"] == "succeeded"
    assert len(started(service)) == 1


def test_a_store_that_stays_away_is_said_and_the_next_try_adopts(
    service: JobService, instance: TaskInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 19: given up, the error names job and token; the next attempt finds the job by its token."""
    monkeypatch.setattr("airflow_resumable.jobs.ledger.STORE_BUDGET", 0.3)

    def refuse(operation: str, key: str) -> None:
        if operation == "set" and key == "local_job_id":
            raise ConnectionError("the API server answers 503")

    store = InMemoryTaskStateStore(before=refuse)
    with pytest.raises(StoreUnavailable, match=r"job 'job-\d+' .* was started.*by its token"):
        instance.attempt(store=store)
    store.before = None
    assert instance.attempt(try_number=2, store=store) == {"rows": 7}
    assert len(requests(service, "submit")) == 1


def test_a_token_that_the_service_holds_for_another_job_is_adopted(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """A job edited between intent and submit: the running one is watched, not doubled."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("after_accept")
    instance.command = SUCCEED
    service.client().add_fault("find", "unavailable")
    gate.touch()
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1
