# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The job service does wrong what it is asked to do wrong, and logs it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_resumable.testing.jobservice import JobService, JobServiceClient


@pytest.fixture
def service(tmp_path: Path) -> Iterator[JobService]:
    with JobService(tmp_path / "service") as running:
        yield running


@pytest.fixture
def client(service: JobService) -> JobServiceClient:
    return service.client()


@pytest.fixture
def web(service: JobService) -> Iterator[httpx.Client]:
    """A bare HTTP client, to see status codes and bodies as they are; safe for threads."""
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=service.url, timeout=30, trust_env=False, limits=limits) as bare:
        yield bare


def _call(client: JobServiceClient, verb: str, job_id: str) -> Any:
    """Make a request of a verb, about a job where the verb is about one."""
    if verb == "submit":
        return client.submit(["true"])
    if verb == "find":
        return client.find()
    if verb == "credentials":
        return client.renew_credential()
    return getattr(client, verb)(job_id)


_VERBS = ["submit", "status", "find", "cancel", "forget", "credentials"]


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize(
    ("kind", "code", "error"),
    [
        ("unavailable", 503, "unavailable"),
        ("error", 500, "internal_error"),
        ("throttle", 429, "throttled"),
        ("unauthorized", 401, "unauthorized"),
        ("forbidden", 403, "forbidden"),
        ("reset", None, None),
    ],
)
def test_nothing_is_carried_out(
    service: JobService, client: JobServiceClient, verb: str, kind: str, code: int | None, error: str | None
) -> None:
    """A fault of these kinds leaves no effect, is logged, and is over after one request of its verb."""
    job = client.submit(["sleep", "1000"])
    client.add_fault(verb, kind)
    if code is None:
        with pytest.raises(httpx.ReadError):
            _call(client, verb, job["id"])
    else:
        with pytest.raises(httpx.HTTPStatusError) as caught:
            _call(client, verb, job["id"])
        assert (caught.value.response.status_code, caught.value.response.json()["error"]) == (code, error)
    row = service.requests(verb)[-1]
    assert (row["fault"], row["code"]) == (kind, code)
    assert client.status(job["id"])["status"] == "RUNNING" if verb != "status" else True
    assert service.jobs_started() == 1
    _call(client, verb, job["id"])
    assert service.requests(verb)[-1]["fault"] is None


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize("kind", ["lost_reply", "truncated"])
def test_request_is_carried_out_though_no_whole_reply_comes(
    service: JobService, client: JobServiceClient, verb: str, kind: str
) -> None:
    """A lost or torn reply is that of a request which took effect, and is told apart by its error."""
    job = client.submit(["sleep", "1000"])
    client.add_fault(verb, kind)
    expected = httpx.RemoteProtocolError if kind == "lost_reply" else httpx.DecodingError
    with pytest.raises(expected):
        _call(client, verb, job["id"])
    row = service.requests(verb)[-1]
    sent = {"submit": 201, "cancel": 202}.get(verb, 200)
    assert (row["fault"], row["code"]) == (kind, None if kind == "lost_reply" else sent)
    if verb == "submit":
        assert (row["created"], service.jobs_started(), client.status(row["job"])["id"]) == (
            True,
            2,
            row["job"],
        )
    elif verb == "cancel":
        assert client.wait(job["id"])["status"] == "CANCELLED"
    elif verb == "forget":
        assert client.find() == []


def test_lost_submit_is_found_by_its_token(service: JobService, client: JobServiceClient) -> None:
    """After a submit without a reply, the job is found by token, and the same submit starts no other."""
    client.add_fault("submit", "lost_reply", token="t1")
    with pytest.raises(httpx.RemoteProtocolError):
        client.submit(["true"], token="t1")
    (found,) = client.find(token="t1")
    again = client.submit(["true"], token="t1")
    assert (again["id"], again["created"], service.jobs_started()) == (found["id"], False, 1)


