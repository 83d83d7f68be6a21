# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `ResumableEmrContainerOperator` does while its run lives, on a stand-in for AWS."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from tenacity import wait_fixed

from airflow_resumable.jobs import transient
from airflow_resumable.jobs.errors import JobNotSettled, ResumableJobFatal
from airflow_resumable.jobs.link import JobLink
from airflow_resumable.operators.emr_containers import ResumableEmrContainerOperator
from airflow_resumable.testing.aws import AwsService
from airflow_resumable.testing.http_faults import Reply
from airflow_resumable.testing.task_tries import TaskTries
from tests.emr_job_runs import JobRunService, containers, cut_off, cut_off_connects, reach

__all__ = ["cut_off"]
pytestmark = [cut_off_connects, pytest.mark.usefixtures("cut_off")]

UNLISTED = Reply(200, {"jobRuns": []})


@pytest.fixture
def service(aws: AwsService, monkeypatch: pytest.MonkeyPatch) -> JobRunService:
    """A virtual cluster without runs; whoever asks again does so soon."""
    reach(aws, monkeypatch)
    monkeypatch.setattr(transient, "wait_random_exponential", lambda **_: wait_fixed(0.02))
    return JobRunService(aws, "emr-containers")


@pytest.fixture
def tries() -> TaskTries:
    """One task instance."""
    return TaskTries()


def record(tries: TaskTries) -> Any:
    return tries.record(ResumableEmrContainerOperator)


def test_a_token_outlives_a_crash_and_not_a_failure(service: JobRunService, tries: TaskTries) -> None:
    """Sent again after a crash it starts no run; after a failure a new one does."""
    assert tries.crash(lambda: containers(service, "fails"), "after_accept")
    service.aws.fail(UNLISTED, "ListJobRuns", times=1)
    with pytest.raises(AirflowException, match="ended as FAILED: USER_ERROR"):
        tries.run(containers(service, "fails"))
    tries.run(containers(service))
    first, again, last = service.tokens()
    assert len(service.ids()) == 2
    assert first == again != last
    names = [one.parameters["name"] for one in service.requests("StartJobRun")]
    assert names == [f"nightly-{token}" for token in (first, again, last)]


def test_a_run_is_known_by_its_token_whatever_its_name(service: JobRunService, tries: TaskTries) -> None:
    """The service's list shows both."""
    assert tries.crash(lambda: containers(service, "runs"), "after_accept")
    (run,) = service.ids()
    other_name = Reply(
        200,
        {"jobRuns": [{"id": run, "name": "other", "state": "RUNNING", "clientToken": service.tokens()[0]}]},
    )
    service.aws.fail(other_name, "ListJobRuns", times=1)
    service.release()
    assert tries.run(containers(service, "runs")) == run


def test_a_changed_job_is_the_same_run(service: JobRunService, tries: TaskTries) -> None:
    """The service refuses the token for other parameters: the run that has it is watched."""
    assert tries.crash(lambda: containers(service, "runs"), "after_accept")
    service.aws.fail(UNLISTED, "ListJobRuns", times=1)
    service.release()
    (run,) = service.ids()
    assert tries.run(containers(service, "runs", name="edited")) == run
    assert [one.error for one in service.requests("StartJobRun")] == [None, "ValidationException"]


def test_a_conflict_without_a_run_names_both_jobs(service: JobRunService, tries: TaskTries) -> None:
    """Nobody can say whose token it is, so nothing goes on by itself."""
    assert tries.crash(lambda: containers(service, "runs"), "after_accept")
    before = record(tries)["spec"]
    service.aws.fail(UNLISTED, "ListJobRuns", times=0)
    with pytest.raises(ResumableJobFatal, match=rf"spec on record {before}, spec now (?!{before})"):
        tries.run(containers(service, "runs", name="edited"))


