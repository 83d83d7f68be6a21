# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""``airflow-resumable jobs reconcile --forget``: one record closed, and none that is still needed."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from airflow_resumable.testing.jobservice.process import JobService
from tests import metadata
from tests.jobs_commands import Jobs

HELD = ["running", "queued", "deferred", "up_for_reschedule", "scheduled", "restarting"]


def test_forget_closes_the_record_and_the_parents_keys(run: metadata.Run, jobs: Jobs) -> None:
    """The generation goes on counting, so the next attempt's token is a new one; other keys are left."""
    record = run.record("job-lost", generation=3)
    run.put("local_job_id", "job-lost")
    run.put("mine", 1)
    run.set_state("up_for_retry")
    assert "generation 4" in jobs.text("reconcile", "--forget", "job-lost", status=0)
    stored = run.stored()
    closed = stored.pop("resumable.local_job_id")
    assert stored == {"mine": 1}
    assert (closed["phase"], closed["generation"], closed["token"]) == ("cancelled", 3, record.token)
    assert "forgotten by hand" in closed["last_status"]
    assert closed["unsettled"] == []


def test_a_forgotten_intent_is_named_by_its_token(run: metadata.Run, jobs: Jobs) -> None:
    """An intent has no id; refused as soon as a job with its token is alive."""
    run.record(None, "intent")
    run.set_state("failed")
    jobs.json("reconcile", "--forget", run.token(), status=0)
    assert run.stored()["resumable.local_job_id"]["phase"] == "cancelled"
    run.record(None, "intent")
    run.start()
    before = run.stored()
    assert "alive" in jobs.refused("--forget", run.token())
    assert run.stored() == before


@pytest.mark.parametrize("state", HELD)
def test_a_record_that_an_attempt_holds_is_not_forgotten(run: metadata.Run, jobs: Jobs, state: str) -> None:
    """While an attempt is at work, or about to be, the record stays as it is."""
    run.record("job-lost", "failed")
    run.set_state(state)
    before = run.stored()
    assert f"the task is {state}" in jobs.refused("--forget", "job-lost")
    assert run.stored() == before


def test_a_record_written_meanwhile_is_not_forgotten(
    run: metadata.Run, jobs: Jobs, service: JobService
) -> None:
    """An attempt's write between the look and the change wins."""
    run.record("job-lost")
    run.set_state("failed")
    fault = service.client().add_fault("find", "hold", family=run.family("job"))

    def write() -> None:
        service.wait_for_request("find", family=run.family("job"))
        run.record("job-new", generation=2)
        service.client().delete_fault(fault)

    thread = threading.Thread(target=write)
    thread.start()
    refused = jobs.refused("--forget", "job-lost")
    thread.join()
    assert "changed meanwhile" in refused
    assert run.stored()["resumable.local_job_id"]["external_id"] == "job-new"


def test_a_record_without_an_adapter_is_not_forgotten(run: metadata.Run, jobs: Jobs) -> None:
    """What can't be asked for can't be shown to be dead."""
    run.record("j", task="function", key="other")
    assert "can't be shown" in jobs.refused("--forget", "j")
    assert "no record has this job" in jobs.refused("--forget", "nothing")


def test_an_id_that_two_tasks_have_is_refused(run: metadata.Run, jobs: Jobs) -> None:
    """It has to be said which is meant."""
    run.record("same", "failed")
    run.record("same", "failed", task="mapped", map_index=0)
    assert "several records" in jobs.refused("--forget", "same")
    jobs.json("reconcile", "--forget", "same", "--task-id", "job", status=0)


def test_a_value_kept_outside_by_the_workers_backend_is_fetched(
    run: metadata.Run, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``[workers] state_store_backend``: read and written through it; without it, what to do is said."""
    from airflow.sdk.execution_time.context import _get_worker_state_store_backend

    record = run.record("j-lost", "failed")
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps(record.dump()), encoding="utf-8")
    run.put("resumable.local_job_id", {"__airflow_state_ref__": str(outside)})
    (listed,) = jobs.json("list", status=3)["records"]
    assert "[workers] state_store_backend" in listed["error"]

    monkeypatch.setenv("AIRFLOW__WORKERS__STATE_STORE_BACKEND", "tests.metadata.FileBackend")
    _get_worker_state_store_backend.cache_clear()
    try:
        (listed,) = jobs.json("list", status=0)["records"]
        assert listed["external_id"] == "j-lost"
        jobs.json("reconcile", "--forget", "j-lost", status=0)
        assert run.stored()["resumable.local_job_id"] == {"__airflow_state_ref__": str(outside)}
        assert json.loads(outside.read_text(encoding="utf-8"))["phase"] == "cancelled"
    finally:
        _get_worker_state_store_backend.cache_clear()


@pytest.mark.parametrize("overtaken", [False, True])
def test_the_token_of_a_forgotten_intent_stays_on_record(
    run: metadata.Run, jobs: Jobs, overtaken: bool
) -> None:
    """A stopped attempt may still submit with it, so the next one has to look for that job; noted once."""
    record = run.record(None, "intent")
    run.put("resumable.local_job_id", record.with_(unsettled=(record.token,) * overtaken).dump())
    run.set_state("failed")
    jobs.json("reconcile", "--forget", record.token, status=0)
    assert run.stored()["resumable.local_job_id"]["unsettled"] == [record.token]


def test_an_intent_is_not_named_by_the_id_that_it_lacks(run: metadata.Run, jobs: Jobs) -> None:
    """``null`` is no id."""
    run.record(None, "intent")
    run.set_state("failed")
    assert "no record has this job" in jobs.refused("--forget", "null")
