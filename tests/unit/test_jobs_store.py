# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What an attempt asks of the store, and what it does when the store is away or holds something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_resumable.sdk import RecordUnreadable, StoreUnavailable
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.memory_store import InMemoryTaskStateStore
from tests.attempts import TaskInstance, requests, started

KEY = "resumable.local_job_id"


def test_an_undisturbed_job_needs_few_store_calls(service: JobService, instance: TaskInstance) -> None:
    """At most five writes and five reads, status changes (one read, one write each) aside."""
    store = InMemoryTaskStateStore()
    instance.attempt(store=store)
    polls = {entry["job"] for entry in requests(service, "status")}
    assert len(polls) == 1
    status_changes = 1
    assert store.count("set") + store.count("delete") - status_changes <= 5
    assert store.count("get") - status_changes <= 5


def test_a_store_that_is_away_at_the_start_means_no_submit(
    service: JobService, instance: TaskInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is submitted, and the error says how to run the job all the same."""
    monkeypatch.setattr("airflow_resumable.jobs.ledger.STORE_BUDGET", 0.2)
    with pytest.raises(StoreUnavailable, match=r"nothing was submitted.*on_store_down=submit"):
        instance.attempt(store=_away())
    assert requests(service, "submit") == []


def test_a_context_without_a_store_means_no_submit(service: JobService, instance: TaskInstance) -> None:
    """An operator called in a way that gives it no store says so."""
    operator = instance.operator()
    context = instance.context(operator, 1)
    del context["task_state_store"]
    with pytest.raises(StoreUnavailable, match="no task_state_store in the context"):
        operator.execute(context)
    assert requests(service, "submit") == []


def test_on_store_down_submit_runs_the_job_all_the_same(
    service: JobService,
    instance: TaskInstance,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The policy chooses availability, and the log says what that costs."""
    monkeypatch.setattr("airflow_resumable.jobs.ledger.STORE_BUDGET", 0.2)
    instance.policy = {"on_store_down": "submit"}
    assert instance.attempt(store=_away()) == {"rows": 7}
    assert "a crash will start it again" in caplog.text
    assert len(started(service)) == 1


@pytest.mark.parametrize(
    "value", ["job-000001", 17, ["a"], {"job": 1}, {"format": 1, "generation": 1}, {"format": "x"}]
)
def test_something_else_under_the_key_is_named_and_nothing_is_submitted(
    service: JobService, instance: TaskInstance, value: Any
) -> None:
    """A record that is not what we wrote is an error that names the key; it is not overwritten."""
    instance.store.set(KEY, value)
    with pytest.raises(RecordUnreadable, match=KEY) as caught:
        instance.attempt()
    assert isinstance(caught.value, AirflowFailException)
    assert requests(service, "submit") == []
    assert instance.store.get(KEY) == value


def test_a_record_of_a_newer_format_is_left_alone(service: JobService, instance: TaskInstance) -> None:
    """A mixed fleet: the older worker refuses what the newer one wrote."""
    instance.attempt()
    newer = {**instance.record, "format": 2, "something": "new"}
    instance.store.set(KEY, newer)
    with pytest.raises(RecordUnreadable, match="format 2, this version reads up to 1"):
        instance.attempt(try_number=2)
    assert instance.record == newer


def test_the_first_intent_is_on_record_before_the_service_hears_of_the_job(
    service: JobService, instance: TaskInstance
) -> None:
    """A store that takes nothing leaves a service that was asked for nothing."""

    def refuse(operation: str, key: str) -> None:
        if operation == "set":
            raise TypeError("value is not serializable")

    with pytest.raises(StoreUnavailable):
        instance.attempt(store=InMemoryTaskStateStore(before=refuse))
    assert requests(service, "submit") == []


def _away() -> InMemoryTaskStateStore:
    def refuse(operation: str, key: str) -> None:
        raise ConnectionError("no route to the API server")

    return InMemoryTaskStateStore(before=refuse)


def test_a_switched_off_package_behaves_as_airflows_own_mixin(
    service: JobService, instance: TaskInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``[resumable] enabled = False``: no token, no record, the bare id under the operator's key."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__ENABLED", "False")
    assert instance.attempt() == {"rows": 7}
    (entry,) = started(service)
    assert entry["token"] is None
    assert instance.record is None
    assert instance.store.get("local_job_id") == entry["job"]


def test_durable_false_submits_on_every_try(service: JobService, instance: TaskInstance) -> None:
    """As Airflow's own ``durable=False``: nothing is stored."""
    instance.attempt(durable=False)
    instance.attempt(try_number=2, durable=False)
    assert len(started(service)) == 2
    assert instance.record is None


@pytest.mark.parametrize(
    "error", [BrokenPipeError("32"), EOFError("socket closed"), ConnectionResetError("104")]
)
def test_a_dead_supervisor_is_not_waited_for(instance: TaskInstance, error: Exception) -> None:
    """Its pipe never comes back: one call is made, and an orphaned worker ends soon."""
    asked: list[str] = []

    def refuse(operation: str, key: str) -> None:
        asked.append(operation)
        raise error

    with pytest.raises(StoreUnavailable):
        instance.attempt(store=InMemoryTaskStateStore(before=refuse))
    assert asked == ["get"]