def test_a_refused_argument_is_no_conflict(service: JobRunService, tries: TaskTries) -> None:
    """It is an error that a corrected Dag outlives, with the same token."""
    with pytest.raises(Exception, match=r"Release .* doesn't exist"):
        tries.run(containers(service, release_label="none"))
    tries.run(containers(service))
    assert len(service.ids()) == 1
    assert len(set(service.tokens())) == 1


@pytest.mark.parametrize("deferred", [False, True], ids=["in a worker", "in the triggerer"])
def test_a_try_that_waits_no_longer_leaves_its_run(
    service: JobRunService, tries: TaskTries, deferred: bool
) -> None:
    """The next one watches it."""
    subject = containers(service, "runs", max_polling_attempts=3)
    if deferred:
        handed = tries.defer(subject)
        with pytest.raises(JobNotSettled, match=r"still RUNNING after 3 looks.* the next try watches it"):
            handed.resume(containers(service, "runs"), handed.event(30))
    else:
        with pytest.raises(JobNotSettled, match=r"still RUNNING after 3 looks.* the next try watches it"):
            tries.run(subject)
        assert service.calls().count("DescribeJobRun") == 3
    service.release()
    tries.run(containers(service, "runs"))
    assert (len(service.ids()), service.cancels()) == (1, 0)


def test_a_run_that_is_not_waited_for_is_started_once(service: JobRunService, tries: TaskTries) -> None:
    """It is not looked at, not even after a crash; a deferred task waits all the same, as by the parent."""
    assert tries.crash(lambda: containers(service, "runs", wait_for_completion=False), "after_accept")
    (run,) = service.ids()
    assert tries.run(containers(service, "runs", wait_for_completion=False)) == run
    assert "DescribeJobRun" not in service.calls()
    deferred = TaskTries(run_id="deferred").defer(containers(service, "runs", wait_for_completion=False))
    service.release()
    assert deferred.resume(containers(service, "runs"), deferred.event(30)) == service.ids()[1]


@pytest.mark.parametrize("fault", ["throttle", "unavailable", "reset", "truncated"])
def test_an_error_that_passes_costs_no_run(service: JobRunService, tries: TaskTries, fault: Any) -> None:
    """Five of them in a row, at a look and at a submit."""
    for action in ("DescribeJobRun", "StartJobRun"):
        service.aws.fail(fault, action, times=5)
    tries.run(containers(service))
    assert (len(service.ids()), service.cancels()) == (1, 0)


def test_a_kept_run_is_untouched(service: JobRunService, tries: TaskTries) -> None:
    """An eviction and three 503s later the service was asked for nothing but the run's state."""
    assert tries.stop(containers(service, "runs"), "running") == "JobKept"
    (run,) = service.ids()
    service.aws.fail("unavailable", "DescribeJobRun", times=3)
    assert tries.stop(containers(service, "runs"), "running") == "JobKept"
    assert set(service.calls()) == {"StartJobRun", "DescribeJobRun"}
    assert service.state(run) == "RUNNING"


def test_a_run_is_watched_where_it_was_started(service: JobRunService, tries: TaskTries) -> None:
    """The Dag names another virtual cluster by then; the next run goes there."""
    assert tries.crash(lambda: containers(service, "runs"), "after_id")
    elsewhere = JobRunService(service.aws, "emr-containers")
    service.aws.fail_job(service.ids()[0])
    tries.run(containers(elsewhere))
    assert [len(service.ids()), len(elsewhere.ids())] == [1, 1]
    assert record(tries)["location"] == {"region": "us-east-1", "virtual_cluster_id": elsewhere.place}


def test_the_link_is_there_as_soon_as_the_run_is(service: JobRunService, tries: TaskTries) -> None:
    """The virtual cluster's page."""
    assert tries.crash(lambda: containers(service, "runs"), "after_id")
    page = f"https://console.aws.amazon.com/emr/home?region=us-east-1#/eks/clusters/{service.place}"
    assert tries.xcoms == [(JobLink().xcom_key, page)]
