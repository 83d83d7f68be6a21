# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The job service cancels jobs."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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


def _has_ended(pid: int) -> bool:
    """Wait for the end of a process that may be anybody's child."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], 20)[0])
    finally:
        os.close(watched)


def test_running_job_is_stopped(service: JobService, web: httpx.Client) -> None:
    """A cancel is answered with 202 and STOPPING; the job is CANCELLED when its process is gone."""
    client = service.client()
    job = client.submit(["sleep", "1000"])
    reply = web.post(f"/jobs/{job['id']}/cancel")
    assert reply.status_code == 202
    assert reply.json()["status"] in ("STOPPING", "CANCELLED")
    ended = client.wait(job["id"])
    assert (ended["status"], ended["exit_code"]) == ("CANCELLED", -15)
    assert _has_ended(job["pid"])


def test_job_may_tidy_up(service: JobService, tmp_path: Path) -> None:
    """A cancelled job gets SIGTERM and time to act on it; exit code 0 doesn't make it a success."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    client = service.client()
    script = f"trap 'echo tidied; exit 0' TERM; echo > {ready}; while :; do sleep 0.05; done"
    job = client.submit(["sh", "-c", script])
    ready.read_text()
    client.cancel(job["id"])
    ended = client.wait(job["id"])
    assert (ended["status"], ended["exit_code"], ended["result"]) == ("CANCELLED", 0, "tidied")


def test_job_that_ignores_sigterm_is_killed(service: JobService, tmp_path: Path) -> None:
    """A job that doesn't end by itself gets SIGKILL, with all of its group."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    client = service.client()
    script = f"trap '' TERM; sleep 1000 & echo $! > {ready}; wait"
    job = client.submit(["sh", "-c", script])
    child = int(ready.read_text())
    assert client.cancel(job["id"])["status"] == "STOPPING"
    ended = client.wait(job["id"])
    assert (ended["status"], ended["exit_code"]) == ("CANCELLED", -9)
    assert _has_ended(child)


def test_stopped_job_is_cancelled_too(service: JobService) -> None:
    """A job paused with SIGSTOP, which SIGTERM doesn't wake, is CANCELLED."""
    client = service.client()
    job = client.submit(["sh", "-c", "kill -STOP $$"])
    client.cancel(job["id"])
    assert client.wait(job["id"])["status"] == "CANCELLED"


def test_second_cancel_is_accepted(service: JobService, tmp_path: Path) -> None:
    """A cancel of a job that is STOPPING is accepted and changes nothing."""
    client = service.client()
    client.add_fault("cancel", "slow_stop", seconds=1000)
    job = client.submit(["sleep", "1000"])
    assert client.cancel(job["id"])["status"] == "STOPPING"
    assert client.cancel(job["id"])["status"] == "STOPPING"
    client.clear_faults()
    assert client.wait(job["id"])["status"] == "CANCELLED"


@pytest.mark.parametrize(("command", "status"), [("true", "SUCCEEDED"), ("false", "FAILED")])
def test_finished_job_stays_what_it_is(
    service: JobService, web: httpx.Client, command: str, status: str
) -> None:
    """A cancel of a finished job is answered with 409 and the job, unchanged."""
    client = service.client()
    job = client.wait(client.submit([command])["id"])
    reply = web.post(f"/jobs/{job['id']}/cancel")
    error = reply.json()
    assert (reply.status_code, error["error"], error["job"]) == (409, "already_finished", job)
    assert status in error["message"]
    assert client.status(job["id"]) == job


def test_cancel_that_races_with_the_end_tells_the_truth(web: httpx.Client) -> None:
    """Whichever comes first, 202 is followed by CANCELLED and 409 by SUCCEEDED, never the other way round."""

    def race(number: int) -> tuple[int, str]:
        # Durations around that of a request, so that both orders really happen.
        job = web.post("/jobs", json={"command": ["sleep", f"{number % 10 / 1000}"]}).json()
        code = web.post(f"/jobs/{job['id']}/cancel").status_code
        return code, web.get(f"/jobs/{job['id']}", params={"wait": 20}).json()["status"]

    with ThreadPoolExecutor(8) as pool:
        outcomes = set(pool.map(race, range(120)))
    assert outcomes <= {(202, "CANCELLED"), (409, "SUCCEEDED")}
    assert (202, "CANCELLED") in outcomes


def test_parallel_cancels_stop_a_job_once(service: JobService, web: httpx.Client) -> None:
    """Of many cancels at once, each is answered with 202 or 409, and the job ends CANCELLED."""
    client = service.client()
    job = client.submit(["sleep", "1000"])
    with ThreadPoolExecutor(20) as pool:
        codes = set(pool.map(lambda _: web.post(f"/jobs/{job['id']}/cancel").status_code, range(40)))
    assert 202 in codes
    assert codes <= {202, 409}
    assert client.wait(job["id"])["status"] == "CANCELLED"
