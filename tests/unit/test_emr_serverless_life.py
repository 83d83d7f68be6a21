# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `ResumableEmrServerlessStartJobOperator` does while its run lives, on a stand-in for AWS."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from tenacity import wait_fixed

from airflow_resumable.jobs import transient
from airflow_resumable.jobs.errors import JobNotSettled, ResumableJobFatal, StatusBudgetExhausted
from airflow_resumable.operators import _emr_run_search, emr_serverless
from airflow_resumable.testing.aws import ROLE, AwsService
from airflow_resumable.testing.http_faults import Reply
from airflow_resumable.testing.task_tries import Crashed, TaskTries, at_point
from tests.emr_job_runs import JobRunService, cut_off, cut_off_connects, reach, serverless

__all__ = ["cut_off"]
pytestmark = [cut_off_connects, pytest.mark.usefixtures("cut_off")]

UNLISTED = Reply(200, {"jobRuns": []})


@pytest.fixture
def service(aws: AwsService, monkeypatch: pytest.MonkeyPatch) -> JobRunService:
    """An application without runs; whoever asks again does so soon."""
    reach(aws, monkeypatch)
    monkeypatch.setattr(transient, "wait_random_exponential", lambda **_: wait_fixed(0.02))
    return JobRunService(aws, "emr-serverless")


@pytest.fixture
def tries() -> TaskTries:
    """One task instance."""
    return TaskTries()


def running(tries: TaskTries, service: JobRunService, **more: Any) -> str:
    """Leave a run whose watcher is gone."""
    assert tries.crash(lambda: serverless(service, "runs", **more), "after_id")
    return service.ids()[-1]


def record(tries: TaskTries) -> Any:
    return tries.record(emr_serverless.ResumableEmrServerlessStartJobOperator)


# --- tokens ---


def test_a_token_outlives_a_crash_and_not_a_failure(service: JobRunService, tries: TaskTries) -> None:
    """Sent again after a crash it starts no run; after a failure a new one does."""
    assert tries.crash(lambda: serverless(service, "fails"), "after_accept")
    service.aws.fail(UNLISTED, "ListJobRuns", times=1)
    with pytest.raises(AirflowException, match="ended as FAILED"):
        tries.run(serverless(service, "fails"))
    tries.run(serverless(service))
    first, again, last = service.tokens()
    assert len(service.ids()) == 2
    assert first == again != last
    assert first[:17] == last[:17]


def test_a_submit_that_is_sent_again_starts_no_second_run(service: JobRunService, tries: TaskTries) -> None:
    """The service has forgotten to list the run, and knows its token still."""
    assert tries.crash(lambda: serverless(service, "runs"), "after_accept")
    service.aws.fail(UNLISTED, "ListJobRuns", times=1)
    service.release()
    tries.run(serverless(service, "runs"))
    assert len(service.tokens()) == 2
    assert len(service.ids()) == len(set(service.tokens())) == 1


def test_a_run_says_its_token_behind_the_users_name(service: JobRunService, tries: TaskTries) -> None:
    """Whether the name is an argument, in `config`, or left out."""
    for more in ({"name": "nightly load"}, {"config": {"name": "nightly load"}}, {}):
        tries = TaskTries(run_id=str(more))
        tries.run(serverless(service, **more))
    names = [str(one.parameters["name"]) for one in service.requests("StartJobRun")]
    begins = ["nightly load-", "nightly load-", "emr_serverless_job_airflow-"]
    assert names == [f"{begin}{token}" for begin, token in zip(begins, service.tokens(), strict=True)]


def test_a_changed_job_is_the_same_run(service: JobRunService, tries: TaskTries) -> None:
    """The service refuses the token for other parameters: the run that has it is watched."""
    assert tries.crash(lambda: serverless(service, "runs"), "after_accept")
    service.aws.fail(UNLISTED, "ListJobRuns", times=1)
    service.release()
    (run,) = service.ids()
    assert tries.run(serverless(service, "runs", name="edited since")) == run
    assert [one.error for one in service.requests("StartJobRun")] == [None, "ConflictException"]


def test_a_conflict_without_a_run_names_both_jobs(service: JobRunService, tries: TaskTries) -> None:
    """Nobody can say whose token it is, so nothing goes on by itself."""
    assert tries.crash(lambda: serverless(service, "runs"), "after_accept")
    before = record(tries)["spec"]
    service.aws.fail(UNLISTED, "ListJobRuns", times=0)
    with pytest.raises(ResumableJobFatal, match=rf"spec on record {before}, spec now (?!{before})"):
        tries.run(serverless(service, "runs", name="edited since"))


def test_a_conflict_of_a_stopping_application_is_none_of_tokens(
    service: JobRunService, tries: TaskTries
) -> None:
    """It is an error that the next try may outlive."""
    conflict = Reply(409, {"message": "in the wrong state"}, {"x-amzn-errortype": "ConflictException"})
    service.aws.fail(conflict, "StartJobRun", times=1)
    stopping = Reply(200, {"application": {"applicationId": service.place, "state": "STOPPING"}})
    service.aws.fail(stopping, "GetApplication", times=1, after=1)
    with pytest.raises(Exception, match="ConflictException"):
        tries.run(serverless(service))
    tries.run(serverless(service))
    assert len(service.ids()) == 1


