# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The spark-submit process: its lines, its end, and its life with its task."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from airflow_resumable.operators._submit_client import SubmitClient, accepted_id

ID = "driver-20261129182630-0000"


@pytest.mark.parametrize(
    ("line", "driver"),
    [
        (f"INFO ClientEndpoint: Driver successfully submitted as {ID}", ID),
        (f"RestSubmissionClient: Submission successfully created as {ID}. Polling submission state...", ID),
        (f'  "submissionId" : "{ID}",', ID),
        (f'  "message" : "Driver successfully submitted as {ID}",', ID),
        ("Driver successfully submitted as team.a-2026-7", "team.a-2026-7"),
        (f"INFO ClientEndpoint: State of {ID} is RUNNING", None),
        (f"  --name my-{ID}", None),
        ("Spark-Submit cmd: spark-submit --driver-memory 1g driver-1", None),
    ],
)
def test_the_id_is_read_where_the_master_took_the_driver(line: str, driver: str | None) -> None:
    """Lines of Spark 4.3's two clients, any shape of id, and lines that only look like it."""
    assert accepted_id(line) == driver


def test_the_id_is_known_before_the_process_ends(tmp_path: Path) -> None:
    """The caller goes on at the id; what the client prints later is still handed on."""
    lines: list[str] = []
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"echo Driver successfully submitted as driver-1; cat {gate}"
    client = SubmitClient(["sh", "-c", script], lines.append)

    assert client.wait_for_id() == "driver-1"
    assert client.process.poll() is None
    gate.write_text("State of driver-1 is RUNNING\n")
    client.join()
    assert lines[-1] == "State of driver-1 is RUNNING\n"
    assert client.returncode == 0


def test_everything_after_the_id_is_read_however_much() -> None:
    """More than a pipe holds comes after the id: the client is not blocked, and ends."""
    lines: list[str] = []
    script = "echo Driver successfully submitted as driver-1; seq 100000"
    client = SubmitClient(["sh", "-c", script], lines.append)

    assert client.wait_for_id() == "driver-1"
    assert client.process.wait(60) == 0
    client.join()
    assert lines[-1] == "100000\n"


def test_an_end_without_an_id_is_told_with_its_code() -> None:
    """No id: None, once all lines were read."""
    lines: list[str] = []
    client = SubmitClient(["sh", "-c", "echo no luck; printf '\\377\\n'; exit 3"], lines.append)

    assert client.wait_for_id() is None
    assert client.returncode == 3
    assert lines == ["no luck\n", "\ufffd\n"]


def test_java_is_told_not_to_repeat_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java repeats a POST by itself when the answer is lost; what else is set for the JVM is kept."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx256m")
    lines: list[str] = []
    client = SubmitClient(["sh", "-c", "echo $SPARK_SUBMIT_OPTS"], lines.append)
    client.join()

    assert lines == ["-Xmx256m -Dsun.net.http.retryPost=false\n"]


def test_a_line_that_can_not_be_logged_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """An error of the log is reported, and the lines after it are read."""

    def refuse(line: str) -> None:
        raise OSError("disk full")

    client = SubmitClient(["sh", "-c", "echo a; echo Driver successfully submitted as driver-1"], refuse)

    assert client.wait_for_id() == "driver-1"
    client.join()
    assert "could not be logged" in caplog.text


def _parent(pipe: Connection, scripted: str) -> None:
    client = SubmitClient(["sh", "-c", scripted], lambda line: pipe.send(line.strip()))
    pipe.send(client.process.pid)
    client.wait_for_id()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_process_does_not_outlive_its_task(number: signal.Signals, tmp_path: Path) -> None:
    """The task is killed: so is the client, through the exec of a script by a script."""
    inner = tmp_path / "spark-class"
    inner.write_text("#!/bin/sh\necho ready\nexec sleep 600\n")
    inner.chmod(0o755)
    here, there = multiprocessing.get_context("forkserver").Pipe()
    task = multiprocessing.get_context("forkserver").Process(target=_parent, args=(there, f"exec {inner}"))
    task.start()
    pid, said = here.recv(), here.recv()
    if said != "ready":
        pid, said = said, pid
    client = psutil.Process(pid)
    os.kill(task.pid or 0, number)
    task.join()
    psutil.wait_procs([client], timeout=10)

    assert not client.is_running() or client.status() == psutil.STATUS_ZOMBIE
