# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A clear that discards the record of a job that goes on, as Airflow 3.4's does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.jobs.token import TokenMint
from airflow_resumable.sdk import JobNotCancelled, JobSuperseded
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from tests.attempts import RUN_STARTED, TaskInstance, requests, started, until_released
from tests.unit.test_jobs_fencing import ReplacedStore


def left_over(service: JobService, gate: Path, installation: str) -> str:
    """Start the job of a first try that has nobody left, and whose record is gone."""
    mint = TokenMint(installation, "dag", "run", "task", -1, RUN_STARTED)
    command = until_released(gate)
    return str(service.client().submit(command, token=mint.token(2, 1), family=mint.family)["id"])


def released_by_a_look(gate: Path) -> type[LocalJobOperator]:
    """Return an operator whose job ends once the operator has looked at it, so not before it was adopted."""

    class Releases(LocalJobOperator):
        def get_job_status(self, external_id: Any, context: Any) -> str:
            status = super().get_job_status(external_id, context)
            gate.touch()
            return status

    return Releases


@pytest.fixture
def installation(monkeypatch: pytest.MonkeyPatch) -> str:
    """An installation id, by which a family's jobs are known to be this installation's."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__INSTALLATION_ID", "here")
    return "here"


def test_a_job_without_a_record_is_cancelled_before_the_next_starts(
    service: JobService, instance: TaskInstance, tmp_path: Path, installation: str
) -> None:
    """It is found by its family; its token is of tries that a clear has ended. The retry goes on as ever."""
    job = left_over(service, tmp_path / "never", installation)
    instance.max_tries, instance.command = 3, ["/bin/echo", "5"]

    assert [instance.attempt(try_number=number) for number in (2, 3)] == [5, 5]

    first, second = started(service)
    old, new = (service.client().status(entry["job"]) for entry in (first, second))
    assert (first["job"], old["status"]) == (job, "CANCELLED")
    assert old["finished_at"] <= new["started_at"]
    assert len(requests(service, "cancel")) == 1
    assert instance.record["max_tries"] == 3


def test_a_job_without_a_record_that_can_not_be_cancelled_fails_the_attempt(
    service: JobService, instance: TaskInstance, tmp_path: Path, installation: str
) -> None:
    """Two jobs are never alive; the next try asks for the cancel again, since the clear is on record now."""
    left_over(service, tmp_path / "never", installation)
    instance.max_tries, instance.policy = 3, {"cancel_timeout": 0.2}
    service.client().add_fault("cancel", "refuse_cancel", times=1)

    with pytest.raises(JobNotCancelled):
        instance.attempt(try_number=2)
    assert len(requests(service, "submit")) == 1

    assert instance.attempt(try_number=3) == {"rows": 7}
    assert len(started(service)) == 2


def test_without_an_installation_id_the_job_is_waited_for(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """A copy of the metadata database would have the same family: not enough to cancel a job on."""
    left_over(service, tmp_path / "gate", "")
    instance.max_tries, instance.operator_class = 3, released_by_a_look(tmp_path / "gate")

    assert instance.attempt(try_number=2) == {"rows": 7}

    first, second = requests(service, "submit")
    assert second["at"] >= service.client().status(first["job"])["finished_at"]
    assert requests(service, "cancel") == []


def test_without_an_installation_id_a_job_that_goes_on_fails_the_cleared_task(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Nothing is started beside it, and the message says what to do."""
    left_over(service, tmp_path / "gate", "")
    instance.max_tries, instance.policy = 3, {"cancel_timeout": 0.1}

    with pytest.raises(JobNotCancelled, match=re.escape("set [resumable] installation_id")):
        instance.attempt(try_number=2)

    assert len(requests(service, "submit")) == 1
    assert requests(service, "cancel") == []


def test_on_clear_reconnect_goes_on_with_a_job_without_a_record(
    service: JobService, instance: TaskInstance, tmp_path: Path, installation: str
) -> None:
    """Who wants a clear to reconnect wants it whatever Airflow does with the record."""
    left_over(service, tmp_path / "gate", installation)
    instance.max_tries, instance.policy = 3, {"on_clear": "reconnect"}
    instance.operator_class = released_by_a_look(tmp_path / "gate")

    assert instance.attempt(try_number=2) == {"rows": 7}

    assert len(requests(service, "submit")) == 1
    assert requests(service, "cancel") == []


def test_a_replaced_attempt_cancels_nothing_that_it_finds(
    service: JobService, instance: TaskInstance, tmp_path: Path, installation: str
) -> None:
    """To an attempt that a clear has replaced, the job of the later tries looks like one without a record."""
    left_over(service, tmp_path / "never", installation)
    instance.max_tries, instance.server_state = 3, "running"
    store = ReplacedStore(instance.store)
    store.replaced = True

    with pytest.raises(JobSuperseded):
        instance.attempt(try_number=2, store=store)

    assert len(requests(service, "submit")) == 1
    assert requests(service, "cancel") == []
