# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""An attempt that was stopped inside its submit wakes late: its job is ended, nobody else's ever is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.jobs.errors import TokenForgotten
from airflow_resumable.jobs.service import JobService as Asked
from airflow_resumable.sdk import JobAmbiguous, JobSuperseded
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from airflow_resumable.testing.soak.graded_jobs import NarrowedJobOperator
from tests.attempts import (
    SUCCEED,
    TaskInstance,
    TokenOnlyJobOperator,
    requests,
    started,
    until_released,
)
from tests.stack.kills import until
from tests.unit.test_jobs_fencing import ReplacedStore

Meanwhile = Callable[[], object]


def stopped_in_submit(
    instance: TaskInstance,
    *,
    before: Meanwhile | None = None,
    after: Meanwhile | None = None,
    kind: type[LocalJobOperator] = LocalJobOperator,
) -> None:
    """Let the next attempt's submit stop for what happens meanwhile, before or after the service got it."""

    class Stopped(kind):  # type: ignore[misc,valid-type]
        def submit_job(self, context: Any) -> Any:
            instance.operator_class = kind
            if before is not None:
                before()
            job = super().submit_job(context)
            if after is not None:
                after()
            return job

    instance.operator_class = Stopped


def live(service: JobService) -> list[str]:
    jobs = [entry["job"] for entry in started(service)]
    return [job for job in jobs if service.client().status(job)["status"] not in ("CANCELLED", "SUCCEEDED")]