@pytest.mark.parametrize(("age", "created"), [(0.0, True), (60.0, False)])
def test_a_run_that_is_older_than_its_submit_was_there(
    service: JobRunService, tries: TaskTries, age: float, created: bool
) -> None:
    """The service answers a submit alike for a new run and for one that the token had."""
    operator = serverless(service)
    assert operator.was_job_created() is None
    tries.run(operator)
    run = {"state": "SUCCESS", "createdAt": time.time() - age}
    service.aws.fail(Reply(200, {"jobRun": run}), "GetJobRun")
    assert operator.was_job_created() is created


# --- the application ---


def test_an_application_is_started_for_a_submit_only(service: JobRunService, tries: TaskTries) -> None:
    """A stopped one is started and waited for; a try that finds its run doesn't ask for it."""
    client = service.aws.client("emr-serverless")
    client.stop_application(applicationId=service.place)
    run = running(tries, service)
    assert service.calls()[:3] == ["GetApplication", "StartApplication", "GetApplication"]
    client.stop_application(applicationId=service.place)
    asked = len(service.calls())
    service.aws.finish(run)
    assert tries.run(serverless(service, "runs")) == run
    assert set(service.calls()[asked:]) == {"GetJobRun"}


# --- how long a try waits ---


@pytest.mark.parametrize("deferred", [False, True], ids=["in a worker", "in the triggerer"])
def test_a_try_that_waits_no_longer_leaves_its_run(
    service: JobRunService, tries: TaskTries, deferred: bool
) -> None:
    """The next one watches it; the parent would have cancelled it."""
    if deferred:
        handed = tries.defer(serverless(service, "runs", waiter_max_attempts=3))
        with pytest.raises(JobNotSettled, match=r"still RUNNING after 3 looks.* the next try watches it"):
            handed.resume(serverless(service, "runs"), handed.event(30))
    else:
        with pytest.raises(JobNotSettled, match=r"still RUNNING after 3 looks.* the next try watches it"):
            tries.run(serverless(service, "runs", waiter_max_attempts=3))
        assert service.calls().count("GetJobRun") == 3
    assert [job.live for job in service.jobs()] == [True]
    service.release()
    tries.run(serverless(service, "runs"))
    assert (len(service.ids()), service.cancels()) == (1, 0)


def test_the_last_try_that_waits_no_longer_cancels(service: JobRunService, tries: TaskTries) -> None:
    """Nobody will watch it any more: `on_final_failure`."""
    with pytest.raises(JobNotSettled):
        tries.run(serverless(service, "runs", waiter_max_attempts=2), try_number=3)
    assert service.cancels() == 1


def test_a_run_that_is_not_waited_for_is_started_once(service: JobRunService, tries: TaskTries) -> None:
    """It is not looked at, not even after a crash, until a clear asks for its end."""
    more = {"wait_for_completion": False, "deferrable": True}
    assert tries.crash(lambda: serverless(service, "runs", **more), "after_accept")
    (run,) = service.ids()
    assert tries.run(serverless(service, "runs", **more)) == run
    assert tries.run(serverless(service, "runs", **more)) == run
    assert "GetJobRun" not in service.calls()
    tries.clear()
    tries.run(serverless(service, "runs", **more))
    assert [job.live for job in service.jobs()] == [False, True]


# --- errors that pass ---


@pytest.mark.parametrize("fault", ["throttle", "unavailable", "reset", "truncated", "error"])
def test_an_error_that_passes_costs_no_run(service: JobRunService, tries: TaskTries, fault: Any) -> None:
    """Five of them in a row, at a look and at a submit."""
    for action in ("GetJobRun", "StartJobRun"):
        service.aws.fail(fault, action, times=5)
    tries.run(serverless(service))
    assert (len(service.ids()), service.cancels()) == (1, 0)


def test_credentials_that_expire_again_and_again(service: JobRunService, tries: TaskTries) -> None:
    """Every third request is refused, for thirty looks."""
    spoiled = service.aws.fail("expired_token", "*", times=0, every=3)
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 30:
            service.release()

    with at_point("mid_poll", look):
        tries.run(serverless(service, "runs"))
    assert len(service.ids()) == 1
    assert spoiled.hits >= 10


def test_a_used_up_budget_leaves_the_run(service: JobRunService, tries: TaskTries) -> None:
    """Also in the last try: it may be alive and well."""
    running(tries, service)
    service.aws.fail("unavailable", "GetJobRun", times=0)
    with pytest.raises(StatusBudgetExhausted):
        tries.run(serverless(service, "runs"), {"status_error_budget": 0.1}, try_number=3)
    assert (service.cancels(), [job.live for job in service.jobs()]) == (0, [True])