@pytest.mark.parametrize(("seconds", "header"), [(None, "1"), (0, "0"), (2.5, "3")])
def test_throttle_says_when_to_come_back(web: httpx.Client, seconds: float | None, header: str) -> None:
    """A 429 has a Retry-After header of whole seconds."""
    web.post("/faults", json={"verb": "find", "kind": "throttle", "seconds": seconds})
    assert web.get("/jobs").headers["Retry-After"] == header


def test_status_can_be_one_never_heard_of(client: JobServiceClient) -> None:
    """An unknown_status fault replaces the status in a reply, and only there."""
    job = client.submit(["sleep", "1000"])
    client.add_fault("status", "unknown_status", status="HIBERNATING", times=2)
    assert [client.status(job["id"])["status"] for _ in range(3)] == ["HIBERNATING", "HIBERNATING", "RUNNING"]
    assert client.find()[0]["status"] == "RUNNING"


def test_status_can_be_missing(client: JobServiceClient) -> None:
    """A no_status fault leaves the status out of a reply that is else complete."""
    job = client.submit(["sleep", "1000"])
    client.add_fault("status", "no_status")
    bare = client.status(job["id"])
    assert "status" not in bare
    assert {**bare, "status": "RUNNING"} == client.status(job["id"])


def test_cancel_can_be_refused(service: JobService, client: JobServiceClient) -> None:
    """A refused cancel is answered with 403 and leaves the job running."""
    job = client.submit(["sleep", "1000"])
    client.add_fault("cancel", "refuse_cancel")
    with pytest.raises(httpx.HTTPStatusError) as caught:
        client.cancel(job["id"])
    assert caught.value.response.status_code == 403
    assert client.status(job["id"])["status"] == "RUNNING"
    os.kill(job["pid"], 0)


def test_slow_stop_keeps_the_job_alive_in_stopping(client: JobServiceClient) -> None:
    """A slow_stop job is STOPPING and its process lives until the fault is deleted."""
    job = client.submit(["sleep", "1000"])
    fault = client.add_fault("cancel", "slow_stop", seconds=1000)
    assert client.cancel(job["id"])["status"] == "STOPPING"
    assert client.status(job["id"])["status"] == "STOPPING"
    os.kill(job["pid"], 0)
    client.delete_fault(fault)
    ended = client.wait(job["id"])
    assert (ended["status"], ended["exit_code"]) == ("CANCELLED", -15)


def test_slow_stop_ends_after_its_seconds(client: JobServiceClient) -> None:
    """A slow_stop job is CANCELLED by itself, not before its seconds have passed."""
    job = client.submit(["sleep", "1000"])
    client.add_fault("cancel", "slow_stop", seconds=0.3)
    assert client.cancel(job["id"])["status"] == "STOPPING"
    ended = client.wait(job["id"])
    assert ended["status"] == "CANCELLED"
    assert ended["finished_at"] - ended["started_at"] >= 0.3


def test_slow_reply_comes_whole(service: JobService, client: JobServiceClient) -> None:
    """A slow reply is a normal one after a wait that a client with less patience doesn't sit out."""
    job = client.submit(["sleep", "1000"])
    client.add_fault("status", "slow_reply", seconds=0.2)
    assert client.status(job["id"])["status"] == "RUNNING"
    assert service.requests("status")[-1]["code"] == 200
    client.add_fault("status", "slow_reply", seconds=1000)
    with pytest.raises(httpx.ReadTimeout):
        service.client(timeout=0.05).status(job["id"])
    assert service.requests("status")[-1]["code"] is None


def test_held_request_is_carried_out_and_answered_on_release(
    service: JobService, client: JobServiceClient
) -> None:
    """A held submit has its job and its log row at once, its reply and its code when the fault is deleted."""
    fault = client.add_fault("submit", "hold")
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(service.client(timeout=30).submit, ["echo", "7"], token="t1")
        row = service.wait_for_request("submit", created=True)
        assert (row["code"], row["fault"], row["token"]) == (None, "hold", "t1")
        assert client.wait(row["job"])["result"] == 7
        assert not reply.done()
        client.delete_fault(fault)
        assert reply.result()["created"] is True
    assert service.requests("submit")[-1]["code"] == 201


