# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Operations of a real Spark Connect server as tests need them, and attempts as processes that die."""

from __future__ import annotations

import json
import logging
import os
import signal
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from airflow_resumable.operators.spark_connect import ResumableSparkConnectOperator
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests.forkserver import processes
from tests.spark_attempts import RUN_STARTED

CONNECTION = "AIRFLOW_CONN_SPARK_CONNECT_DEFAULT"
USER = "airflow"
"""Whose operations the operator's are, where the connection has no login."""

_processes = processes("tests.connect_attempts")


def connection(port: int, *, ui_url: str | None = None, **more: Any) -> str:
    """Return a Spark Connect connection, as the value of an environment variable."""
    extra = {"ui-url": ui_url} if ui_url else {}
    return json.dumps(
        {"conn_type": "spark_connect", "host": "127.0.0.1", "port": port, "extra": extra, **more}
    )


SUCCEEDS = "SELECT count(id) AS n FROM range(0, 2000, 1, 1)"
"""A statement of one Spark job with the row that one behind a gate has."""
FAILS = "SELECT sum(CAST(raise_error(concat('broken ', id)) AS BIGINT)) FROM range(0, 10, 1, 1)"
"""A statement whose Spark job fails."""


def operator(sql: str, **arguments: Any) -> ResumableSparkConnectOperator:
    """Return a fresh operator with a short poll interval."""
    settings = {"retries": 2, "retry_delay": timedelta(seconds=1), "status_poll_interval": 0.1, **arguments}
    if "build" not in settings:
        settings["sql"] = sql
    return ResumableSparkConnectOperator(task_id="task", **settings)


@dataclass
class ConnectTask:
    """One task instance whose attempts are processes of their own."""

    connection: str
    store_dir: Path
    sql: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def tries(self, number: int = 0) -> TaskTries:
        """Return what makes the attempts; the next one has the number after `number`."""
        # A run of its own: the token shows in the server's list, which outlives the test.
        tries = TaskTries(FileTaskStateStore(self.store_dir), run_id=f"run {self.store_dir}")
        tries._started = RUN_STARTED
        tries.try_number = number
        return tries

    @property
    def record(self) -> Any:
        """The record as it lies in the store."""
        return self.tries().record(ResumableSparkConnectOperator)

    def run(self, try_number: int) -> Any:
        """Make an attempt in this process and return its result."""
        return self.tries(try_number - 1).run(operator(self.sql, **self.arguments))

    def start(self, try_number: int = 1, at: str | None = None) -> ConnectAttempt:
        """Start an attempt as a process of its own, which waits at the crash point `at` to be killed."""
        here, there = _processes.Pipe()
        process = _processes.Process(target=_run, args=(self, try_number, at, there), daemon=True)
        process.start()
        there.close()
        return ConnectAttempt(process, here)


@dataclass
class ConnectAttempt:
    """An attempt that runs as a process of its own."""

    process: Any
    pipe: Connection

    def wait_at_point(self, timeout: float = 60.0) -> None:
        """Wait until the attempt is at its crash point."""
        if not self.pipe.poll(timeout):
            raise AssertionError("the attempt did not reach its crash point")
        said = self.pipe.recv()
        if said != "at":
            raise AssertionError(f"the attempt ended before its crash point: {said}")

    def kill(self) -> None:
        """Kill the attempt for good."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.pipe.close()

    def stop(self, timeout: float = 30.0) -> str:
        """Send SIGTERM; return how the attempt ended, once its process is gone."""
        os.kill(self.process.pid, signal.SIGTERM)
        return self.end(timeout)

    def end(self, timeout: float = 60.0) -> str:
        """Wait for the end of the attempt's process; return "returned" or its exception's name."""
        if not self.pipe.poll(timeout):
            raise AssertionError("the attempt did not end")
        said = str(self.pipe.recv())
        self.process.join(10)
        if self.process.is_alive():
            raise AssertionError(f"the attempt ended ({said}), but something keeps its process alive")
        self.pipe.close()
        return said


def _run(task: ConnectTask, try_number: int, at: str | None, pipe: Connection) -> None:
    logging.basicConfig(level=logging.INFO, force=True)
    os.environ[CONNECTION] = task.connection
    subject, waits = operator(task.sql, **task.arguments), at != "mid_poll"
    told: list[int] = []

    # Airflow's own handler has this name, by which on_kill knows that it runs inside a signal.
    def _on_term(signum: int, frame: object) -> None:
        subject.on_kill()

    def reached() -> None:
        if not told:
            told.append(1)
            pipe.send("at")
            if waits:
                signal.pause()

    signal.signal(signal.SIGTERM, _on_term)
    try:
        with at_point(at or "", reached):
            task.tries(try_number - 1).run(subject)
    except BaseException as error:
        pipe.send(type(error).__name__)
    else:
        pipe.send("returned")
