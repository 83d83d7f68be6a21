# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The client passes errors on for its caller to classify."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from airflow_resumable.testing import jobservice
from airflow_resumable.testing.jobservice import JobService, JobServiceClient


@pytest.fixture
def service(tmp_path: Path) -> Iterator[JobService]:
    with JobService(tmp_path / "service") as running:
        yield running


def test_token_conflict_brings_the_job_along(service: JobService) -> None:
    """A submit of another job under a taken token raises with the job in the response."""
    client = service.client()
    job = client.submit(["true"], token="t1")
    with pytest.raises(httpx.HTTPStatusError) as caught:
        client.submit(["false"], token="t1")
    assert caught.value.response.status_code == 409
    assert caught.value.response.json()["job"]["id"] == job["id"]


def test_unknown_job_is_a_404(service: JobService) -> None:
    """Asking for an unknown job raises with the status code, whatever its id looks like."""
    client = service.client()
    for job_id in ("job-000001", 0, "", "a/b", "../log", "ä?x=1#y", "%2e"):
        with pytest.raises(httpx.HTTPStatusError) as caught:
            client.status(job_id)
        assert caught.value.response.status_code == 404


def test_dead_service_is_a_connect_error(service: JobService) -> None:
    """A request to a service that is gone raises a transport error, and works again after a restart."""
    client = JobServiceClient(service.url)
    job = client.submit(["true"])
    service.kill()
    with pytest.raises(httpx.TransportError):
        client.status(job["id"])
    with pytest.raises(httpx.ConnectError):
        client.status(job["id"])
    service.restart()
    assert client.status(job["id"])["id"] == job["id"]
    client.close()


def test_every_failure_is_an_httpx_error(service: JobService) -> None:
    """Each kind of failed reply is caught by httpx.HTTPError, so that one handler can classify them all."""
    client = service.client(timeout=0.3)
    kinds = ["unavailable", "error", "throttle", "unauthorized", "lost_reply", "reset", "truncated", "hold"]
    for kind in kinds:
        client.add_fault("find", kind)
        with pytest.raises(httpx.HTTPError):
            client.find()
    assert [row["fault"] for row in service.requests("find")] == kinds


def test_wait_gives_up(service: JobService) -> None:
    """Waiting for a job that doesn't end raises, naming the job and its status."""
    client = service.client()
    job = client.submit(["sleep", "1000"])
    with pytest.raises(TimeoutError, match=r"job-000001.* still RUNNING after 0\.01 s"):
        client.wait(job["id"], timeout=0.01)


def test_proxy_of_the_environment_is_not_used(service: JobService, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy set in the environment doesn't come between client and service."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert service.client().health()["ok"] is True


def test_health_names_the_process(service: JobService) -> None:
    """The pid that health tells is the helper's."""
    assert service.client().health() == {"ok": True, "pid": service.pid}


def test_client_name_that_is_no_header_is_refused() -> None:
    """A client name with a line break is refused with its value."""
    with pytest.raises(ValueError, match=r"client_name='a\\nb'"):
        JobServiceClient("http://127.0.0.1:9", client_name="a\nb")


def test_package_exports_what_it_says() -> None:
    """Each exported name is there, and a misspelt one is an AttributeError."""
    for name in jobservice.__all__:
        assert getattr(jobservice, name).__name__ == name
    with pytest.raises(AttributeError, match="JobServise"):
        _ = jobservice.JobServise
