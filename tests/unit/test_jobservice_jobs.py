# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The job service runs commands as jobs and tells how they ended."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
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


def test_job_runs_to_its_end(service: JobService, web: httpx.Client) -> None:
    """A new job is answered with 201 and its record, and ends with exit code, result and times."""
    client = service.client()
    reply = web.post("/jobs", json={"command": ["echo", "42"], "name": "n", "location": "eu"})
    assert reply.status_code == 201
    assert reply.json() | {"created": True, "id": "job-000001", "name": "n", "location": "eu"} == reply.json()
    job = client.wait("job-000001")
    assert (job["status"], job["exit_code"], job["result"], job["reason"]) == ("SUCCEEDED", 0, 42, None)
    assert job["submitted_at"] <= job["started_at"] <= job["finished_at"]
    assert client.submit(["true"])["id"] == "job-000002"


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("true", None),
        ("echo one; echo two", "two"),
        ("printf two", "two"),
        ("echo 0", 0),
        ("""echo '{"rows": [1, null]}'""", {"rows": [1, None]}),
        ("echo null", None),
        ("echo last; echo; echo '  '", "last"),
        ("echo out; echo err >&2", "out"),
        ("echo NaN", "NaN"),
        (r"printf '\377\n'", "\ufffd"),
        (r"""printf '"\\ud800"\n'""", "\ud800"),
        ("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end", "end"),
        ("echo partial; exit 3", "partial"),
    ],
)
def test_result_is_the_last_line_of_stdout(service: JobService, script: str, result: object) -> None:
    """The result is the last line of stdout that isn't blank, parsed if it is JSON, or null."""
    client = service.client()
    job = client.wait(client.submit(["sh", "-c", script])["id"])
    assert job["result"] == result


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", -9), ("kill -15 $$", -15)])
def test_any_exit_code_but_0_is_a_failure(service: JobService, script: str, code: int) -> None:
    """A job that exits with a code, or by a signal it wasn't sent by us, is FAILED."""
    client = service.client()
    job = client.wait(client.submit(["sh", "-c", script])["id"])
    assert (job["status"], job["exit_code"]) == ("FAILED", code)


@pytest.mark.parametrize("command", [["/no/such/program"], [""], ["/etc/passwd"], ["echo", "x" * 200_000]])
def test_command_that_cannot_start_is_a_failed_job(service: JobService, command: list[str]) -> None:
    """A command that the system refuses to start is accepted and FAILED at once, with the reason."""
    job = service.client().submit(command)
    assert (job["created"], job["status"], job["exit_code"]) == (True, "FAILED", None)
    assert job["reason"].startswith("could not start: ")
    assert job["finished_at"] is not None


def test_log_file_has_stdout_and_stderr(service: JobService) -> None:
    """Both streams of a job are in jobs/<id>.log."""
    client = service.client()
    job = client.wait(client.submit(["sh", "-c", "echo out; echo err >&2"])["id"])
    log = service.data_dir / "jobs" / f"{job['id']}.log"
    assert sorted(log.read_text().split()) == ["err", "out"]


def test_job_gets_an_environment_of_its_own(service: JobService) -> None:
    """A job knows its id, has no input to read, and leads its own session and process group."""
    client = service.client()
    script = (
        "import json, os, sys\n"
        "print(json.dumps([os.environ['JOB_ID'], sys.stdin.read(), os.getpid(), os.getpgrp(), os.getsid(0)]))"
    )
    job = client.wait(client.submit([sys.executable, "-c", script])["id"])
    assert job["result"] == [job["id"], "", job["pid"], job["pid"], job["pid"]]


def test_job_outlives_its_submitter(service: JobService, tmp_path: Path) -> None:
    """A job runs on and succeeds though the process that submitted it was killed."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    submitter = (
        "import os, signal, sys\n"
        "from airflow_resumable.testing.jobservice import JobServiceClient\n"
        "JobServiceClient(sys.argv[1]).submit(['cat', sys.argv[2]])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", submitter, service.url, str(gate)], env=environment)
    assert ended.returncode == -9
    assert service.client().status("job-000001")["status"] == "RUNNING"
    gate.write_text("done\n")
    assert service.client().wait("job-000001")["result"] == "done"


def test_what_a_job_leaves_in_its_group_ends_with_it(service: JobService) -> None:
    """A background process of a job is killed when the job's first process ends."""
    client = service.client()
    job = client.wait(client.submit(["sh", "-c", "sleep 1000 & echo $!"])["id"])
    assert job["status"] == "SUCCEEDED"
    assert _has_ended(job["result"])


def test_process_that_left_the_group_does_not_keep_the_job_open(service: JobService, tmp_path: Path) -> None:
    """A job ends with its first process, though a daemon it started holds its output open."""
    escaped = tmp_path / "escaped"
    os.mkfifo(escaped)
    client = service.client()
    script = f"setsid sh -c 'echo $$ > {escaped}; exec sleep 1000' & read pid < {escaped}; echo $pid"
    job = client.wait(client.submit(["sh", "-c", script])["id"])
    assert job["status"] == "SUCCEEDED"
    os.kill(job["result"], 0)


