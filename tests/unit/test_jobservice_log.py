# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The request log of the job service is complete, in order, and on disk before a reply is sent."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
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
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=service.url, timeout=60, trust_env=False, limits=limits) as client:
        yield client


def _raw(service: JobService, data: bytes, *, whole: bool = True) -> bytes:
    """Send bytes as they are and return what comes back before the connection ends."""
    with socket.create_connection(
        ("127.0.0.1", int(service.url.rpartition(":")[2])), timeout=20
    ) as connection:
        connection.sendall(data)
        if not whole:
            connection.shutdown(socket.SHUT_WR)
        reply = b""
        while chunk := connection.recv(65536):
            reply += chunk
        return reply


def test_each_request_is_one_row(service: JobService) -> None:
    """A row tells when, who, what, about which job, and how it was answered."""
    before = time.time()
    client = service.client("dag/run/task/1")
    job = client.submit(["true"], token="t1", family="f")
    client.submit(["true"], token="t1", family="f")
    client.wait(job["id"])
    client.find(token="t1", family="f")
    client.forget(job["id"])
    rows = client.log()
    about = {"token": "t1", "family": "f", "client": "dag/run/task/1", "fault": None}
    expected = [
        {"verb": "submit", "method": "POST", "path": "/jobs", "job": job["id"], "code": 201, "created": True},
        {
            "verb": "submit",
            "method": "POST",
            "path": "/jobs",
            "job": job["id"],
            "code": 200,
            "created": False,
        },
        {"verb": "status", "method": "GET", "path": f"/jobs/{job['id']}?wait=10.0", "job": job["id"]},
        {"verb": "find", "method": "GET", "path": "/jobs?token=t1&family=f", "job": None, "code": 200},
        {
            "verb": "forget",
            "method": "DELETE",
            "path": f"/jobs/{job['id']}",
            "job": job["id"],
            "created": None,
        },
    ]
    assert len(rows) == len(expected)
    for row, fields in zip(rows, expected, strict=True):
        assert row == row | about | fields
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5]
    times = [before, *(row["at"] for row in rows), time.time()]
    assert times == sorted(times)
    assert set(rows[0]) == {"seq", "at", "method", *about, *expected[0]}


def test_filters_narrow_the_log_together(service: JobService) -> None:
    """Each filter narrows the log, and all given ones must match."""
    client = service.client()
    one = client.submit(["true"], token="t1", family="f")["id"]
    client.submit(["true"], token="t2", family="f")
    client.submit(["true"], token="t1", family="f")
    client.add_fault("find", "lost_reply")
    with pytest.raises(httpx.RemoteProtocolError):
        client.find(family="f")
    client.status(one)

    def seqs(**filters: str | int | bool) -> list[int]:
        found = [row["seq"] for row in client.log(**filters)]  # type: ignore[arg-type]
        assert [row["seq"] for row in service.requests(**filters)] == found  # type: ignore[arg-type]
        return found

    assert seqs(verb="submit") == [1, 2, 3]
    assert seqs(job=one) == [1, 3, 5]
    assert seqs(token="t1") == [1, 3, 5]
    assert seqs(family="f") == [1, 2, 3, 4, 5]
    assert seqs(fault="lost_reply") == [4]
    assert seqs(created=True) == [1, 2]
    assert seqs(created=False) == [3]
    assert seqs(since_seq=3) == [4, 5]
    assert seqs(verb="submit", token="t1", since_seq=1) == [3]
    assert seqs(verb="submit", created=True, token="t2") == [2]
    assert seqs(token="none") == []
    assert (service.jobs_started(), service.jobs_started(token="t1"), service.jobs_started(family="g")) == (
        2,
        1,
        0,
    )


@pytest.mark.parametrize(
    ("query", "field"),
    [("verbs=submit", "verbs"), ("since_seq=x", "since_seq"), ("created=1", "created"), ("wait=x", "wait")],
)
def test_bad_filter_is_refused_by_name(web: httpx.Client, query: str, field: str) -> None:
    """A filter that can't be accepted is answered with 400, never with an unfiltered log."""
    reply = web.get(f"/log?{query}")
    assert (reply.status_code, reply.json()["field"]) == (400, field)


def test_unknown_filter_of_the_helper_is_refused(service: JobService) -> None:
    """A misspelt filter raises instead of counting everything."""
    with pytest.raises(ValueError, match="tokn"):
        service.requests("submit", tokn="t1")


def test_jobs_are_counted_by_client_text(service: JobService) -> None:
    """Jobs are counted by a part of their submitter's name, in any script."""
    service.client("dag-ä/run 1/任务/1").submit(["true"])
    service.client("dag-b/run 1/task/1").submit(["true"])
    service.client().submit(["true"])
    assert service.jobs_started(client_contains="dag-ä/") == 1
    assert service.jobs_started(client_contains="/任务/") == 1
    assert service.jobs_started(client_contains="run 1") == 2
    assert [row["client"] for row in service.requests("submit")][2] is None