def test_reply_held_for_a_vanished_client_is_not_called_sent(
    service: JobService, client: JobServiceClient
) -> None:
    """When a held request's client has gone away, the log goes on saying that no reply was sent."""
    client.add_fault("submit", "hold")
    with pytest.raises(httpx.ReadTimeout):
        service.client(timeout=0.05).submit(["true"], token="t1")
    client.clear_faults()
    assert client.submit(["true"], token="t1")["created"] is False
    assert [row["code"] for row in service.requests("submit")] == [None, 200]


def test_after_lets_requests_through_and_times_counts(client: JobServiceClient) -> None:
    """A fault spoils its number of requests after letting the first ones through, 0 meaning for ever."""
    job = client.submit(["sleep", "1000"])

    def codes(number: int) -> list[int]:
        found = []
        for _ in range(number):
            try:
                client.status(job["id"])
                found.append(200)
            except httpx.HTTPStatusError as error:
                found.append(error.response.status_code)
        return found

    client.add_fault("status", "unavailable", after=2, times=3)
    assert codes(7) == [200, 200, 503, 503, 503, 200, 200]
    client.add_fault("status", "error", times=0)
    assert codes(20) == [500] * 20
    client.clear_faults()
    assert codes(2) == [200, 200]


def test_faults_follow_each_other(client: JobServiceClient, web: httpx.Client) -> None:
    """A request meets the oldest fault that is due, while ``after`` of all matching faults counts on."""
    client.add_fault("find", "unavailable", times=2)
    client.add_fault("find", "throttle", after=1, times=2)
    client.add_fault("find", "error", after=5)
    assert [web.get("/jobs").status_code for _ in range(7)] == [503, 503, 429, 429, 200, 500, 200]


def test_fault_meets_only_what_it_names(client: JobServiceClient, web: httpx.Client) -> None:
    """A fault with a job, token or family leaves all other requests alone, and doesn't count them."""
    one = client.submit(["true"], token="t1", family="f1")["id"]
    two = client.submit(["true"], token="t2", family="f2")["id"]

    def codes() -> list[int]:
        paths = [f"/jobs/{one}", f"/jobs/{two}", "/jobs?token=t1", "/jobs?family=f2", "/jobs"]
        return [web.get(path).status_code for path in paths]

    for verb, names, expected in [
        ("status", {"job": one}, [503, 200, 200, 200, 200]),
        ("status", {"token": "t2"}, [200, 503, 200, 200, 200]),
        ("status", {"family": "f1"}, [503, 200, 200, 200, 200]),
        ("status", {"job": one, "token": "t2"}, [200, 200, 200, 200, 200]),
        ("find", {"token": "t1"}, [200, 200, 503, 200, 200]),
        ("find", {"family": "f2"}, [200, 200, 200, 503, 200]),
    ]:
        client.clear_faults()
        client.add_fault(verb, "unavailable", times=0, **names)
        assert codes() == expected
    client.add_fault("submit", "unavailable", token="t9")
    assert web.post("/jobs", json={"command": ["true"], "token": "t8"}).status_code == 201
    assert web.post("/jobs", json={"command": ["true"], "token": "t9"}).status_code == 503


def test_refused_request_meets_no_fault(client: JobServiceClient, web: httpx.Client) -> None:
    """A request that is refused for its own sake doesn't use a fault up."""
    client.add_fault("submit", "unavailable")
    assert web.post("/jobs", json={"command": []}).status_code == 400
    assert web.post("/jobs", json={"command": ["true"]}).status_code == 503


def test_fault_is_used_exactly_so_many_times_under_threads(
    service: JobService, client: JobServiceClient, web: httpx.Client
) -> None:
    """Of 50 threads that send 10 requests each, exactly as many are spoiled as the fault has times."""
    fault = client.add_fault("find", "unavailable", times=137, after=50)
    barrier = threading.Barrier(50)

    def send(_: int) -> list[int]:
        barrier.wait()
        return [web.get("/jobs").status_code for _ in range(10)]

    with ThreadPoolExecutor(50) as pool:
        codes = [code for found in pool.map(send, range(50)) for code in found]
    assert (codes.count(503), codes.count(200)) == (137, 363)
    assert len(service.requests("find", fault="unavailable")) == 137
    assert [(one["id"], one["hits"]) for one in client.faults()] == [(fault, 137)]


