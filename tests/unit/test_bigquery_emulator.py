# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The BigQuery emulator, and what the layer over it restores of the real service."""

from __future__ import annotations

import uuid
from pathlib import Path

import httpx
import pytest

from airflow_resumable.testing.bigquery import programs
from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator, until
from airflow_resumable.testing.errors import SystemUnavailable
from tests.bigquery_service import SUCCEEDS


@pytest.fixture
def job_id() -> str:
    """Return an id that no other test uses."""
    return f"job-{uuid.uuid4().hex}"


def wait(bigquery: BigQueryEmulator, job_id: str, location: str = "US") -> None:
    bigquery.request("GET", f"projects/{bigquery.project}/queries/{job_id}", location=location)


def insert(bigquery: BigQueryEmulator, job_id: str, location: str | None, **query: object) -> httpx.Response:
    reference = {"projectId": bigquery.project, "jobId": job_id}
    if location is not None:
        reference["location"] = location
    configuration = {"query": {"query": SUCCEEDS, "useLegacySql": False, **query}}
    body = {"jobReference": reference, "configuration": configuration}
    return bigquery.request("POST", f"projects/{bigquery.project}/jobs", body)


def test_a_location_is_a_part_of_a_jobs_name(bigquery: BigQueryEmulator, job_id: str) -> None:
    """Asked for in another one there is no such job, and the same id may be used there."""
    assert insert(bigquery, job_id, "europe-west1").status_code == 200
    found = bigquery.job(job_id, "europe-west1")
    assert found is not None
    assert found["jobReference"] == {"projectId": "proj", "jobId": job_id, "location": "europe-west1"}
    assert found["id"] == f"proj:europe-west1.{job_id}"
    assert bigquery.job(job_id, "US") is None
    assert insert(bigquery, job_id, "US").status_code == 200


@pytest.mark.parametrize(("location", "status"), [("US", 200), ("eu", 200), ("europe-west1", 404)])
def test_without_a_location_the_multi_regions_are_searched(
    bigquery: BigQueryEmulator, job_id: str, location: str, status: int
) -> None:
    """No other."""
    assert insert(bigquery, job_id, location).status_code == 200
    assert bigquery.request("GET", f"projects/proj/jobs/{job_id}").status_code == status


def test_a_job_runs_where_its_dataset_is(bigquery: BigQueryEmulator, job_id: str) -> None:
    """When nobody says where."""
    dataset = {"projectId": "proj", "datasetId": "elsewhere"}
    bigquery.request(
        "POST", "projects/proj/datasets", {"datasetReference": dataset, "location": "asia-east1"}
    )
    told = insert(bigquery, job_id, None, defaultDataset=dataset).json()
    assert told["jobReference"]["location"] == "asia-east1"


def test_a_refusal_names_job_and_place(bigquery: BigQueryEmulator, job_id: str) -> None:
    """Whatever the second one was to do."""
    insert(bigquery, job_id, "EU")
    refused = insert(bigquery, job_id, "EU", query="SELECT 2")
    assert refused.status_code == 409
    assert refused.json()["error"]["message"] == f"Already Exists: Job proj:EU.{job_id}"
    assert [call.status for call in bigquery.calls() if call.job_id == job_id] == [200, 409]
    assert [call.job_id for call in bigquery.inserted()].count(job_id) == 1


def test_a_query_runs_until_its_gate_is_open(bigquery: BigQueryEmulator, job_id: str, tmp_path: Path) -> None:
    """And a request for its results waits as long as it is told to."""
    gate = tmp_path / "gate"
    bigquery.insert(job_id, until(gate))
    told = bigquery.request(
        "GET", f"projects/proj/queries/{job_id}", location="US", timeoutMs="100", maxResults="0"
    ).json()
    assert told["jobComplete"] is False
    gate.touch()
    wait(bigquery, job_id)
    job = bigquery.job(job_id)
    assert job is not None
    assert job["status"] == {"state": "DONE"}


def test_a_cancel_ends_just_that_query(bigquery: BigQueryEmulator, job_id: str, tmp_path: Path) -> None:
    """Also where another waits for the same gate."""
    other = f"{job_id}-2"
    for one in (job_id, other):
        bigquery.insert(one, until(tmp_path / "gate"))
    bigquery.request("POST", f"projects/proj/jobs/{job_id}/cancel", location="US")
    wait(bigquery, job_id)
    ended, running = bigquery.job(job_id), bigquery.job(other)
    (tmp_path / "gate").touch()
    assert ended is not None
    assert running is not None
    assert ended["status"]["errorResult"]["reason"] == "stopped"
    assert running["status"]["state"] in ("PENDING", "RUNNING")


def test_a_job_shows_what_it_is_told_to(bigquery: BigQueryEmulator, job_id: str) -> None:
    """PENDING, for which nothing is complete yet, and an end for want of quota."""
    insert(bigquery, job_id, "US")
    wait(bigquery, job_id)
    bigquery.show(job_id, "PENDING")
    pending = bigquery.job(job_id)
    assert pending is not None
    assert pending["status"] == {"state": "PENDING"}
    answer = bigquery.request("GET", f"projects/proj/queries/{job_id}", location="US").json()
    assert answer["jobComplete"] is False
    bigquery.show(job_id, "DONE", "quotaExceeded")
    ended = bigquery.job(job_id)
    assert ended is not None
    assert ended["status"]["errorResult"]["reason"] == "quotaExceeded"


def test_a_forgotten_job_is_not_found(bigquery: BigQueryEmulator, job_id: str) -> None:
    """As after six months."""
    insert(bigquery, job_id, "US")
    wait(bigquery, job_id)
    bigquery.forget(job_id)
    assert bigquery.job(job_id) is None


def test_a_host_without_it_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one script."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SystemUnavailable, match=r"scripts/bigquery_emulator\.sh"):
        programs.find_programs()