def test_control_routes_are_not_logged(service: JobService) -> None:
    """Looking at health, log and faults leaves no trace in the log."""
    client = service.client()
    client.health()
    client.log()
    client.delete_fault(client.add_fault("find", "error"))
    client.clear_faults()
    assert client.log() == service.requests() == []


def test_row_is_there_before_the_reply(service: JobService) -> None:
    """At the moment a reply arrives, its row with its code can be read by another process's connection."""
    client = service.client()
    for number in range(1, 200):
        client.submit(["true"]) if number % 20 == 0 else client.find()
        with sqlite3.connect(service.data_dir / "journal.sqlite") as db:
            rows = db.execute("SELECT COUNT(*), COUNT(code), MAX(seq) FROM requests").fetchall()
        db.close()
        assert rows == [(number, number, number)]


@pytest.mark.parametrize(
    ("data", "code", "method", "path"),
    [
        (b"nonsense\r\n\r\n", 400, "", "nonsense"),
        (b"HEAD /jobs HTTP/1.1\r\n\r\n", 501, "HEAD", "/jobs"),
        (b"GET /jobs HTTP/3.0\r\n\r\n", 505, "", "GET /jobs HTTP/3.0"),
        (b"POST /jobs HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400, "POST", "/jobs"),
        (b"POST /jobs HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413, "POST", "/jobs"),
        (b"POST /jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411, "POST", "/jobs"),
        (b"PUT /elsewhere HTTP/1.0\r\n\r\n", 404, "PUT", "/elsewhere"),
        (b"GET /caf\xe9?x=\xff HTTP/1.0\r\n\r\n", 404, "GET", "/caf\xe9?x=\xff"),
    ],
)
def test_strange_request_is_logged_too(
    service: JobService, data: bytes, code: int, method: str, path: str
) -> None:
    """What no route takes, or is hardly HTTP, is answered with an error and logged as verb ``other``."""
    reply = _raw(service, data)
    assert reply.startswith(f"HTTP/1.1 {code} ".encode())
    (row,) = service.requests()
    assert (row["verb"], row["code"], row["path"]) == ("other", code, path)
    assert row["method"] == method


def test_half_a_request_is_logged_and_not_carried_out(service: JobService) -> None:
    """A submit whose connection ends within the body starts nothing and gets no reply."""
    body = json.dumps({"command": ["true"]}).encode()
    head = f"POST /jobs HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    assert _raw(service, head + body[:-1], whole=False) == b""
    (row,) = service.requests()
    assert (row["verb"], row["method"], row["code"]) == ("other", "POST", None)
    assert service.jobs_started() == 0


def test_two_requests_in_one_packet_are_two_rows(service: JobService) -> None:
    """Pipelined requests are carried out and logged one after the other."""
    request = b"GET /jobs?family=%d HTTP/1.1\r\n%s\r\n"
    reply = _raw(service, request % (1, b"") + request % (2, b"Connection: close\r\n"))
    assert reply.count(b"HTTP/1.1 200 OK") == 2
    assert [(row["family"], row["code"]) for row in service.requests()] == [("1", 200), ("2", 200)]


def test_log_of_thousands_under_threads_misses_nothing(service: JobService, web: httpx.Client) -> None:
    """3,000 requests from 50 threads are 3,000 rows without a gap, read whole over HTTP and from disk."""
    job = service.client().submit(["sleep", "1000"], family="f")
    barrier = threading.Barrier(50)

    def poll(number: int) -> None:
        barrier.wait()
        for turn in range(60):
            headers = {"X-Client": f"{number}/{turn}"}
            assert web.get(f"/jobs/{job['id']}", headers=headers).status_code == 200

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(poll, range(50)))
    rows = service.client(timeout=60).log()
    assert [row["seq"] for row in rows] == list(range(1, 3002))
    assert {row["client"] for row in rows[1:]} == {f"{n}/{t}" for n in range(50) for t in range(60)}
    assert {row["code"] for row in rows[1:]} == {200}
    assert service.requests() == rows
    assert len(service.requests("status", client_contains="7/")) == 300


def test_log_is_read_after_the_service_died(service: JobService) -> None:
    """Requests are counted though the service was killed, and go on being numbered after a restart."""
    client = service.client()
    client.submit(["true"], token="t1")
    service.kill()
    assert (service.jobs_started(), len(service.requests())) == (1, 1)
    service.restart()
    service.client().submit(["true"], token="t1")
    assert [(row["seq"], row["created"]) for row in service.requests()] == [(1, True), (2, False)]
    service.stop()
    assert service.jobs_started(token="t1") == 1


def test_log_waits_for_a_request(service: JobService) -> None:
    """A log query that waits is answered by the first request that matches, not by others."""
    client = service.client()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.wait_for_request, "cancel", timeout=60)
        client.find()
        job = client.submit(["sleep", "1000"])
        assert not waiting.done()
        client.cancel(job["id"])
        assert waiting.result()["job"] == job["id"]
    with pytest.raises(TimeoutError, match="no forget request"):
        service.wait_for_request("forget", timeout=0.01)
