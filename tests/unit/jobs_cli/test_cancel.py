# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""``airflow-resumable jobs reconcile --cancel``: exactly that job, and none that an attempt may own."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import Select, event
from sqlalchemy.dialects import registry
from sqlalchemy.orm import ORMExecuteState, Session

from airflow_resumable.testing.jobservice.process import JobService
from tests import metadata
from tests.jobs_commands import Jobs, requests

HELD = ["running", "queued", "deferred", "up_for_reschedule", "scheduled", "restarting"]
AT_WORK = [*HELD, "up_for_retry", None]
OVER = ["success", "failed", "skipped", "upstream_failed", "removed"]


@pytest.mark.parametrize("state", OVER)
def test_a_job_alive_after_its_tasks_end_is_an_orphan(
    run: metadata.Run, jobs: Jobs, service: JobService, state: str
) -> None:
    """Found in each final state, and cancelled by its id, once."""
    job = run.start()
    run.record(job)
    run.set_state(state, tries=3)
    (finding,) = jobs.findings()
    assert (finding["kind"], finding["job"]["external_id"]) == ("orphan", job)
    assert jobs.findings("--dry-run") == [finding]
    assert requests(service, "cancel", job) == []
    jobs.json("reconcile", "--cancel", job, status=0)
    assert len(requests(service, "cancel", job)) == 1


@pytest.mark.parametrize("state", AT_WORK)
def test_a_job_that_an_attempt_may_own_is_never_cancelled(
    run: metadata.Run, jobs: Jobs, service: JobService, state: str | None
) -> None:
    """Neither a single live job, which is no finding, nor one of two, which is."""
    job = run.start()
    run.record(job)
    run.set_state(state)
    assert jobs.findings(status=0) == []
    assert "no such job among the findings" in jobs.refused("--cancel", job)
    second = run.start(generation=2)
    assert {one["kind"] for one in jobs.findings()} == {"double"}
    for one in (job, second):
        assert "an attempt may own the job" in jobs.refused("--cancel", one)
        assert requests(service, "cancel", one) == []


def test_a_task_cleared_between_the_look_and_the_request_keeps_its_job(
    run: metadata.Run, jobs: Jobs, service: JobService
) -> None:
    """The task's state is read again right before the request: refused, nothing is sent."""
    job = run.start()
    run.record(job)
    run.set_state("failed")
    # By the family's listing it is found; the first status request is the one right before the cancel.
    fault = service.client().add_fault("status", "hold", job=job)

    def clear() -> None:
        service.wait_for_request("status", job=job)
        run.set_state(None)
        service.client().delete_fault(fault)

    thread = threading.Thread(target=clear)
    thread.start()
    refused = jobs.refused("--cancel", job)
    thread.join()
    assert "the task is none again" in refused
    assert requests(service, "cancel", job) == []


def test_a_refused_cancel_is_told(run: metadata.Run, jobs: Jobs, service: JobService) -> None:
    """Status 4 with the service's answer, and the job is still a finding."""
    job = run.start()
    run.record(job)
    run.set_state("failed")
    service.client().add_fault("cancel", "refuse_cancel", job=job)
    assert "was NOT cancelled" in jobs.refused("--cancel", job)
    assert len(jobs.findings()) == 1


def test_a_job_known_by_its_family_alone_needs_an_installation_id_to_be_cancelled(
    dag: str, service: JobService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``[resumable] installation_id`` it may be another installation's."""
    for installation in ("", "ours"):
        monkeypatch.setenv("AIRFLOW__RESUMABLE__INSTALLATION_ID", installation)
        run = metadata.Run(dag, service, installation)
        jobs = Jobs(run, capsys)
        run.record("lost", "failed")
        stray = run.start(generation=2)
        run.set_state("failed")
        (finding,) = jobs.findings()
        assert (finding["kind"], finding["job"]["on_record"]) == ("orphan", False)
        if installation:
            jobs.json("reconcile", "--cancel", stray, status=0)
        else:
            assert "installation_id" in jobs.refused("--cancel", stray)
        assert len(requests(service, "cancel", stray)) == bool(installation)


def test_a_cancel_that_the_service_did_not_take_is_sent_again(
    run: metadata.Run, jobs: Jobs, service: JobService
) -> None:
    """One 503 is no reason to leave the job alone."""
    job = run.start()
    run.record(job)
    run.set_state("failed")
    service.client().add_fault("cancel", "unavailable", job=job)
    jobs.json("reconcile", "--cancel", job, status=0)
    assert len(requests(service, "cancel", job)) == 2


def test_a_task_cleared_between_two_requests_keeps_its_job(
    run: metadata.Run, jobs: Jobs, service: JobService
) -> None:
    """Before each request the task's state is read again: the service can't be made to take a later one."""
    job = run.start()
    run.record(job)
    run.set_state("failed")
    fault = service.client().add_fault("cancel", "unavailable", times=0, job=job)

    def clear() -> None:
        service.wait_for_request("cancel", job=job)
        run.set_state(None)
        service.client().delete_fault(fault)

    thread = threading.Thread(target=clear)
    thread.start()
    refused = jobs.refused("--cancel", job)
    thread.join()
    assert "the task is none again" in refused
    assert service.client().status(job)["status"] == "RUNNING"


def test_the_row_is_read_for_update_right_before_the_request(
    run: metadata.Run, jobs: Jobs, service: JobService
) -> None:
    """So no attempt can write the record meanwhile, where the database has row locks; SQLite has none."""
    locking: list[Select[Any]] = []

    def note(state: ORMExecuteState) -> None:
        if isinstance(state.statement, Select) and state.statement._for_update_arg is not None:
            locking.append(state.statement)

    job = run.start()
    run.record(job)
    run.set_state("failed")
    event.listen(Session, "do_orm_execute", note)
    try:
        jobs.json("reconcile", "--cancel", job, status=0)
    finally:
        event.remove(Session, "do_orm_execute", note)
    (one,) = locking
    postgresql = registry.load("postgresql")
    assert "FOR UPDATE OF task_state_store" in str(one.compile(dialect=postgresql()))
