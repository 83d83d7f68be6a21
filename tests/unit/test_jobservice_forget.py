# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The job service forgets jobs on request, as services with a short memory do."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from airflow_resumable.testing.jobservice import JobService


@pytest.fixture
def service(tmp_path: Path) -> Iterator[JobService]:
    with JobService(tmp_path / "service") as running:
        yield running


@pytest.fixture
def web(service: JobService) -> Iterator[httpx.Client]:
    """A bare HTTP client, to see status codes and bodies as they are; safe for threads."""
    with httpx.Client(base_url=service.url, timeout=30, trust_env=False) as client:
        yield client


def test_forgotten_job_is_unknown(service: JobService, web: httpx.Client) -> None:
    """A forgotten job is answered with 404 to everything and is in no list."""
    client = service.client()
    job = client.submit(["true"], token="t1", family="f")
    client.wait(job["id"])
    client.forget(job["id"])
    path = f"/jobs/{job['id']}"
    replies = [web.get(path), web.post(path + "/cancel"), web.delete(path)]
    assert [reply.status_code for reply in replies] == [404] * 3
    assert {reply.json()["error"] for reply in replies} == {"not_found"}
    assert client.find(token="t1") == client.find(family="f") == client.find() == []


def test_token_is_free_again(service: JobService) -> None:
    """The token of a forgotten job starts another one, with an id that was never used."""
    client = service.client()
    first = client.submit(["true"], token="t1")
    client.forget(first["id"])
    second = client.submit(["false"], token="t1")
    assert (second["created"], second["id"]) == (True, "job-000002")
    assert service.jobs_started(token="t1") == 2


def test_process_runs_on(service: JobService, tmp_path: Path) -> None:
    """The process of a forgotten job is left alone and runs to its end."""
    gate, mark = tmp_path / "gate", tmp_path / "mark"
    os.mkfifo(gate)
    os.mkfifo(mark)
    client = service.client()
    job = client.submit(["sh", "-c", f"cat {gate}; echo done > {mark}"])
    client.forget(job["id"])
    gate.write_text("")
    assert mark.read_text() == "done\n"


def test_request_log_forgets_nothing(service: JobService) -> None:
    """The requests about a forgotten job stay in the log, and later ones are logged under its id."""
    client = service.client()
    job = client.submit(["true"], token="t1", family="f")
    client.forget(job["id"])
    with pytest.raises(httpx.HTTPStatusError):
        client.status(job["id"])
    rows = [(row["verb"], row["code"], row["token"], row["family"]) for row in client.log(job=job["id"])]
    assert rows == [("submit", 201, "t1", "f"), ("forget", 200, "t1", "f"), ("status", 404, "t1", "f")]
    assert service.jobs_started() == 1


def test_forgotten_stays_forgotten(service: JobService, web: httpx.Client) -> None:
    """A restarted service doesn't remember what was forgotten."""
    client = service.client()
    job = client.submit(["true"], token="t1")
    client.forget(job["id"])
    service.restart()
    assert web.get(f"/jobs/{job['id']}").status_code == 404


def test_waiting_status_call_hears_of_it(service: JobService, web: httpx.Client) -> None:
    """A status call that waits for the end of a job is answered with 404 when the job is forgotten."""
    client = service.client()
    job = client.submit(["sleep", "1000"])
    codes: list[int] = []
    waiter = threading.Thread(
        target=lambda: codes.append(web.get(f"/jobs/{job['id']}", params={"wait": 600}).status_code)
    )
    waiter.start()
    service.wait_for_request("status", job=job["id"])
    client.forget(job["id"])
    waiter.join()
    assert codes == [404]
