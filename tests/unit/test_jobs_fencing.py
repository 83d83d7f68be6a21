# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""An attempt that was replaced neither submits nor writes nor cancels."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.jobs.record import Owner
from airflow_resumable.sdk import JobSuperseded
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from airflow_resumable.testing.soak.graded_jobs import NarrowedJobOperator
from tests.attempts import TaskInstance, requests, started, until_released

KEY = "resumable.local_job_id"


class Gone(Exception):
    """The API server's answer to a write by a task instance id that it no longer has."""

    def __init__(self) -> None:
        super().__init__("404")
        self.error = type("ErrorResponse", (), {"detail": {"status_code": 404}})()


class ReplacedStore:
    """A store as Airflow 3.3 shows it to a replaced attempt: reads answer None, writes 404."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.replaced = False

    def get(self, key: str, default: Any = None) -> Any:
        return None if self.replaced else self.store.get(key, default)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        if self.replaced:
            raise Gone
        self.store.set(key, value, retention=retention)

    def delete(self, key: str) -> None:
        if self.replaced:
            raise Gone
        self.store.delete(key)


def test_an_attempt_replaced_before_its_first_write_submits_nothing(
    service: JobService, instance: TaskInstance
) -> None:
    """A read that says "none" is not believed before a write was accepted."""
    store = ReplacedStore(instance.store)
    store.replaced = True
    with pytest.raises(JobSuperseded, match="replaced"):
        instance.attempt(store=store)
    assert requests(service, "submit") == []


@pytest.mark.parametrize(
    ("state", "cancels"), [("restarting", 1), ("up_for_retry", 0), ("running", 0), (None, 0)]
)
def test_a_replaced_attempt_cancels_only_what_a_user_cleared(
    service: JobService, instance: TaskInstance, tmp_path: Path, state: str | None, cancels: int
) -> None:
    """The server's word "restarting" means cleared while running; anything else means superseded."""
    store = ReplacedStore(instance.store)

    class ReplacedOnSubmit(LocalJobOperator):
        def submit_job(self, context: Any) -> Any:
            external_id = super().submit_job(context)
            store.replaced = True
            return external_id

    instance.command, instance.server_state = until_released(tmp_path / "never"), state
    instance.operator_class = ReplacedOnSubmit
    with pytest.raises(JobSuperseded):
        instance.attempt(store=store)
    assert len(requests(service, "cancel")) == cancels
    assert instance.record["phase"] == "intent"


