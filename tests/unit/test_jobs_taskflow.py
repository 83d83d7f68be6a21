# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The same protocol for a plain `@task` function, which has no operator of its own."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.integration.listener import on_task_instance_success
from airflow_resumable.sdk import (
    ExternalJob,
    FoundJob,
    JobKept,
    StoreUnavailable,
    SubmitWindow,
    resumable_job,
)
from airflow_resumable.testing.jobservice.client import JobServiceClient
from airflow_resumable.testing.jobservice.process import JobService
from tests.attempts import SUCCEED, TaskInstance, requests, started, until_released


class LocalJob(ExternalJob):
    """A job of the local job service for `@task` functions."""

    submit_window = SubmitWindow.CLOSED
    poll_interval = 0.02

    def __init__(self, client: JobServiceClient, command: list[str], key: str = "external_job_id") -> None:
        self._client = client
        self.command = command
        self.external_id_key = key

    def submit_job(self, context: Any) -> Any:
        return self._client.submit(self.command, token=self.idempotency_token, family=self.job_family)["id"]

    def get_job_status(self, external_id: Any, context: Any) -> str:
        return str(self._client.status(external_id)["status"])

    def is_job_active(self, status: str) -> bool:
        return status in ("QUEUED", "RUNNING", "STOPPING")

    def is_job_succeeded(self, status: str) -> bool:
        return status == "SUCCEEDED"

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        return self._client.status(external_id)["result"]

    def find_job_by_token(self, token: str, since: Any, context: Any) -> list[FoundJob]:
        found = self._client.find(token=token, since=since.timestamp())
        return [FoundJob(job["id"], job["status"], job["token"]) for job in found]

    def cancel_job(self, external_id: Any, context: Any) -> None:
        self._client.cancel(external_id)


class Function:
    """What Airflow makes of a `@task` function, as far as a stop is concerned."""

    retries = 2

    def on_kill(self) -> None:
        """Nothing: as of Airflow's own."""


def test_a_function_gets_its_jobs_result_and_its_next_try_too(
    service: JobService, instance: TaskInstance
) -> None:
    """One job, whether the function runs once or again."""
    for number in (1, 2):
        context = instance.context(Function(), number)
        assert resumable_job(LocalJob(service.client(), SUCCEED), context) == {"rows": 7}
    assert len(requests(service, "submit")) == 1


def test_two_jobs_of_one_function_have_a_record_each(service: JobService, instance: TaskInstance) -> None:
    """They differ in `external_id_key`, so in their tokens' records."""
    context = instance.context(Function(), 1)
    first = resumable_job(LocalJob(service.client(), SUCCEED, "one"), context)
    second = resumable_job(LocalJob(service.client(), ["/bin/echo", "5"], "two"), context)
    assert (first, second) == ({"rows": 7}, 5)
    assert len(started(service)) == 2
    context["ti"].task, instance.server_state = context["task"], "success"
    on_task_instance_success(previous_state=None, task_instance=context["ti"])
    assert [instance.store.get(f"resumable.{key}")["reported"] for key in ("one", "two")] == [True, True]  # type: ignore[index,call-overload]


def test_the_functions_task_answers_a_stop_by_policy(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Airflow asks the task object; while the job runs, that is the protocol's answer."""
    task, gate = Function(), tmp_path / "gate"
    asked: list[str] = []

    class Stopped(LocalJob):
        def get_job_status(self, external_id: Any, context: Any) -> str:
            if not asked:
                asked.append("stop")
                instance.server_state = "running"
                signal.raise_signal(signal.SIGTERM)
            return super().get_job_status(external_id, context)

    before = signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
    try:
        with pytest.raises(JobKept, match="infrastructure"):
            resumable_job(Stopped(service.client(), until_released(gate)), instance.context(task, 1))
    finally:
        signal.signal(signal.SIGTERM, before)
    gate.touch()
    assert resumable_job(
        LocalJob(service.client(), until_released(gate)), instance.context(Function(), 2)
    ) == {"rows": 7}
    assert len(started(service)) == 1
    assert requests(service, "cancel") == []


def test_switched_off_the_function_just_runs_its_job(
    service: JobService, instance: TaskInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No token, no record."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__ENABLED", "False")
    assert resumable_job(LocalJob(service.client(), SUCCEED), instance.context(Function(), 1)) == {"rows": 7}
    assert started(service)[0]["token"] is None


def test_without_a_store_nothing_is_submitted(service: JobService, instance: TaskInstance) -> None:
    """As for an operator."""
    context = instance.context(Function(), 1)
    del context["task_state_store"]
    with pytest.raises(StoreUnavailable, match="nothing was submitted"):
        resumable_job(LocalJob(service.client(), SUCCEED), context)
    assert requests(service, "submit") == []


def test_something_that_is_no_job_is_refused() -> None:
    """The error names the argument and what is allowed."""
    with pytest.raises(
        TypeError, match=r"job='x' is not allowed; use an instance of a subclass of ExternalJob"
    ):
        resumable_job("x")  # type: ignore[arg-type]