def test_a_kept_run_is_untouched(service: JobRunService, tries: TaskTries) -> None:
    """An eviction and three 503s later the service was asked for nothing but the run's state."""
    assert tries.stop(serverless(service, "runs"), "running") == "JobKept"
    (run,) = service.ids()
    service.aws.fail("unavailable", "GetJobRun", times=3)
    assert tries.stop(serverless(service, "runs"), "running") == "JobKept"
    assert set(service.calls()) == {"GetApplication", "StartJobRun", "GetJobRun"}
    assert service.state(run) == "RUNNING"


@pytest.mark.parametrize("fault", ["unavailable", "unauthorized"])
def test_a_cancel_that_is_refused_is_said(
    service: JobRunService, tries: TaskTries, caplog: pytest.LogCaptureFixture, fault: Any
) -> None:
    """The record is kept, and a later clear ends the run."""
    run = running(tries, service)
    service.aws.fail(fault, "CancelJobRun", times=0)
    assert tries.stop(serverless(service, "runs"), "failed") == "JobKept"
    assert f"job '{run}' was NOT cancelled" in caplog.text
    assert record(tries)["external_id"] == run
    service.aws.proxy.heal()
    tries.clear()
    tries.run(serverless(service))
    assert service.state(run) == "CANCELLED"


# --- places ---


def test_a_run_is_watched_where_it_was_started(service: JobRunService, tries: TaskTries) -> None:
    """The Dag names another application by then; the next run goes there."""
    run = running(tries, service)
    elsewhere = JobRunService(service.aws, "emr-serverless")
    service.aws.fail_job(run)
    tries.run(serverless(elsewhere))
    assert [len(service.ids()), len(elsewhere.ids())] == [1, 1]
    assert record(tries)["location"] == {"region": "us-east-1", "application_id": elsewhere.place}


def test_a_lost_id_is_looked_for_where_it_was_to_be_started(service: JobRunService, tries: TaskTries) -> None:
    """Also when the Dag names another application by then."""
    assert tries.crash(lambda: serverless(service, "runs"), "after_accept")
    elsewhere = JobRunService(service.aws, "emr-serverless")
    service.release()
    (run,) = service.ids()
    assert tries.run(serverless(elsewhere, "runs")) == run
    assert elsewhere.ids() == []
    assert record(tries)["location"] == {"region": "us-east-1", "application_id": service.place}


def test_a_search_has_an_end(
    service: JobRunService, tries: TaskTries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many pages, and then an error rather than another run."""
    assert tries.crash(lambda: serverless(service, "runs"), "after_intent")
    client = service.aws.client("emr-serverless")
    driver = {"sparkSubmit": {"entryPoint": "another"}}
    for number in range(5):
        client.start_job_run(
            applicationId=service.place,
            clientToken=f"other-{number}",
            executionRoleArn=ROLE,
            jobDriver=driver,
        )
    monkeypatch.setattr(emr_serverless, "_PAGE", 2)
    monkeypatch.setattr(_emr_run_search, "MOST_PAGES", 2)
    with pytest.raises(ResumableJobFatal, match=r"since .* has more job runs than are read"):
        tries.run(serverless(service))
    assert service.ids() == []
    monkeypatch.setattr(_emr_run_search, "MOST_PAGES", 3)
    tries.run(serverless(service))
    assert len(service.ids()) == 1


# --- links ---


def test_the_links_are_there_as_soon_as_the_run_is(service: JobRunService, tries: TaskTries) -> None:
    """Those that are plain text; no dashboard is asked for, and a reconnect has them too."""
    monitoring = {
        "s3MonitoringConfiguration": {"logUri": "s3://logs/spark"},
        "cloudWatchLoggingConfiguration": {"enabled": True},
    }
    more = {
        "configuration_overrides": {"monitoringConfiguration": monitoring},
        "enable_application_ui_links": True,
    }
    run = running(tries, service, **more)
    first, tries.xcoms = dict(tries.xcoms), []
    assert set(first) == {
        "emr_serverless_s3_logs",
        "emr_serverless_cloudwatch_logs",
        "emr_serverless_dashboard",
        "emr_serverless_logs",
        "_link_EmrServerlessS3LogsLink",
        "_link_EmrServerlessCloudWatchLogsLink",
        "_link_JobLink",
    }
    assert first["_link_EmrServerlessS3LogsLink"] == (
        "https://console.aws.amazon.com/s3/buckets/logs?region=us-east-1"
        f"&prefix=spark/applications/{service.place}/jobs/{run}/"
    )
    with at_point("mid_poll", _die), pytest.raises(Crashed):
        tries.run(serverless(service, "runs", **more))
    assert dict(tries.xcoms) == first
    assert "GetDashboardForJobRun" not in service.calls()


def test_the_runs_page_is_in_the_studio_of_the_connection(
    service: JobRunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its extra names one."""
    studio = "https://es-1.emrstudio-prod.us-east-1.amazonaws.com/"
    connection = json.dumps({"conn_type": "aws", "extra": {"emr-studio-url": studio}})
    monkeypatch.setenv("AIRFLOW_CONN_STUDIO", connection)
    context: Any = {}
    operator = serverless(service, aws_conn_id="studio", region_name="us-east-1")
    assert operator.get_job_url("run", context) == f"{studio}#/serverless-applications/{service.place}/run"


def _die() -> None:
    raise Crashed