def test_an_older_attempt_stands_back_from_a_newer_ones_record(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The record's owner has a higher try number: the late one touches nothing."""
    instance.command = until_released(tmp_path / "gate")
    instance.attempt_killed("mid_poll", try_number=2)
    before = instance.record
    with pytest.raises(JobSuperseded, match="try 2"):
        instance.attempt(try_number=1)
    assert instance.record == before
    assert len(requests(service, "submit")) == 1
    assert requests(service, "cancel") == []


def test_an_attempt_overtaken_in_mid_submit_neither_writes_nor_cancels_the_shared_job(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Two attempts of one generation share a job by its token; the older leaves it to the newer."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    gate.touch()
    results: list[Any] = []

    class OvertakenInSubmit(LocalJobOperator):
        def submit_job(self, context: Any) -> Any:
            external_id = super().submit_job(context)
            if context["ti"].try_number == 1:
                results.append(instance.attempt(try_number=2))
            return external_id

    instance.operator_class = OvertakenInSubmit
    with pytest.raises(JobSuperseded):
        instance.attempt(try_number=1)
    assert results == [{"rows": 7}]
    assert len(started(service)) == 1
    assert instance.record["owner"]["try_number"] == 2
    assert requests(service, "cancel") == []


def test_a_job_started_by_an_overtaken_attempt_of_an_older_generation_is_taken_back(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """It was created after a clear had moved on to another token, so nobody would ever adopt it."""
    never = tmp_path / "never"
    instance.command = until_released(never)

    class ClearedInSubmit(LocalJobOperator):
        def submit_job(self, context: Any) -> Any:
            instance.operator_class, instance.max_tries = LocalJobOperator, 3
            instance.attempt_killed("mid_poll", try_number=2)
            return super().submit_job(context)

    instance.operator_class = ClearedInSubmit
    with pytest.raises(JobSuperseded):
        instance.attempt(try_number=1)
    newer, older = started(service)
    assert newer["token"] != older["token"]
    (cancel,) = requests(service, "cancel")
    assert cancel["job"] == older["job"]
    assert service.client().status(newer["job"])["status"] == "RUNNING"


def test_of_two_owners_the_one_with_the_later_try_or_start_is_newer() -> None:
    """A deferred task resumes under its old id, later: it takes over from the process that it was."""
    now = datetime.now(UTC)
    first = Owner(try_number=1, started_at=now, ti_id="a")
    assert Owner(try_number=1, started_at=now + timedelta(hours=1), ti_id="a").is_newer_than(first)
    assert Owner(try_number=1, started_at=now + timedelta(hours=1), ti_id="b").is_newer_than(first)
    assert Owner(try_number=2, started_at=now - timedelta(hours=1), ti_id="b").is_newer_than(first)
    assert not first.is_newer_than(first)


@pytest.mark.parametrize("same_id", [True, False])
def test_of_one_try_that_runs_twice_the_older_process_stands_back(
    service: JobService, instance: TaskInstance, tmp_path: Path, same_id: bool
) -> None:
    """A broker delivers the last try twice; evicted, the first process leaves the other's job alone."""
    instance.command = until_released(tmp_path / "never")
    instance.ti_id = uuid.uuid4() if same_id else None
    ended, text = instance.attempt_stopped(
        "mid_poll", try_number=3, when=lambda: instance.attempt_killed("mid_poll", try_number=3)
    )
    assert ended == "JobKept"
    assert "NOT cancelled" in text
    assert requests(service, "cancel") == []
    assert len(started(service)) == 1


@pytest.mark.parametrize("operator_class", [LocalJobOperator, NarrowedJobOperator])
def test_a_try_that_is_delivered_twice_while_it_submits_starts_one_job(
    service: JobService, instance: TaskInstance, tmp_path: Path, operator_class: type[LocalJobOperator]
) -> None:
    """The second process finds by the intent's token or mark what the first one's submit has started."""
    gate = tmp_path / "gate"
    instance.command, instance.operator_class = until_released(gate), operator_class
    instance.ti_id = uuid.uuid4()
    hold = service.client().add_fault("submit", "hold")

    def again() -> None:
        service.wait_for_request("submit")
        instance.attempt_killed("mid_poll")
        service.client().delete_fault(hold)
        gate.touch()

    ended, _ = instance.attempt_stopped("after_intent", signals=0, when=again)
    assert ended == "JobSuperseded"
    assert len(started(service)) == 1
    assert requests(service, "cancel") == []


def test_a_stray_job_is_taken_back_though_the_newer_one_has_ended(
    service: JobService, instance: TaskInstance
) -> None:
    """The clear's job ran to its end while the older attempt was paused before its submit."""

    class ClearedInSubmit(LocalJobOperator):
        def submit_job(self, context: Any) -> Any:
            instance.operator_class, instance.max_tries = LocalJobOperator, 3
            assert instance.attempt(try_number=2) == {"rows": 7}
            return super().submit_job(context)

    instance.operator_class = ClearedInSubmit
    with pytest.raises(JobSuperseded):
        instance.attempt(try_number=1)
    _, stray = started(service)
    (cancel,) = requests(service, "cancel")
    assert cancel["job"] == stray["job"]


@pytest.mark.parametrize("method", ["restore_job", "get_job_spec", "get_job_status", "is_job_active"])
def test_a_last_try_that_fails_before_its_first_look_cancels_the_job(
    service: JobService, instance: TaskInstance, tmp_path: Path, method: str
) -> None:
    """Case 27's kind: nobody will ever come back to it, and it is on record."""
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed("mid_poll")

    def breaks(self: Any, *_: Any) -> Any:
        raise ValueError("no such attribute")

    instance.operator_class = type("Breaks", (LocalJobOperator,), {method: breaks})
    with pytest.raises(ValueError, match="no such attribute"):
        instance.attempt(try_number=3)
    assert len(requests(service, "cancel")) == 1
