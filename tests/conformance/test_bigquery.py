# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableBigQueryInsertJobOperator` at an emulator: locations, the provider's operator, stops, faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from airflow.providers.google.cloud.operators.bigquery import BigQueryInsertJobOperator
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout
from google.cloud.bigquery import QueryJob

from airflow_resumable.jobs.errors import JobMissing, ResumableJobFatal, StatusBudgetExhausted
from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator
from airflow_resumable.testing.bigquery.replies import answer
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.http_faults import HttpFaultProxy, path
from airflow_resumable.testing.task_tries import Crashed, TaskTries, at_point
from tests import bigquery_service as bq
from tests.bigquery_service import SUCCEEDS, BigQueryService, defaults, serving

# Of the XCom `job_id_path`, by the provider's own operator.
pytestmark = pytest.mark.filterwarnings("ignore:.*job_id_path:Warning", "ignore:.*use_legacy_sql:Warning")

GET = r"/jobs/[^/?]+"


@pytest.fixture
def service(
    bigquery: BigQueryEmulator,
    bigquery_proxy: HttpFaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[BigQueryService]:
    """Lead Google's client to the proxy."""
    yield from serving(bigquery, bigquery_proxy, tmp_path, monkeypatch)


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"))


def stock(service: BigQueryService, outcome: str, **arguments: Any) -> BigQueryInsertJobOperator:
    """Make the provider's operator, as ours is made."""
    ours = service.operator(outcome)
    return BigQueryInsertJobOperator(
        **{**defaults(SUCCEEDS), "configuration": ours.configuration, **arguments}
    )


# --- location ---


def in_belgium(service: BigQueryService, outcome: str, **arguments: Any) -> Any:
    """Make an operator that names no location; its dataset is in europe-west1."""
    dataset = {"projectId": service.emulator.project, "datasetId": "belgium"}
    service.emulator.request(
        "POST",
        f"projects/{service.emulator.project}/datasets",
        {"datasetReference": dataset, "location": "europe-west1"},
    )
    subject = service.operator(outcome, location=None, **arguments)
    subject.configuration["query"]["defaultDataset"] = dataset
    return subject


def test_a_location_is_asked_for_before_the_submit(service: BigQueryService, tries: TaskTries) -> None:
    """Nobody named it: a dry run tells; the submit and each request after it name it."""
    job_id = tries.run(in_belgium(service, "succeeds"))
    assert [(one.job_id, one.location) for one in service.inserted()] == [(job_id, "europe-west1")]
    assert tries.record(service.operator("succeeds"))["location"] == {
        "project": service.emulator.project,
        "location": "europe-west1",
    }
    assert [call.dry_run for call in service.calls()][:2] == [True, False]
    assert all(call.status == 200 for call in service.calls())


def test_a_location_that_is_not_told_is_learned_from_the_conflict(
    service: BigQueryService, tries: TaskTries
) -> None:
    """No dry run, and no answer to the submit: without a location BigQuery knows no job, a 409 tells."""
    service.proxy.fail(answer(400, "invalid"), path("POST", r"/jobs(\?|$)"))
    assert tries.crash(lambda: in_belgium(service, "runs"), "after_accept")
    service.proxy.fail(answer(400, "invalid"), path("POST", r"/jobs(\?|$)"))
    service.release()
    job_id = tries.run(in_belgium(service, "runs"))
    assert [(one.job_id, one.location) for one in service.inserted()] == [(job_id, "europe-west1")]
    lost = [call.status for call in service.calls() if call.job_id == job_id and call.status != 200]
    assert lost == [404, 409]
    assert tries.record(service.operator("runs"))["location"]["location"] == "europe-west1"


@pytest.mark.parametrize("discarded", [False, True], ids=["record kept", "record discarded"])
def test_a_clear_finds_a_job_whose_location_nobody_named(
    service: BigQueryService, tries: TaskTries, discarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker died before the answer: the job is ended before the next one is started."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__INSTALLATION_ID", "here")
    assert tries.crash(lambda: in_belgium(service, "runs"), "after_accept")
    if discarded:
        tries.discard(service.operator("runs"))
    else:
        tries.clear()
    with at_point("mid_poll", service.release):
        job_id = tries.run(in_belgium(service, "runs"))
    first, second = service.inserted()
    assert job_id == second.job_id != first.job_id
    assert [first.location, second.location] == ["europe-west1"] * 2
    kinds = [
        "insert" if call.is_insert else "cancel"
        for call in service.calls()
        if call.is_insert or call.is_cancel
    ]
    assert kinds == ["insert", "cancel", "insert"]


def test_a_clear_that_can_not_find_a_job_starts_none(service: BigQueryService, tries: TaskTries) -> None:
    """BigQuery refuses to tell the location: the task says what to do, and goes on once it is given."""
    rule = service.proxy.fail(answer(400, "invalid"), path("POST", r"/jobs(\?|$)"))
    assert tries.crash(lambda: in_belgium(service, "runs"), "after_accept")
    assert rule.hits == 1
    tries.clear()
    service.proxy.fail(answer(400, "invalid"), path("POST", r"/jobs(\?|$)"))
    with pytest.raises(ResumableJobFatal, match="Give `location`"):
        tries.run(in_belgium(service, "runs"))
    assert len(service.inserted()) == 1
    edited = in_belgium(service, "runs")
    edited.location = "europe-west1"
    with at_point("mid_poll", service.release):
        tries.run(edited)
    assert [call.location for call in service.inserted()] == ["europe-west1"] * 2
    assert service.cancels() == 1


def test_a_copy_runs_where_its_destination_is(service: BigQueryService, tries: TaskTries) -> None:
    """There is no dry run of it: the dataset's metadata tell, before the submit."""
    subject = in_belgium(service, "succeeds")
    table = {**subject.configuration["query"]["defaultDataset"], "tableId": "copied"}
    subject.configuration = {"copy": {"sourceTable": {**table, "tableId": "none"}, "destinationTable": table}}
    with pytest.raises(Exception, match="none"):
        tries.run(subject)
    assert tries.record(subject)["before"]["location"] == "europe-west1"


def test_what_was_edited_meanwhile_changes_no_name(service: BigQueryService, tries: TaskTries) -> None:
    """Job id and location of the intent are sent again, not those of the edited Dag."""
    assert tries.crash(lambda: service.operator("runs", job_id="before"), "after_intent")
    job_id = tries.run(service.operator("succeeds", job_id="after", location="EU"))
    assert job_id.startswith("before_r")
    assert [(one.job_id, one.location) for one in service.inserted()] == [(job_id, "US")]


def test_a_job_is_watched_where_it_was_started(service: BigQueryService, tries: TaskTries) -> None:
    """The Dag names another location since; a new job would go there."""
    assert tries.crash(lambda: service.operator("runs", location="EU"), "after_id")
    service.release()
    job_id = tries.run(service.operator("runs", location="US"))
    assert [(one.job_id, one.location) for one in service.inserted()] == [(job_id, "EU")]
    assert dict(tries.xcoms)["bigquery_job_detail"].endswith("!3sEU")
    tries.clear()
    tries.run(service.operator("runs", location="US"))
    assert [one.location for one in service.inserted()] == ["EU", "US"]


def test_the_connection_may_name_the_location(
    service: BigQueryService, tries: TaskTries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the provider's operator."""
    monkeypatch.setenv(bq.CONNECTION, bq.connection(service.emulator.project, location="EU"))
    tries.run(service.operator("succeeds", location=None))
    assert [one.location for one in service.inserted()] == ["EU"]


def test_a_task_without_a_project_is_told_so(
    service: BigQueryService, tries: TaskTries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the operator nor the connection names one; nothing is sent."""
    monkeypatch.setenv(bq.CONNECTION, bq.connection(""))
    with pytest.raises(ResumableJobFatal, match=r"project_id is not given, and connection 'bigquery_test'"):
        tries.run(service.operator("succeeds"))
    assert service.calls() == []


def test_a_rendered_job_id_is_judged_before_anything_is_sent(
    service: BigQueryService, tries: TaskTries
) -> None:
    """What a template has become is no beginning of an id."""
    subject = service.operator("succeeds", job_id="{{ ds }}")
    subject.job_id = "2026.01.01"
    with pytest.raises(ValueError, match=r"job_id='2026\.01\.01' is not allowed"):
        tries.run(subject)
    assert service.calls() == []
    assert tries.record(subject) is None


# --- the provider's operator ---


def _die(*_: Any, **__: Any) -> None:
    raise Crashed


def test_a_job_of_the_providers_operator_is_gone_on_with(service: BigQueryService, tries: TaskTries) -> None:
    """It was started by the one, its worker died, and the Dag was edited."""
    with mock.patch.object(QueryJob, "result", _die), pytest.raises(Crashed):
        tries.run(stock(service, "runs"))
    service.release()
    job_id = tries.run(service.operator("runs"))
    assert [one.job_id for one in service.inserted()] == [job_id]
    assert tries.record(service.operator("runs"))["location"]["location"] == "US"


def test_the_providers_operator_goes_on_with_ours(service: BigQueryService, tries: TaskTries) -> None:
    """The other way round, by the id that lies where it looks."""
    assert tries.crash(lambda: service.operator("runs"), "mid_poll")
    service.release()
    job_id = tries.run(stock(service, "runs"))
    assert [one.job_id for one in service.inserted()] == [job_id]


@pytest.mark.parametrize("interrupted", [False, True], ids=["undisturbed", "after a crash"])
def test_result_xcoms_and_labels_are_the_providers(
    service: BigQueryService, tries: TaskTries, interrupted: bool
) -> None:
    """But for the id, and for links that are URLs from the start; and one label more."""
    theirs, other = TaskTries(run_id="stock"), stock(service, "succeeds")
    expected = theirs.run(other)
    if interrupted:
        assert tries.crash(lambda: service.operator("succeeds"), "after_accept")
    job_id = tries.run(service.operator("succeeds"))
    ours = dict(tries.xcoms)
    assert ours["job_id_path"] == dict(theirs.xcoms)["job_id_path"].replace(expected, job_id)
    assert {"job_id_path", "bigquery_job_detail"} <= set(ours)
    assert set(dict(theirs.xcoms)) <= set(ours)
    assert ours["bigquery_job_detail"].endswith(f"!1s{service.emulator.project}!2s{job_id}!3sUS")
    jobs = [service.emulator.job(one.job_id, one.location) for one in service.inserted()]
    labels = [job["configuration"]["labels"] for job in jobs if job is not None]
    token = tries.record(service.operator("succeeds"))["token"]
    assert labels[1] == {**labels[0], "airflow-resumable-token": token}


def test_links_are_there_while_the_job_runs(service: BigQueryService, tries: TaskTries) -> None:
    """Whoever opens the task's page finds the job."""
    assert tries.crash(lambda: service.operator("runs"), "after_id")
    url = dict(tries.xcoms)["bigquery_job_detail"]
    assert url.startswith("https://console.cloud.google.com/bigquery?project=")
    assert service.inserted()[0].job_id in url


def test_a_failure_is_told_in_the_providers_words(service: BigQueryService, tries: TaskTries) -> None:
    """With BigQuery's own reason and message."""
    with pytest.raises(AirflowException, match=r"^BigQuery job airflow_\w+ failed: \{.*notFound"):
        tries.run(service.operator("fails"))
    record = tries.record(service.operator("fails"))
    assert (record["phase"], record["last_status"]) == ("failed", "error: notFound")


def test_a_reconnect_begins_nothing(service: BigQueryService, tries: TaskTries) -> None:
    """It neither submits nor asks how the job has failed before the job has ended."""
    assert tries.crash(lambda: service.operator("runs"), "mid_poll")
    before, asked = len(service.calls()), []
    subject = service.operator("runs")

    def handle(job: Any) -> None:
        asked.append(job.state)
        BigQueryInsertJobOperator._handle_job_error(subject, job)

    with mock.patch.object(subject, "_handle_job_error", handle), at_point("mid_poll", service.release):
        tries.run(subject)
    assert {call.method for call in service.calls()[before:]} == {"GET"}
    assert asked == ["DONE"]


def test_a_job_that_is_no_query(service: BigQueryService, tries: TaskTries) -> None:
    """A copy: watched by `jobs.get` alone; its links are those of the tables."""
    emulator = service.emulator
    emulator.insert("make_shop", "CREATE SCHEMA IF NOT EXISTS shop")
    emulator.request("GET", f"projects/{emulator.project}/queries/make_shop", location="US")
    emulator.insert("make_sales", "CREATE OR REPLACE TABLE shop.sales AS SELECT 1 AS a")
    emulator.request("GET", f"projects/{emulator.project}/queries/make_sales", location="US")
    here, there = (
        {"projectId": emulator.project, "datasetId": "shop", "tableId": name} for name in ("sales", "copied")
    )
    before = len(service.calls())
    subject = service.operator(
        "succeeds", configuration={"copy": {"sourceTable": here, "destinationTable": there}}
    )
    job_id = tries.run(subject)
    assert [one.job_id for one in service.inserted()][-1] == job_id
    assert not any("/queries/" in call.path for call in service.calls()[before:])
    assert "t=copied" in dict(tries.xcoms)["bigquery_table"]


def test_a_dry_run_starts_no_job(service: BigQueryService, tries: TaskTries) -> None:
    """So there is nothing to record."""
    subject = service.operator("succeeds")
    subject.configuration["dryRun"] = True
    assert tries.run(subject) is None
    assert tries.record(subject) is None
    assert service.inserted() == []
    assert [call.dry_run for call in service.calls()] == [True]


def test_not_durable_is_the_providers_own(service: BigQueryService, tries: TaskTries) -> None:
    """Each try submits, under a random id."""
    first, second = (tries.run(service.operator("succeeds", durable=False)) for _ in range(2))
    assert [one.job_id for one in service.inserted()] == [first, second]
    assert tries.record(service.operator("succeeds")) is None


# --- clears that have discarded the record, as Airflow 3.4 does ---


FORCE_RERUN = pytest.mark.parametrize("force_rerun", [True, False], ids=["force_rerun", "not force_rerun"])


@FORCE_RERUN
def test_a_live_job_of_before_the_clear_is_found_and_ended(
    service: BigQueryService, tries: TaskTries, force_rerun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the id that it must have; then the job is started again, once."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__INSTALLATION_ID", "here")
    assert tries.crash(lambda: service.operator("runs", force_rerun=force_rerun), "after_id")
    tries.discard(service.operator("runs"))
    with at_point("mid_poll", service.release):
        job_id = tries.run(service.operator("runs", force_rerun=force_rerun))
    first, second = service.inserted()
    assert job_id == second.job_id != first.job_id
    assert service.cancels() == 1
    ended = service.emulator.job(first.job_id)
    assert ended is not None
    assert ended["status"]["errorResult"]["reason"] == "stopped"


@FORCE_RERUN
def test_an_ended_job_of_before_the_clear_is_run_again(
    service: BigQueryService, tries: TaskTries, force_rerun: bool
) -> None:
    """Also where its id is made of the configuration: a user's clear is a reason."""
    tries.run(service.operator("succeeds", force_rerun=force_rerun))
    tries.discard(service.operator("succeeds"))
    job_id = tries.run(service.operator("succeeds", force_rerun=force_rerun))
    assert [call.job_id for call in service.inserted()][1:] == [job_id]


# --- stops ---


@pytest.mark.parametrize("how", ["SIGTERM", "time-out"])
def test_a_kept_job_is_untouched(service: BigQueryService, tries: TaskTries, how: str) -> None:
    """Same job, same labels, no cancel; and the next try watches it."""
    subject = service.operator("runs")
    if how == "SIGTERM":
        assert tries.stop(subject, "running") == "JobKept"
    else:

        def time_out() -> None:
            subject.on_kill()
            raise AirflowTaskTimeout("execution_timeout")

        with at_point("mid_poll", time_out), pytest.raises(AirflowTaskTimeout):
            tries.run(subject)
    started = service.inserted()[0]
    before = service.emulator.job(started.job_id)
    service.release()
    assert tries.run(service.operator("runs")) == started.job_id
    after = service.emulator.job(started.job_id)
    assert before is not None
    assert after is not None
    assert before["configuration"]["labels"] == after["configuration"]["labels"]
    assert before["statistics"]["creationTime"] == after["statistics"]["creationTime"]
    assert (len(service.inserted()), service.cancels()) == (1, 0)


@pytest.mark.parametrize("kept", [False, True], ids=["cancel_on_kill", "not cancel_on_kill"])
def test_a_users_stop_goes_by_cancel_on_kill(service: BigQueryService, tries: TaskTries, kept: bool) -> None:
    """Marked failed."""
    tries.stop(service.operator("runs", cancel_on_kill=not kept), "failed")
    assert service.cancels() == (0 if kept else 1)
    assert [job.live for job in service.jobs()] == [kept]


def test_a_cancel_has_a_limit(service: BigQueryService, tries: TaskTries) -> None:
    """BigQuery doesn't answer: the attempt ends all the same, and the record stays."""
    held = service.proxy.hold(path("POST", "/cancel"))
    assert tries.stop(service.operator("runs"), "failed") == "JobKept"
    assert held.arrived
    held.release()
    assert tries.record(service.operator("runs"))["phase"] == "submitted"


@pytest.mark.parametrize("fault", ["unauthorized", "unavailable", "denied"])
def test_a_refused_cancel_is_said(
    service: BigQueryService, tries: TaskTries, fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As not cancelled; the record is kept."""
    service.proxy.fail(fault, path("POST", "/cancel"), times=0)
    tries.stop(service.operator("runs"), "failed")
    assert "NOT cancelled" in caplog.text
    assert tries.record(service.operator("runs"))["phase"] == "submitted"


# --- faults ---


@pytest.mark.parametrize("fault", ["error", "unavailable", "throttle", "reset", "truncated"])
def test_three_faults_while_polling_cost_nothing(
    service: BigQueryService, tries: TaskTries, fault: Any
) -> None:
    """Neither the job nor the try; the longer wait for the query's end may fail as well."""
    spoiled = service.proxy.fail(fault, path("GET", GET), times=3, after=1)
    service.proxy.fail(fault, path("GET", "/queries/"), times=1)

    def go_on() -> None:
        if spoiled.hits >= 3:
            service.release()

    with at_point("mid_poll", go_on):
        tries.run(service.operator("runs"))
    assert spoiled.hits == 3
    assert (len(service.inserted()), service.cancels()) == (1, 0)


@pytest.mark.parametrize("fault", ["throttle", "unavailable", "reset", "truncated"])
def test_a_fault_at_the_submit_starts_no_second_job(
    service: BigQueryService, tries: TaskTries, fault: Any
) -> None:
    """Google's client sends it again with the same id."""
    spoiled = service.proxy.fail(fault, path("POST", r"/jobs(\?|$)"), times=2)
    tries.run(service.operator("succeeds"))
    assert spoiled.hits == 2
    assert len(service.inserted()) == 1


@pytest.mark.parametrize("lost", [False, True], ids=["answered 200", "answered 409"])
def test_a_job_that_is_not_shown_at_once_is_no_missing_one(
    service: BigQueryService, tries: TaskTries, lost: bool
) -> None:
    """BigQuery has named it, and for a while answers 404 (python-bigquery issue 2134)."""
    if lost:
        service.proxy.fail("lost_reply", path("POST", r"/jobs(\?|$)"))
    hidden = service.proxy.fail(answer(404, "notFound"), path("GET", GET), times=4)
    tries.run(service.operator("succeeds"))
    assert hidden.hits == 4
    assert len(service.inserted()) == 1


def test_a_submit_that_is_never_answered_has_an_end(
    service: BigQueryService, tries: TaskTries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job was started, the answer hangs: the submit is sent again, and its 409 names the job."""
    monkeypatch.setattr("airflow_resumable.operators._bigquery_hook.REQUEST_LIMIT", 0.5)
    held = service.proxy.hold(path("POST", r"/jobs(\?|$)"), when="answered")
    job_id = tries.run(service.operator("succeeds"))
    assert held.arrived
    assert [one.job_id for one in service.inserted()] == [job_id]


def test_a_used_up_budget_leaves_the_job_alone(service: BigQueryService, tries: TaskTries) -> None:
    """Also in the last try."""
    assert tries.crash(lambda: service.operator("runs"), "after_id")
    service.proxy.fail("unavailable", path("GET", GET), times=0)
    with pytest.raises(StatusBudgetExhausted):
        tries.run(service.operator("runs"), {"status_error_budget": 0}, try_number=tries.max_tries + 1)
    assert service.cancels() == 0
    assert [job.live for job in service.jobs()] == [True]


def test_a_refused_look_is_no_missing_job(service: BigQueryService, tries: TaskTries) -> None:
    """The permission was taken away: loud, and nothing is started."""
    assert tries.crash(lambda: service.operator("runs"), "after_id")
    service.proxy.fail("denied", path("GET", GET), times=0)
    with pytest.raises(Exception, match="403") as refused:
        tries.run(service.operator("runs"))
    assert not isinstance(refused.value, JobMissing)
    assert len(service.inserted()) == 1


def test_a_quota_error_of_a_request_is_not_waited_out(service: BigQueryService, tries: TaskTries) -> None:
    """A day's quota is not there again in ten minutes: the try fails, and the next one submits."""
    service.proxy.fail(answer(403, "quotaExceeded"), path("POST", r"/jobs(\?|$)"))
    with pytest.raises(Exception, match="403"):
        tries.run(service.operator("succeeds"))
    assert service.inserted() == []
    tries.run(service.operator("succeeds"))
    assert len(service.inserted()) == 1
