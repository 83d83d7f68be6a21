# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One idempotency token starts one job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_resumable.testing.jobservice import JobService

_THREADS = 50


@pytest.fixture
def service(tmp_path: Path) -> Iterator[JobService]:
    with JobService(tmp_path / "service") as running:
        yield running


@pytest.fixture
def web(service: JobService) -> Iterator[httpx.Client]:
    """A bare HTTP client, to see status codes and bodies as they are; safe for threads."""
    with httpx.Client(base_url=service.url, timeout=30, trust_env=False) as client:
        yield client


def _submit_at_once(web: httpx.Client, bodies: list[dict[str, Any]]) -> list[httpx.Response]:
    """Send each body from a thread and on a connection of its own, all at the same moment."""
    barrier = threading.Barrier(len(bodies))

    def send(body: dict[str, Any]) -> httpx.Response:
        barrier.wait()
        return web.post("/jobs", json=body)

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(send, bodies))


def test_same_token_and_body_find_the_job(service: JobService, web: httpx.Client) -> None:
    """The same submit again is answered with 200 and the job it started, running or finished."""
    client = service.client()
    body = {"command": ["sleep", "1000"], "token": "t1", "family": "f", "name": "n", "location": "l"}
    first = web.post("/jobs", json=body)
    again = web.post("/jobs", json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json() | {"created": False}
    client.cancel(first.json()["id"])
    finished = client.wait(first.json()["id"])
    assert web.post("/jobs", json=body).json() == finished | {"created": False}
    assert service.jobs_started() == service.jobs_started(token="t1") == service.jobs_started(family="f") == 1
    assert [row["created"] for row in service.requests("submit")] == [True, False, False]


def test_field_left_out_equals_null(service: JobService, web: httpx.Client) -> None:
    """A body with a null field is equal to one without the field."""
    with_null = {"command": ["true"], "token": "t1", "family": None, "name": None, "location": None}
    web.post("/jobs", json=with_null)
    assert web.post("/jobs", json={"command": ["true"], "token": "t1"}).status_code == 200


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"command": ["false"]}, "command"),
        ({"command": ["true", ""]}, "command"),
        ({"command": ["true"], "family": "g"}, "family"),
        ({"command": ["true"], "name": "m"}, "name"),
        ({"command": ["true"], "location": "us"}, "location"),
    ],
)
def test_same_token_for_another_job_is_a_conflict(
    service: JobService, web: httpx.Client, other: dict[str, object], named: str
) -> None:
    """A token that is taken by a job with another body is answered with 409, that job, and what differs."""
    job = service.client().submit(["true"], token="t1")
    reply = web.post("/jobs", json={**other, "token": "t1"})
    error = reply.json()
    assert (reply.status_code, error["error"], error["job"]["id"]) == (409, "token_conflict", job["id"])
    assert repr(job["id"]) in error["message"]
    assert error["message"].endswith(named)
    assert service.jobs_started() == 1
    assert service.requests("submit")[-1]["job"] == job["id"]


def test_parallel_submits_of_one_token_start_one_job(service: JobService, web: httpx.Client) -> None:
    """However many submits of one token come at once, one is created and all are answered with its id."""
    tokens = [f"t{number}" for number in range(20)]
    for token in tokens:
        replies = _submit_at_once(web, [{"command": ["true"], "token": token}] * _THREADS)
        assert sorted(reply.status_code for reply in replies) == [200] * (_THREADS - 1) + [201]
        assert len({reply.json()["id"] for reply in replies}) == 1
        assert service.jobs_started(token=token) == 1
        assert len(service.requests("submit", token=token)) == _THREADS
    assert len(list((service.data_dir / "jobs").iterdir())) == len(tokens)


def test_parallel_submits_of_two_bodies_start_one_job(service: JobService, web: httpx.Client) -> None:
    """Of two different jobs racing for one token, one is started and the other one's submits all conflict."""
    bodies = [{"command": ["echo", str(number % 2)], "token": "t1"} for number in range(_THREADS)]
    replies = _submit_at_once(web, bodies)
    codes = sorted(reply.status_code for reply in replies)
    assert codes == [200] * (_THREADS // 2 - 1) + [201] + [409] * (_THREADS // 2)
    assert service.jobs_started() == 1


def test_parallel_submits_of_many_tokens_start_them_all(service: JobService, web: httpx.Client) -> None:
    """Each of many tokens that come at once gets a job of its own, with a result of its own."""
    bodies = [{"command": ["echo", str(number)], "token": f"t{number}"} for number in range(_THREADS)]
    replies = _submit_at_once(web, bodies)
    assert {reply.status_code for reply in replies} == {201}
    client = service.client()
    results = [client.wait(reply.json()["id"], 30)["result"] for reply in replies]
    assert results == list(range(_THREADS))
    assert service.jobs_started() == _THREADS


def test_submits_without_token_are_all_new(service: JobService) -> None:
    """A submit without a token always starts a job."""
    client = service.client()
    assert client.submit(["true"])["id"] != client.submit(["true"])["id"]
    assert service.jobs_started() == 2
