# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The job service lists jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from airflow_resumable.testing.jobservice import JobService


@pytest.fixture
def service(tmp_path: Path) -> Iterator[JobService]:
    # With one job that never ends, all others wait and cost no process.
    with JobService(tmp_path / "service", max_running=1) as running:
        running.client().submit(["sleep", "1000"])
        yield running


@pytest.fixture
def web(service: JobService) -> Iterator[httpx.Client]:
    """A bare HTTP client, to see status codes and bodies as they are; safe for threads."""
    with httpx.Client(base_url=service.url, timeout=30, trust_env=False) as client:
        yield client


def test_newest_job_comes_first(service: JobService) -> None:
    """Jobs are listed newest first, as their status calls show them."""
    client = service.client()
    ids = [client.submit(["true"], family="f")["id"] for _ in range(3)]
    assert client.find(family="f") == [client.status(job_id) for job_id in reversed(ids)]


def test_filters_narrow_the_list_together(service: JobService) -> None:
    """Token, family, location and since each narrow the list, and all given ones must match."""
    client = service.client()
    one = client.submit(["true"], token="t1", family="f", location="eu")["id"]
    two = client.submit(["true"], token="t2", family="f", location="us")["id"]
    three = client.submit(["true"], token="t3", family="g", location="eu")

    def ids(**filters: str | float) -> list[str]:
        return [job["id"] for job in client.find(**filters)]  # type: ignore[arg-type]

    assert ids(token="t2") == [two]
    assert ids(family="f") == [two, one]
    assert ids(location="eu") == [three["id"], one]
    assert ids(family="f", location="eu") == [one]
    assert ids(since=three["submitted_at"]) == [three["id"]]
    assert ids(since=three["submitted_at"] + 1000) == []
    assert ids(token="none") == ids(family="") == []
    assert len(ids()) == 4


def test_long_list_comes_in_pages(service: JobService, web: httpx.Client) -> None:
    """More than 100 jobs come in pages that neither lose nor repeat one, though jobs are added meanwhile."""
    client = service.client()
    ids = [client.submit(["true"], family="f")["id"] for _ in range(250)]
    pages = []
    params = {"family": "f"}
    while True:
        page = web.get("/jobs", params=params).json()
        pages.append([job["id"] for job in page["jobs"]])
        if page["next_page_token"] is None:
            break
        params["page_token"] = page["next_page_token"]
        client.submit(["true"], family="f")
    assert [len(page) for page in pages] == [100, 100, 50]
    assert [job_id for page in pages for job_id in page] == ids[::-1]


def test_exactly_one_page_has_no_next(service: JobService, web: httpx.Client) -> None:
    """A list of exactly 100 jobs says that there is no more."""
    client = service.client()
    for _ in range(100):
        client.submit(["true"], family="f")
    page = web.get("/jobs", params={"family": "f"}).json()
    assert (len(page["jobs"]), page["next_page_token"]) == (100, None)


def test_client_reads_as_many_pages_as_its_limit_asks(service: JobService) -> None:
    """The client asks for one page by default, and for more only up to its limit."""
    client = service.client()
    ids = [client.submit(["true"], family="f")["id"] for _ in range(150)]
    assert [job["id"] for job in client.find(family="f")] == ids[:-101:-1]
    assert len(service.requests("find")) == 1
    assert [job["id"] for job in client.find(family="f", limit=120)] == ids[:-121:-1]
    assert len(service.requests("find")) == 3


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("token=a/b", "token"),
        ("token=", "token"),
        ("since=yesterday", "since"),
        ("since=nan", "since"),
        ("since=-1", "since"),
        ("page_token=7", "page_token"),
        ("page_token=before-x", "page_token"),
        ("status=RUNNING", "status"),
        ("family=a&family=b", "family"),
    ],
)
def test_bad_filter_is_refused_by_name(
    service: JobService, web: httpx.Client, query: str, field: str
) -> None:
    """A filter that can't be accepted is answered with 400 and its name, never with an unfiltered list."""
    reply = web.get(f"/jobs?{query}")
    assert (reply.status_code, reply.json()["field"]) == (400, field)
