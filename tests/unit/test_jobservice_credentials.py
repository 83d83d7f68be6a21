# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The job service asks for credentials that are good for a limited number of requests."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from airflow_resumable.testing.jobservice import JobService


@pytest.fixture
def service(tmp_path: Path) -> Iterator[JobService]:
    with JobService(tmp_path / "service", credential_uses=3) as running:
        yield running


@pytest.fixture
def web(service: JobService) -> Iterator[httpx.Client]:
    """A bare HTTP client, to see status codes and bodies as they are; safe for threads."""
    with httpx.Client(base_url=service.url, timeout=30, trust_env=False) as client:
        yield client


def test_credential_expires_after_its_uses(service: JobService, web: httpx.Client) -> None:
    """A credential is good for N requests, then answered with 401 ``expired``; another one is good again."""
    for _ in range(2):
        credential = web.post("/credentials").json()["credential"]
        headers = {"Authorization": f"Bearer {credential}"}
        replies = [web.get("/jobs", headers=headers) for _ in range(5)]
        assert [reply.status_code for reply in replies] == [200, 200, 200, 401, 401]
        assert replies[-1].json()["error"] == "expired"
    assert [row["code"] for row in service.requests("find")] == [200, 200, 200, 401, 401] * 2


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer made-up"}, {"Authorization": "Basic eDp5"}]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/jobs"),
        ("GET", "/jobs"),
        ("GET", "/jobs/job-000001"),
        ("DELETE", "/jobs/job-000001"),
        ("POST", "/jobs/job-000001/cancel"),
    ],
)
def test_no_route_works_without(
    service: JobService, web: httpx.Client, method: str, path: str, headers: dict[str, str]
) -> None:
    """Every route about jobs is answered with 401 when the credential is missing or made up."""
    body = {"command": ["true"], "token": "t1"} if path == "/jobs" and method == "POST" else None
    reply = web.request(method, path, json=body, headers=headers)
    assert (reply.status_code, reply.json()["error"]) == (401, "unauthorized")
    assert service.jobs_started() == 0
    assert service.requests()[-1]["code"] == 401
    if body:
        assert service.requests()[-1]["token"] == "t1"


def test_control_routes_need_none(web: httpx.Client) -> None:
    """Health, log and faults are there without a credential."""
    assert [web.get(path).status_code for path in ("/health", "/log", "/faults")] == [200] * 3


def test_client_uses_the_credential_it_renewed(service: JobService) -> None:
    """The client sends its newest credential and leaves renewing it to its caller."""
    client = service.client()
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        client.find()
    client.renew_credential()
    job = client.submit(["true"])
    client.status(job["id"])
    client.status(job["id"])
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        client.status(job["id"])
    client.renew_credential()
    assert client.status(job["id"])["id"] == job["id"]


def test_credentials_can_be_unavailable(service: JobService) -> None:
    """A fault on credentials spoils getting one."""
    client = service.client()
    client.add_fault("credentials", "unavailable")
    with pytest.raises(httpx.HTTPStatusError, match="503"):
        client.renew_credential()
    assert client.renew_credential()


def test_uses_are_counted_exactly_under_threads(service: JobService, web: httpx.Client) -> None:
    """Of many requests at once with one credential, exactly N are let through."""
    headers = {"Authorization": "Bearer " + web.post("/credentials").json()["credential"]}
    with ThreadPoolExecutor(30) as pool:
        codes = list(pool.map(lambda _: web.get("/jobs", headers=headers).status_code, range(60)))
    assert (codes.count(200), codes.count(401)) == (3, 57)


def test_service_without_the_option_asks_for_none(tmp_path: Path) -> None:
    """Without --credential-uses no credential is needed, and one that is sent does no harm."""
    with JobService(tmp_path / "other") as service:
        client = service.client()
        assert client.find() == []
        client.renew_credential()
        assert [client.find() for _ in range(5)] == [[]] * 5