@pytest.mark.parametrize(
    ("body", "field", "allowed"),
    [
        ({}, "command", "non-empty list of texts"),
        ({"command": []}, "command", "non-empty list of texts"),
        ({"command": "echo"}, "command", "non-empty list of texts"),
        ({"command": ["echo", 1]}, "command", "non-empty list of texts"),
        ({"command": ["a\0b"]}, "command", "without NUL"),
        ({"command": ["\ud800"]}, "command", "lone surrogates"),
        ({"command": ["true"], "name": 5}, "name", "a text"),
        ({"command": ["true"], "family": "x" * 257}, "family", "at most 256"),
        ({"command": ["true"], "location": "\ud800"}, "location", "lone surrogates"),
        ({"command": ["true"], "tokn": "t"}, "tokn", "command, token, family, name, location"),
        ({"command": ["true"], "token": ""}, "token", "1 to 64"),
        ({"command": ["true"], "token": "x" * 65}, "token", "1 to 64"),
        ({"command": ["true"], "token": "a/b"}, "token", "A-Z a-z 0-9 . _ -"),
        ({"command": ["true"], "token": "a\n"}, "token", "A-Z a-z 0-9 . _ -"),
        ({"command": ["true"], "token": 7}, "token", "1 to 64"),
    ],
)
def test_bad_submit_is_refused_by_name(
    service: JobService, web: httpx.Client, body: dict[str, object], field: str, allowed: str
) -> None:
    """A field that can't be accepted is answered with 400, its name, its value and what is allowed."""
    reply = web.post("/jobs", content=json.dumps(body))
    error = reply.json()
    assert (reply.status_code, error["error"], error["field"]) == (400, "invalid", field)
    assert error["value"] == body.get(field)
    assert allowed in error["allowed"]
    assert field in error["message"]
    assert service.jobs_started() == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"command": NaN}', b"\xff", b"[" * 100_000])
def test_body_that_is_no_json_object_is_refused(service: JobService, web: httpx.Client, body: bytes) -> None:
    """A submit whose body isn't a JSON object is answered with 400."""
    reply = web.post("/jobs", content=body)
    assert (reply.status_code, reply.json()["field"]) == (400, "body")
    assert service.jobs_started() == 0


@pytest.mark.parametrize(
    ("method", "path", "code", "error"),
    [
        ("GET", "/jobs/job-000009", 404, "not_found"),
        ("POST", "/jobs/job-000009/cancel", 404, "not_found"),
        ("DELETE", "/jobs/job-000009", 404, "not_found"),
        ("GET", "/jobs/%22job-000001%22", 404, "not_found"),
        ("GET", "/jobs/1", 404, "not_found"),
        ("GET", "/", 404, "no_such_route"),
        ("GET", "/jobs/", 404, "no_such_route"),
        ("PUT", "/jobs", 405, "method_not_allowed"),
        ("GET", "/jobs/job-000001/cancel", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("GET", "/jobs/job-000001?wiat=1", 400, "invalid"),
        ("GET", "/jobs/job-000001?wait=-1", 400, "invalid"),
        ("GET", "/jobs/job-000001?wait=1&wait=2", 400, "invalid"),
    ],
)
def test_request_that_names_nothing_known_is_refused(
    service: JobService, web: httpx.Client, method: str, path: str, code: int, error: str
) -> None:
    """An unknown job, route, method or query field gets its own code and error."""
    service.client().submit(["true"])
    reply = web.request(method, path)
    assert (reply.status_code, reply.json()["error"]) == (code, error)


def test_plain_ids_start_at_a_falsy_one(tmp_path: Path) -> None:
    """With plain ids from 0 on, ids are JSON integers everywhere, and 0 is an id as good as any."""
    with JobService(tmp_path / "service", first_id=0, plain_ids=True) as service:
        client = service.client()
        first = client.submit(["sh", "-c", "echo id=$JOB_ID"], token="t")
        second = client.submit(["true"])
        assert (first["id"], second["id"]) == (0, 1)
        assert type(first["id"]) is int
        assert client.wait(0)["result"] == "id=0"
        assert client.find(token="t")[0]["id"] == 0
        assert [row["job"] for row in service.requests("status", job=0)] == [0]
        client.add_fault("status", "unavailable", job=0)
        with pytest.raises(httpx.HTTPStatusError, match="503"):
            client.status(0)
        client.forget(0)
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            client.status(0)
        assert client.status(1)["id"] == 1


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"Content-Type": "text/plain"}, "Content-Type='text/plain'"),
        (
            {"Content-Type": "application/json", "Origin": "http://evil.example"},
            "Origin='http://evil.example'",
        ),
        ({"Content-Type": "application/json", "Host": "evil.example:8765"}, "Host='evil.example'"),
    ],
)
def test_a_web_page_cant_start_a_job(service: JobService, headers: dict[str, str], named: str) -> None:
    """What a browser sends on behalf of a page is refused, so nobody's visit runs a command here."""
    body = json.dumps({"command": ["/bin/true"]})
    reply = httpx.post(f"{service.url}/jobs", content=body, headers=headers)
    assert reply.status_code == 403
    assert named in reply.text
    assert service.jobs_started() == 0