def test_faults_are_listed_and_deleted(client: JobServiceClient, web: httpx.Client) -> None:
    """Faults are listed with their hits, used-up ones too, until they are deleted, one or all."""
    first = client.add_fault("find", "unavailable", family="f")
    second = client.add_fault("status", "slow_reply", seconds=1, times=0, after=3, job="job-000007")
    web.get("/jobs?family=f")
    listed = client.faults()
    assert [(fault["id"], fault["hits"]) for fault in listed] == [(first, 1), (second, 0)]
    assert (
        listed[1]
        == {
            "verb": "status",
            "kind": "slow_reply",
            "seconds": 1.0,
            "times": 0,
            "after": 3,
            "job": "job-000007",
            "status": None,
            "token": None,
            "family": None,
        }
        | listed[1]
    )
    client.delete_fault(first)
    assert [fault["id"] for fault in client.faults()] == [second]
    assert web.delete(f"/faults/{first}").status_code == 404
    client.clear_faults()
    assert client.faults() == []


def test_restart_ends_all_faults(service: JobService, client: JobServiceClient) -> None:
    """Faults are not remembered over a restart."""
    client.add_fault("find", "unavailable", times=0)
    service.restart()
    assert service.client().find() == []


@pytest.mark.parametrize(
    ("body", "field", "allowed"),
    [
        ({"kind": "error"}, "verb", "submit, status, find, cancel, forget, credentials"),
        ({"verb": "poll", "kind": "error"}, "verb", "submit, status, find, cancel, forget, credentials"),
        ({"verb": "find"}, "kind", "unavailable, error, throttle, lost_reply"),
        ({"verb": "find", "kind": "boom"}, "kind", "unknown_status, no_status, slow_stop, refuse_cancel"),
        ({"verb": "find", "kind": "unknown_status", "status": "X"}, "kind", "verb=status only"),
        ({"verb": "status", "kind": "slow_stop", "seconds": 1}, "kind", "verb=cancel only"),
        ({"verb": "find", "kind": "error", "times": -1}, "times", "0 or more"),
        ({"verb": "find", "kind": "error", "times": True}, "times", "whole number"),
        ({"verb": "find", "kind": "error", "after": 1.5}, "after", "whole number"),
        ({"verb": "submit", "kind": "error", "job": "job-000001"}, "job", "verb=submit"),
        ({"verb": "credentials", "kind": "error", "token": "t"}, "token", "verb=credentials"),
        ({"verb": "find", "kind": "error", "token": "a/b"}, "token", "1 to 64"),
        ({"verb": "find", "kind": "error", "seconds": 1}, "seconds", "no seconds with kind=error"),
        ({"verb": "find", "kind": "slow_reply"}, "seconds", "required with kind=slow_reply"),
        ({"verb": "find", "kind": "slow_reply", "seconds": -1}, "seconds", "0 to 86400"),
        ({"verb": "find", "kind": "slow_reply", "seconds": "x"}, "seconds", "0 to 86400"),
        ({"verb": "status", "kind": "unknown_status"}, "status", "kind=unknown_status"),
        ({"verb": "status", "kind": "no_status", "status": "X"}, "status", "kind=unknown_status"),
        ({"verb": "find", "kind": "error", "tmies": 3}, "tmies", "verb, kind, times"),
    ],
)
def test_bad_fault_is_refused_by_name(
    web: httpx.Client, body: dict[str, object], field: str, allowed: str
) -> None:
    """A fault that can't be accepted, or could never fire, is answered with 400 and what is allowed."""
    reply = web.post("/faults", json=body)
    error = reply.json()
    assert (reply.status_code, error["field"]) == (400, field)
    assert allowed in error["allowed"]
    assert web.get("/faults").json() == {"faults": []}