def test_a_job_that_the_successor_has_adopted_is_never_taken_back(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Also where an older job, whose record a clear has discarded, is still listed."""
    instance.attempt()
    instance.store.clear()
    instance.max_tries, instance.command = 3, until_released(tmp_path / "never")
    stopped_in_submit(instance, after=lambda: instance.attempt_killed("mid_poll", try_number=3))
    with pytest.raises(JobSuperseded):
        instance.attempt(try_number=2)
    assert requests(service, "cancel") == []
    assert live(service) == [instance.record["external_id"]]


def test_nor_by_an_attempt_that_can_not_read_the_record_any_more(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """As on Airflow up to 3.3, where the store answers a replaced attempt with nothing."""
    instance.attempt()
    instance.store.clear()
    instance.max_tries, instance.command = 3, until_released(tmp_path / "never")
    store = ReplacedStore(instance.store)

    def replaced() -> None:
        instance.attempt_killed("mid_poll", try_number=3)
        store.replaced = True

    stopped_in_submit(instance, after=replaced)
    with pytest.raises(JobSuperseded):
        instance.attempt(try_number=2, store=store)
    assert requests(service, "cancel") == []
    assert live(service) == [instance.record["external_id"]]


def test_a_second_job_of_a_replaced_attempt_is_deleted(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """A service without tokens: the successor has done the work, and exactly the late job goes."""

    class TellsCreated(NarrowedJobOperator):
        def was_job_created(self) -> bool:
            return True

    stopped_in_submit(instance, before=lambda: instance.attempt(try_number=2), kind=TellsCreated)
    with pytest.raises(JobSuperseded):
        instance.attempt(try_number=1)
    first, second = started(service)
    assert instance.record["external_id"] == first["job"]
    assert [entry["job"] for entry in requests(service, "cancel")] == [second["job"]]


def test_a_service_without_a_family_shows_a_clear_by_the_next_token(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The record was discarded, the woken attempt can't read, and its mark alone tells nothing."""
    instance.operator_class, instance.command = NarrowedJobOperator, until_released(tmp_path / "never")
    store = ReplacedStore(instance.store)

    def cleared() -> None:
        instance.max_tries = 3
        instance.store.clear()
        instance.attempt_killed("mid_poll", try_number=2)
        store.replaced = True

    stopped_in_submit(instance, before=cleared, kind=NarrowedJobOperator)
    with pytest.raises(JobSuperseded):
        instance.attempt(try_number=1, store=store)
    newer, late = started(service)
    assert [entry["job"] for entry in requests(service, "cancel")] == [late["job"]]
    # A cancelled process takes a moment to be gone.
    until("the late job is gone", lambda: live(service) == [newer["job"]])


def test_a_late_job_of_before_a_clear_is_gone_before_the_next_try_submits(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Whoever had announced the job of the clear died; the late one came in between."""
    instance.command = until_released(tmp_path / "never")
    store = ReplacedStore(instance.store)

    def cleared() -> None:
        instance.max_tries = 3
        instance.attempt_killed("after_intent", try_number=2)
        store.replaced = True

    stopped_in_submit(instance, before=cleared)
    with pytest.raises(JobSuperseded):
        instance.attempt(try_number=1, store=store)
    (late,) = live(service)
    instance.command = SUCCEED
    assert instance.attempt(try_number=3) == {"rows": 7}
    old, new = (service.client().status(entry["job"]) for entry in started(service))
    assert (old["id"], old["status"]) == (late, "CANCELLED")
    assert old["finished_at"] <= new["started_at"]


def test_a_late_job_of_before_a_discarding_clear_is_ended_too(
    service: JobService, instance: TaskInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow 3.4's clear leaves no record to tell the token; the family tells the job."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__INSTALLATION_ID", "here")
    instance.command = until_released(tmp_path / "never")
    store = ReplacedStore(instance.store)

    def cleared() -> None:
        instance.max_tries = 3
        instance.store.clear()
        instance.attempt_killed("after_intent", try_number=2)
        store.replaced = True

    stopped_in_submit(instance, before=cleared)
    with pytest.raises(JobSuperseded):
        instance.attempt(try_number=1, store=store)
    assert len(live(service)) == 1
    instance.command = SUCCEED
    assert instance.attempt(try_number=3) == {"rows": 7}
    assert live(service) == []
    assert [entry["job"] for entry in requests(service, "cancel")] == [started(service)[0]["job"]]


def test_a_late_job_that_comes_while_the_next_one_runs_is_ended_at_the_end(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The overtaken attempt was killed right after its submit, so it can't take its job back."""
    gate = tmp_path / "gate"
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed("after_intent")
    overtaken = instance.record
    instance.max_tries, instance.command = 3, until_released(gate)

    class LateOneComes(LocalJobOperator):
        def get_job_status(self, external_id: Any, context: Any) -> str:
            if len(started(service)) == 1:
                late = until_released(tmp_path / "never")
                token = overtaken["token"]
                service.client().submit(late, token=token, family=token[1:17])
                gate.touch()
            return super().get_job_status(external_id, context)

    instance.operator_class = LateOneComes
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert live(service) == []


def test_a_token_that_the_service_may_have_forgotten_is_not_sent_by_a_later_try(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The earlier try may have been accepted; refused connections don't stretch the memory."""
    sent: list[str] = []

    class Restarting(TokenOnlyJobOperator):
        token_memory = timedelta(seconds=20)

        def submit_job(self, context: Any) -> Any:
            sent.append(self.idempotency_token or "")
            raise ConnectionRefusedError("the service restarts")

    instance.attempt_killed("after_intent")
    instance.operator_class = Restarting
    with pytest.raises(ConnectionRefusedError):
        instance.attempt(try_number=2)
    assert sent == [instance.record["token"]]


def test_a_process_that_was_stopped_before_it_sent_an_old_token_does_not_send_it(
    service: JobService, instance: TaskInstance
) -> None:
    """What was decided while the service remembered it may be carried out after it has forgotten."""
    operator = instance.operator()
    context = instance.context(operator, 2)
    can = replace(operator.resumable_capabilities(), token_memory=timedelta(minutes=5))
    asked = Asked(operator, context, operator.resumable_policy(), can)
    with operator.looking(context):
        with pytest.raises(TokenForgotten, match="on_missing"):
            asked.submit("r1", datetime.now(UTC) - timedelta(minutes=6), again=True)
        assert requests(service, "submit") == []
        asked.submit("r1", datetime.now(UTC) - timedelta(minutes=4), again=True)
    assert len(started(service)) == 1


def test_two_live_jobs_are_left_to_a_person(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The error says that somebody has to choose, so nothing is cancelled for them."""
    instance.command, instance.operator_class = until_released(tmp_path / "never"), NarrowedJobOperator
    instance.attempt_killed("after_accept")
    token = instance.record["token"]
    service.client().submit(instance.command, family=token[1:17], name=token)
    with pytest.raises(JobAmbiguous):
        instance.attempt(try_number=2)
    assert requests(service, "cancel") == []


def test_a_refused_cancel_of_a_cleared_attempt_is_said(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The message is all that whoever is on call will see."""
    instance.command, instance.server_state = until_released(tmp_path / "never"), "restarting"
    store = ReplacedStore(instance.store)

    def replaced() -> None:
        store.replaced = True

    stopped_in_submit(instance, after=replaced)
    service.client().add_fault("cancel", "refuse_cancel", times=0)
    with pytest.raises(JobSuperseded, match="NOT cancelled"):
        instance.attempt(store=store)
