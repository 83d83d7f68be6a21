# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Attempts of one Spark task instance against a real cluster, some of them as processes that die."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import psutil

from airflow_resumable.jobs.attempt import JobAttempt
from airflow_resumable.jobs.crashpoints import check_point
from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.spark import SparkCluster
from airflow_resumable.testing.spark_app import SparkApp
from tests.forkserver import processes

RUN_STARTED = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
KEY = "spark_job_id"

_processes = processes("tests.spark_attempts")


def connection(
    cluster: SparkCluster,
    gateway: Literal["rpc", "rest"] = "rpc",
    *,
    port: int | None = None,
    rest_port: int | None = None,
    webui_port: int | None = None,
) -> str:
    """Return a Spark connection, as the value of an environment variable."""
    extra = {
        "deploy-mode": "cluster",
        "rest-port": rest_port or cluster.ports["rest"],
        "webui-port": webui_port or cluster.ports["master_ui"],
    }
    port = port or cluster.ports[gateway]
    return json.dumps({"conn_type": "spark", "host": "spark://127.0.0.1", "port": port, "extra": extra})


@dataclass
class SparkTask:
    """One task instance: its store, its cluster, and the attempts that are made of it."""

    cluster_environment: dict[str, str]
    connection: str
    store_dir: Path
    app: SparkApp
    rest: bool = False
    retries: int = 2
    max_tries: int = 2
    policy: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    server_state: str = "running"
    patience: float = 60.0
    operator_class: type[Any] = ResumableSparkSubmitOperator

    @property
    def store(self) -> FileTaskStateStore:
        """What the task instance's attempts share."""
        return FileTaskStateStore(self.store_dir)

    @property
    def record(self) -> Any:
        """The record as it lies in the store."""
        return self.store.get(f"resumable.{KEY}")

    @property
    def driver(self) -> Any:
        """The id under the provider's own key."""
        return self.store.get(KEY)

    @property
    def environment(self) -> dict[str, str]:
        """What spark-submit and the operator find in their environment."""
        return {
            **self.cluster_environment,
            "AIRFLOW_CONN_SPARK_DEFAULT": self.connection,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            # A client that runs for two seconds has no use for optimised code.
            "SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }

    def operator(self) -> Any:
        """Return a fresh operator, as each attempt has its own."""
        conf = {**self.app.conf, **({"spark.master.rest.enabled": "true"} if self.rest else {})}
        ours = issubclass(self.operator_class, ResumableSparkSubmitOperator)
        operator = self.operator_class(
            task_id="task",
            application=self.app.resource,
            java_class=self.app.main_class,
            application_args=list(self.app.args),
            conf=conf,
            retries=self.retries,
            status_poll_interval=1,
            **({"resume_policy": self.policy} if ours else {}),
            **self.arguments,
        )
        operator._status_poll_interval = 0.2
        operator.adoption_patience = self.patience
        return operator

    def context(self, operator: Any, try_number: int) -> Any:
        """Return the context of one attempt."""
        # A run of its own: the token shows in the commands of processes, which tests look for by it.
        run = f"run {self.store_dir}"
        ti = SimpleNamespace(
            id=uuid.uuid4(),
            dag_id="dag",
            run_id=run,
            task_id="task",
            map_index=-1,
            try_number=try_number,
            max_tries=self.max_tries,
            stats_tags={},
            get_task_states=lambda **_: {run: {"task": self.server_state}},
        )
        return {
            "ti": ti,
            "task": operator,
            "dag_run": SimpleNamespace(start_date=RUN_STARTED),
            "task_state_store": self.store,
        }

    def attempt(self, try_number: int = 1) -> Any:
        """Make an attempt in this process and return its result."""
        with mock.patch.dict(os.environ, self.environment):
            operator = self.operator()
            return operator.execute(self.context(operator, try_number))

    def start(self, try_number: int = 1, at: str | None = None) -> Attempt:
        """Start an attempt as a process of its own, which waits at the crash point `at` to be killed."""
        here, there = _processes.Pipe()
        process = _processes.Process(
            target=_run, args=(self, try_number, at and check_point(at), there), daemon=True
        )
        process.start()
        there.close()
        return Attempt(process, here)


@dataclass
class Attempt:
    """An attempt that runs as a process of its own."""

    process: Any
    pipe: Connection

    def wait_at_point(self, timeout: float = 90.0) -> None:
        """Wait until the attempt is at its crash point."""
        if not self.pipe.poll(timeout):
            raise AssertionError("the attempt did not reach its crash point")
        said = self.pipe.recv()
        if said[0] != "at":
            raise AssertionError(f"the attempt ended before its crash point: {said}")

    def clients(self) -> list[psutil.Process]:
        """Return the attempt's spark-submit processes."""
        return [one for one in psutil.Process(self.process.pid).children(recursive=True) if one.is_running()]

    def wait_for_client(self, timeout: float = 30.0) -> psutil.Process:
        """Wait until spark-submit has become the JVM that submits; return it."""
        found: list[psutil.Process] = []

        def jvm() -> bool:
            found[:] = [
                one for one in self.clients() if "org.apache.spark.deploy.SparkSubmit" in _command(one)
            ]
            return bool(found)

        until(jvm, timeout)
        return found[0]

    def kill(self) -> None:
        """Kill the attempt for good."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.pipe.close()

    def stop(self) -> tuple[str, str]:
        """Send SIGTERM; return how the attempt ended."""
        os.kill(self.process.pid, signal.SIGTERM)
        return self.end()

    def end(self, timeout: float = 120.0) -> tuple[str, str]:
        """Wait for the end; return ("returned" or the exception's name, text)."""
        while self.pipe.poll(timeout):
            said: tuple[str, str] = self.pipe.recv()
            if said[0] != "at":
                self.process.join()
                self.pipe.close()
                return said
        raise AssertionError("the attempt did not end")


def begin(task: SparkTask, at: str, try_number: int = 1) -> Attempt:
    """Start an attempt and wait until it is at a crash point."""
    attempt = task.start(try_number, at)
    attempt.wait_at_point()
    return attempt


def until(condition: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait until something outside this process is so; there is no event to wait for."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {timeout} s")
        time.sleep(0.02)


def processes_with(*texts: str) -> list[psutil.Process]:
    """Return the processes of this machine that have all these texts in their command."""
    return [one for one in psutil.process_iter() if all(text in "\n".join(_command(one)) for text in texts)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _run(task: SparkTask, try_number: int, at: str | None, pipe: Connection) -> None:
    from airflow_resumable.jobs import attempt

    logging.basicConfig(level=logging.INFO, force=True)
    os.environ.update(task.environment)
    operator = task.operator()

    # Airflow's own handler has this name, by which on_kill knows that it runs inside a signal.
    def _on_term(signum: int, frame: object) -> None:
        operator.on_kill()

    class Waits(JobAttempt):
        def reach(self, passed: str) -> None:
            if passed == at and not Waits.reached:
                Waits.reached = True
                pipe.send(("at", passed))
                if passed != "mid_poll":
                    signal.pause()
            super().reach(passed)

        reached = False

    attempt.JobAttempt = Waits  # type: ignore[misc]
    signal.signal(signal.SIGTERM, _on_term)
    try:
        result = operator.execute(task.context(operator, try_number))
    except BaseException as error:
        pipe.send((type(error).__name__, str(error)))
    else:
        pipe.send(("returned", str(result)))
