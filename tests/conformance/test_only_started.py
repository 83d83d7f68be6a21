# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Operators that are told to start a job and not to wait for it, and a user who clears them.

The Kubernetes API server is real; EMR and its kin are the stand-in for AWS. Each one's own log counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_resumable.integration.listener import on_task_instance_success
from airflow_resumable.jobs.errors import JobNotCancelled
from airflow_resumable.testing.task_tries import TaskTries
from tests.emr_job_runs import JobRunService, containers, reach, serverless
from tests.emr_service import EmrService
from tests.kubernetes_job_attempts import JobService, make_job

Start = Callable[[], Any]


@pytest.fixture(params=["Job", "EMR steps", "EMR Serverless", "EMR on EKS"])
def kind(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[Any, Start]]:
    """A service, and what makes an operator that only starts a job there, which runs on."""
    if request.param == "Job":
        cluster = request.getfixturevalue("kubernetes")
        jobs = JobService(cluster, cluster.proxy(), tmp_path / "gate")
        yield jobs, lambda: make_job(jobs, "runs", wait_until_job_complete=False)
        jobs.release()
        return
    aws = request.getfixturevalue("aws")
    reach(aws, monkeypatch)
    if request.param == "EMR steps":
        steps = EmrService(aws)
        yield steps, lambda: steps.operator(wait_for_completion=False)
        return
    is_serverless = request.param == "EMR Serverless"
    runs = JobRunService(aws, "emr-serverless" if is_serverless else "emr-containers")
    make = serverless if is_serverless else containers
    yield runs, lambda: make(runs, "runs", wait_for_completion=False)


@pytest.fixture
def tries() -> TaskTries:
    """One task instance."""
    return TaskTries(retries=2)


def test_a_clear_ends_the_job_though_max_tries_is_the_same(kind: tuple[Any, Start], tries: TaskTries) -> None:
    """`retries` was edited between the success and the clear: the old job is ended before the next begins."""
    service, start = kind
    subject = start()
    tries.run(subject)
    tries.server_state = "success"
    on_task_instance_success(previous_state=None, task_instance=SimpleNamespace(task=subject))
    assert tries.record(subject)["reported"] is True
    before, tries.retries, tries.server_state = tries.max_tries, 1, "running"
    tries.clear()
    assert tries.max_tries == before
    tries.run(start())

    assert [job.live for job in service.jobs()] == [False, True]
    assert service.cancels() == 1


def test_a_clear_that_drops_the_record_starts_nothing_beside_the_job(
    kind: tuple[Any, Start], tries: TaskTries
) -> None:
    """With no installation_id it is waited for and not cancelled; the task fails when it doesn't end."""
    service, start = kind
    tries.run(start())
    tries.discard(start())
    with pytest.raises(JobNotCancelled, match="it goes on: stop it in the service"):
        tries.run(start(), {"cancel_timeout": 0.5})

    assert [job.live for job in service.jobs()] == [True]
    assert service.cancels() == 0


def test_a_clear_may_go_on_with_the_job(kind: tuple[Any, Start], tries: TaskTries) -> None:
    """on_clear=reconnect: the same job, and nobody waits for it now either."""
    service, start = kind
    tries.run(start())
    tries.clear()
    tries.run(start(), {"on_clear": "reconnect"})

    assert [job.live for job in service.jobs()] == [True]
    assert service.cancels() == 0
