# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The job service starts, stops, dies and comes back as a process; nothing of it is left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from airflow_resumable.testing.jobservice import JobService, JobServiceError, leftovers
from airflow_resumable.testing.jobservice.journal import open_readonly

_MODULE = [sys.executable, "-m", "airflow_resumable.testing.jobservice"]
_ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[JobService]:
    with JobService(tmp_path / "service") as running:
        yield running


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


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the service's command line where it is expected to end by itself."""
    command = [*_MODULE, *map(str, arguments)]
    return subprocess.run(command, env=_ENVIRONMENT, capture_output=True, text=True, timeout=60)


def test_command_line_publishes_where_it_listens(tmp_path: Path) -> None:
    """Started by hand, it prints its URL, writes it and the port to files, and ends with 0 on SIGTERM."""
    data_dir, port_file = tmp_path / "new" / "service", tmp_path / "port"
    command = [*_MODULE, "--data-dir", str(data_dir), "--port-file", str(port_file)]
    with subprocess.Popen(command, env=_ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert (data_dir / "url").read_text() == url + "\n"
            assert port_file.read_text() == url.rpartition(":")[2] + "\n"
            assert httpx.get(url + "/health", trust_env=False).json() == {"ok": True, "pid": process.pid}
            assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "port"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
            assert process.stdout.read() == ""
        finally:
            process.kill()
    assert not (data_dir / "url").exists()


def test_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    """A port that something else listens on is an error with status 2 and the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = _run("--data-dir", tmp_path / "service", "--port", str(port))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"jobservice: port {port} of 127.0.0.1 is in use: choose another --port, or 0 for a free one\n"
    )


def test_data_dir_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    """A data directory below a plain file is an error with status 2."""
    (tmp_path / "file").touch()
    ended = _run("--data-dir", tmp_path / "file" / "service")
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"jobservice: --data-dir {tmp_path}/file/service can't be written (")
    assert ended.stderr.count("\n") == 1


def test_port_file_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    """A port file in a missing directory is an error with status 2."""
    ended = _run("--data-dir", tmp_path / "service", "--port-file", tmp_path / "missing" / "port")
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"jobservice: {tmp_path}/missing/port can't be written (")
    assert ended.stderr.count("\n") == 1


def test_data_dir_in_use_is_said_in_one_line(service: JobService) -> None:
    """A second service on the data directory of a running one is an error with status 2, and harmless."""
    job = service.client().submit(["sleep", "1000"])
    ended = _run("--data-dir", service.data_dir)
    assert ended.returncode == 2
    assert "is in use by another job service" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert service.client().status(job["id"])["status"] == "RUNNING"


def test_journal_that_is_none_is_said_in_one_line(tmp_path: Path) -> None:
    """A data directory whose journal is some other file is an error with status 2."""
    (tmp_path / "journal.sqlite").write_text("not a database " * 100)
    ended = _run("--data-dir", tmp_path)
    assert ended.returncode == 2
    assert "can't be used as the journal" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--port", "70000", "0 to 65535"),
        ("--port", "http", "0 to 65535"),
        ("--max-running", "0", "1 or more"),
        ("--credential-uses", "-1", "1 or more"),
        ("--first-id", "-1", "0 or more"),
        ("--parent-pid", "0", "1 or more"),
    ],
)
def test_bad_option_is_refused_by_name(tmp_path: Path, option: str, value: str, allowed: str) -> None:
    """An option that can't be accepted is an error with status 2, its name, its value and what is allowed."""
    ended = _run("--data-dir", tmp_path, option, value)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert all(part in ended.stderr for part in (option, repr(value), allowed))


def test_helper_says_why_the_service_did_not_start(tmp_path: Path) -> None:
    """The helper raises with what the service said, and leaves no process."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        service = JobService(tmp_path / "service", port=taken.getsockname()[1])
        with pytest.raises(JobServiceError, match=r"status 2 before it listened: jobservice: port \d+ of"):
            service.start()
    with pytest.raises(JobServiceError, match="never started"):
        _ = service.url
    (tmp_path / "journal.sqlite").write_text("not a database " * 100)
    with pytest.raises(JobServiceError, match="can't be used as the journal: file is not a database"):
        JobService(tmp_path).start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_signal_takes_the_jobs_along(
    service: JobService, tmp_path: Path, number: signal.Signals
) -> None:
    """On SIGTERM or SIGINT it kills its jobs, forgotten ones and processes that left their group too."""
    escaped = tmp_path / "escaped"
    os.mkfifo(escaped)
    client = service.client()
    script = f"trap '' TERM; sleep 1000 & setsid sh -c 'echo $$ > {escaped}; exec sleep 1000' & wait"
    job = client.submit(["sh", "-c", script])
    hidden = client.submit(["env", "-i", "sleep", "1000"])
    forgotten = client.submit(["sleep", "1000"])
    client.forget(forgotten["id"])
    pids = [job["pid"], int(escaped.read_text()), hidden["pid"], forgotten["pid"]]
    os.kill(service.pid, number)
    assert [pid for pid in [service.pid, *pids] if not _has_ended(pid)] == []
    with open_readonly(service.data_dir / "journal.sqlite") as db:
        (cookie,) = db.execute("SELECT value FROM meta WHERE name = 'cookie'").fetchone()
    assert leftovers.carrying(cookie) == []


def test_stop_is_heard_at_any_moment(service: JobService) -> None:
    """A SIGTERM that comes while the service begins to listen, busy with requests already, is not missed."""
    address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
    over = threading.Event()

    def hammer() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(address, timeout=1) as connection:
                connection.sendall(b"GET /jobs HTTP/1.1\r\n\r\n" * 20)
                connection.recv(100)

    allowed = os.sched_getaffinity(0)
    # One processor for all, so that the service's threads are preempted wherever that hurts.
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with ThreadPoolExecutor(6) as pool:
            try:
                for _ in range(6):
                    pool.submit(hammer)
                for _ in range(15):
                    service.restart()
                service.stop()
            finally:
                over.set()
    finally:
        os.sched_setaffinity(0, allowed)


def test_held_request_does_not_delay_the_stop(service: JobService) -> None:
    """A service with a request on hold and a slow cancel under way ends at once, with status 0."""
    client = service.client()
    job = client.submit(["sleep", "1000"])
    client.add_fault("find", "hold")
    client.add_fault("cancel", "slow_stop", seconds=1000)
    client.cancel(job["id"])
    with pytest.raises(httpx.ReadTimeout):
        service.client(timeout=0.05).find()
    service.stop()
    assert _has_ended(job["pid"])


def test_service_ends_with_its_parent(tmp_path: Path) -> None:
    """When the process given as parent is killed, the service and its jobs end by themselves."""
    starter = (
        "import sys, time\n"
        "from airflow_resumable.testing.jobservice import JobService\n"
        "service = JobService(sys.argv[1]).start()\n"
        "job = service.client().submit(['sleep', '1000'])\n"
        "print(service.pid, job['pid'], flush=True)\n"
        "time.sleep(1000)\n"
    )
    command = [sys.executable, "-c", starter, str(tmp_path / "service")]
    with subprocess.Popen(command, env=_ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        service_pid, job_pid = map(int, process.stdout.readline().split())
        process.kill()
    assert _has_ended(service_pid)
    assert _has_ended(job_pid)


def test_service_whose_parent_is_gone_ends_at_once(tmp_path: Path) -> None:
    """A parent that doesn't exist any more when the service starts ends it with status 0."""
    with subprocess.Popen(["true"]) as gone:
        pass
    assert _run("--data-dir", tmp_path / "service", "--parent-pid", str(gone.pid)).returncode == 0


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_restart_remembers(service: JobService, way: str) -> None:
    """A restarted service shows finished jobs as they were and fails those that were running."""
    client = service.client("before")
    done = client.wait(client.submit(["echo", "7"], token="t1")["id"])
    running = client.submit(["sleep", "1000"], token="t2")
    url = service.url
    if way == "kill":
        service.kill()
    service.restart()
    assert service.url == url
    client = service.client("after")
    assert client.status(done["id"]) == done
    lost = client.status(running["id"])
    assert (lost["status"], lost["exit_code"], lost["reason"]) == ("FAILED", None, "service restarted")
    assert lost["finished_at"] >= running["submitted_at"]
    assert _has_ended(running["pid"])
    assert client.submit(["echo", "7"], token="t1")["created"] is False
    assert client.submit(["sleep", "1000"], token="t2")["created"] is False
    assert client.submit(["true"])["id"] == "job-000003"


def test_cancel_under_way_counts_after_a_restart(service: JobService) -> None:
    """A job that was STOPPING when the service was killed is CANCELLED, and gone."""
    client = service.client()
    job = client.submit(["sleep", "1000"])
    client.add_fault("cancel", "slow_stop", seconds=1000)
    client.cancel(job["id"])
    service.kill()
    service.restart()
    assert service.client().status(job["id"])["status"] == "CANCELLED"
    assert _has_ended(job["pid"])


def test_jobs_outlive_a_killed_service_until_it_is_settled(service: JobService, tmp_path: Path) -> None:
    """SIGKILL of the service leaves its jobs running; stopping the helper ends them, and escaped children."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    client = service.client()
    script = f"setsid sh -c 'echo $$ > {ready}; exec sleep 1000' & exec sleep 1000"
    job = client.submit(["sh", "-c", script])
    escaped = int(ready.read_text())
    service.kill()
    with pytest.raises(httpx.ConnectError):
        client.status(job["id"])
    os.kill(job["pid"], 0)
    os.kill(escaped, 0)
    service.stop()
    assert _has_ended(job["pid"])
    assert _has_ended(escaped)


def test_job_that_hides_its_environment_is_found_again(service: JobService) -> None:
    """A job whose environment can't be read back, as after setproctitle, is ended all the same."""
    client = service.client()
    job = client.submit(["env", "-i", "sleep", "1000"])
    service.kill()
    service.stop()
    assert _has_ended(job["pid"])


def test_failing_test_leaves_no_process(tmp_path: Path) -> None:
    """An exception inside the block ends the service and its jobs."""
    pids: list[int] = []

    def fail() -> None:
        with JobService(tmp_path / "service") as service:
            pids.extend([service.pid, service.client().submit(["sleep", "1000"])["pid"]])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(pids) == 2
    assert all(_has_ended(pid) for pid in pids)


def test_stop_is_harmless_when_repeated(service: JobService) -> None:
    """Stopping twice, or before a start, does nothing; starting twice is refused."""
    with pytest.raises(JobServiceError, match="runs already"):
        service.start()
    service.stop()
    service.stop()
    JobService(service.data_dir / "other").stop()
    with pytest.raises(JobServiceError, match="not running"):
        _ = service.pid


def test_service_needs_the_standard_library_only() -> None:
    """Neither Airflow nor httpx is imported by the service's process."""
    code = (
        "import sys, airflow_resumable.testing.jobservice.__main__\n"
        "print('httpx' in sys.modules, 'airflow' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], env=_ENVIRONMENT, capture_output=True, text=True)
    assert ended.stdout == "False False\n", ended.stderr


def test_killed_service_never_loses_or_doubles_a_job(service: JobService) -> None:
    """Killed amid submits again and again, it starts one job a token and logs exactly that."""
    tokens = [f"t{number}" for number in range(60)]
    with service.client(timeout=20) as client:
        for number, token in enumerate(tokens):
            if number % 6 == 3:
                # The reply is lost with the service, at an arbitrary moment of the submit.
                fault = "lost_reply" if number % 4 else "reset"
                client.add_fault("submit", fault, token=token)
                with pytest.raises(httpx.TransportError):
                    client.submit(["echo", token], token=token)
                service.kill()
                service.restart()
            client.submit(["echo", token], token=token)
    assert [service.jobs_started(token=token) for token in tokens] == [1] * len(tokens)
    assert service.jobs_started() == len(tokens)


def test_submit_that_cannot_be_logged_starts_nothing(service: JobService) -> None:
    """When the disk refuses the log's write, there is no job and no process, and the reply is a 500."""
    with contextlib.closing(sqlite3.connect(service.data_dir / "journal.sqlite")) as db:
        db.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE OF created ON requests"
            " BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
    client = service.client()
    with pytest.raises(httpx.HTTPStatusError) as caught:
        client.submit(["true"], token="t1")
    assert (caught.value.response.status_code, caught.value.response.json()["error"]) == (500, "bug")
    assert client.find() == []
    assert list((service.data_dir / "jobs").iterdir()) == []
    assert service.jobs_started() == 0
