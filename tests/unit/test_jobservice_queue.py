# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The job service runs at most so many jobs at once and queues the others."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_resumable.testing.jobservice import JobService


@pytest.fixture
def service(tmp_path: Path) -> Iterator[JobService]:
    with JobService(tmp_path / "service", max_running=1) as running:
        yield running


def test_job_waits_for_a_free_place(service: JobService, tmp_path: Path) -> None:
    """Jobs over the limit are QUEUED, not started, and run one after the other as places come free."""
    gate, order = tmp_path / "gate", tmp_path / "order"
    os.mkfifo(gate)
    client = service.client()
    first = client.submit(["sh", "-c", f"cat {gate}; echo $JOB_ID >> {order}"])
    waiting = [client.submit(["sh", "-c", f"echo $JOB_ID >> {order}"]) for _ in range(3)]
    assert first["status"] == "RUNNING"
    assert [(job["status"], job["started_at"], job["pid"]) for job in waiting] == [("QUEUED", None, None)] * 3
    gate.write_text("")
    ended = [client.wait(job["id"]) for job in (first, *waiting)]
    assert [job["status"] for job in ended] == ["SUCCEEDED"] * 4
    assert order.read_text().split() == [job["id"] for job in ended]
    for before, after in itertools.pairwise(ended):
        assert before["finished_at"] <= after["started_at"]


def test_cancelled_queued_job_never_starts(service: JobService, tmp_path: Path) -> None:
    """A QUEUED job goes straight to CANCELLED, and the next one takes the place."""
    gate, mark = tmp_path / "gate", tmp_path / "mark"
    os.mkfifo(gate)
    client = service.client()
    client.submit(["cat", str(gate)])
    cancelled = client.submit(["touch", str(mark)])
    last = client.submit(["true"])
    assert client.cancel(cancelled["id"])["status"] == "CANCELLED"
    gate.write_text("")
    assert client.wait(last["id"])["status"] == "SUCCEEDED"
    assert client.status(cancelled["id"])["started_at"] is None
    assert not mark.exists()


def test_job_that_cannot_start_frees_its_place(service: JobService) -> None:
    """A queued command that the system refuses to start doesn't block the queue."""
    client = service.client()
    running = client.submit(["sleep", "1000"])
    bad = [client.submit(["/no/such/program"]) for _ in range(3)]
    good = client.submit(["true"])
    client.cancel(running["id"])
    assert client.wait(good["id"])["status"] == "SUCCEEDED"
    assert {client.status(job["id"])["status"] for job in bad} == {"FAILED"}


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_queue_survives_a_restart(service: JobService, way: str) -> None:
    """Jobs that were QUEUED when the service ended run after its restart, once."""
    client = service.client()
    running = client.submit(["sleep", "1000"])
    queued = [client.submit(["echo", str(number)]) for number in range(3)]
    if way == "kill":
        service.kill()
    service.restart()
    client = service.client()
    assert [client.wait(job["id"])["result"] for job in queued] == [0, 1, 2]
    assert client.status(running["id"])["status"] == "FAILED"


def test_forgotten_queued_job_still_runs(service: JobService, tmp_path: Path) -> None:
    """Forgetting a QUEUED job takes it from the list, not from the queue."""
    mark = tmp_path / "mark"
    client = service.client()
    running = client.submit(["sleep", "1000"])
    forgotten = client.submit(["touch", str(mark)])
    last = client.submit(["true"])
    client.forget(forgotten["id"])
    client.cancel(running["id"])
    client.wait(last["id"])
    assert mark.exists()
