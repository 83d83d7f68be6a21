# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A real Spark Connect server on this host, from the installed pyspark package.

::

    with SparkConnectServer(tmp_path) as server:
        ...  # sc://127.0.0.1:<server.port>
        assert [job.operation for job in server.jobs()] == [operation_id]
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from airflow_resumable.testing.errors import StackError
from airflow_resumable.testing.ports import free_ports
from airflow_resumable.testing.processes import Managed, ProcessTree
from airflow_resumable.testing.spark_host import find_java, find_spark, require_memory

_POLL = 0.1
_TAG = re.compile(r"SparkConnect_OperationTag_User_(.+)_Session_[0-9a-f-]{36}_Operation_([0-9a-f-]{36})")

_CREATED = re.compile(r"ExecuteHolder ExecuteKey\((.+),[0-9a-f-]{36},([0-9a-f-]{36})\) is created")


@dataclass(frozen=True)
class ConnectJob:
    """A Spark job that an operation has run, as the server's own web UI lists it.

    Attributes:
        number: Spark's job id, counted from 0 since the server was started.
        operation: The operation's id.
        user: Whose session it was.
        state: RUNNING, SUCCEEDED, FAILED, UNKNOWN.
    """

    number: int
    operation: str
    user: str
    state: str


class SparkConnectServer:
    """A Spark Connect server with its executors in the same process, and its web UI.

    Args:
        work_dir: Its log, warehouse and temporary files.
        conf: Further Spark properties.
        start_timeout: Seconds until it must be ready.
        cores: Statements at work at once, if each has one task.

    Raises:
        SystemUnavailable: When pyspark or Java 17 is missing, or memory is short: says what to do.
        StackError: When it dies or isn't ready in time, with the end of its log.
    """

    def __init__(
        self,
        work_dir: Path,
        conf: Mapping[str, str] | None = None,
        *,
        start_timeout: float = 120.0,
        cores: int = 4,
    ) -> None:
        self.work_dir = work_dir.resolve()
        self.port, self._ui_port = free_ports(2)
        self._conf = dict(conf or {})
        self._start_timeout = start_timeout
        self._cores = cores
        self._tree = ProcessTree(self.work_dir / "processes")
        self._process: Managed | None = None
        self._http: httpx.Client | None = None
        self._spark_home = self._java_home = Path()

    @property
    def ui_url(self) -> str:
        """Base URL of the web UI."""
        return f"http://127.0.0.1:{self._ui_port}"

    def __enter__(self) -> Self:
        """Check the host and start the server."""
        self._spark_home, self._java_home = find_spark(), find_java()
        require_memory()
        for name in ("conf", "local", "tmp"):
            (self.work_dir / name).mkdir(parents=True, exist_ok=True)
        self._http = httpx.Client(timeout=10.0, trust_env=False)
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        self.close()

    def close(self) -> None:
        """Stop the server; a second call does nothing."""
        self._tree.close()
        if self._http is not None:
            self._http.close()

    def start(self) -> None:
        """Start the server, after `kill` once more on the same ports, and wait until it is ready."""
        properties = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.ui.port": str(self._ui_port),
            "spark.ui.liveUpdate.period": "0",
            "spark.port.maxRetries": "0",
            "spark.sql.warehouse.dir": str(self.work_dir / "warehouse"),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.shuffle.partitions": "2",
            **self._conf,
        }
        argv = [
            str(self._spark_home / "bin" / "spark-submit"),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *("--name", "connect", "--master", f"local[{self._cores}]", "--driver-memory", "1g"),
            *("--driver-java-options", self._java_options),
            *(part for name, value in properties.items() for part in ("--conf", f"{name}={value}")),
            "spark-internal",
        ]
        log = self._tree.logs / "connect.log"
        written = log.stat().st_size if log.exists() else 0
        self._process = self._tree.start("connect", argv, env=self._environment, cwd=self.work_dir)
        self._await_ready(self._process, written)

    @property
    def _java_options(self) -> str:
        # On two cores a JVM that doesn't optimise is up sooner; a killed one leaves its files behind.
        return f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.io.tmpdir={self.work_dir / 'tmp'}"

    @property
    def _environment(self) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "JAVA_TOOL_OPTIONS"))
        }
        return {
            **inherited,
            "JAVA_HOME": str(self._java_home),
            "SPARK_HOME": str(self._spark_home),
            "SPARK_CONF_DIR": str(self.work_dir / "conf"),
            # Whose functions are sent to it; Spark's default is whatever python3 there is.
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(self.work_dir / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        }

    def kill(self) -> None:
        """Kill the server and wait for its end."""
        if self._process is None:
            raise StackError("the Spark Connect server was not started")
        self._process.send(signal.SIGKILL)
        if self._process.wait(30.0) is None:
            raise StackError("the Spark Connect server still runs 30 s after SIGKILL")

    def operations(self, user: str) -> list[str]:
        """Return the id of every operation that a user has started, oldest first, from the server's log."""
        if self._process is None:
            return []
        found = _CREATED.findall(self._process.log.read_text(encoding="utf-8", errors="replace"))
        return [operation for owner, operation in found if owner == user]

    def jobs(self) -> list[ConnectJob]:
        """Return every Spark job that an operation has run, oldest first, from the server's web UI."""
        found = [
            ConnectJob(job["jobId"], tag[2], tag[1], job["status"])
            for job in self._ui(f"applications/{self._application()}/jobs")
            for tag in map(_TAG.fullmatch, job.get("jobTags", ()))
            if tag is not None
        ]
        return sorted(found, key=lambda job: job.number)

    def _application(self) -> str:
        return str(self._ui("applications")[0]["id"])

    def _ui(self, path: str) -> Any:
        if self._http is None:
            raise StackError("the Spark Connect server was not started")
        return self._http.get(f"{self.ui_url}/api/v1/{path}").raise_for_status().json()

    def _await_ready(self, process: Managed, written: int) -> None:
        deadline = time.monotonic() + self._start_timeout
        ready = f"Spark Connect server started at: 127.0.0.1:{self.port}".encode()
        while ready not in process.log.read_bytes()[written:]:
            if not process.alive:
                raise StackError(
                    f"the Spark Connect server died with {process.returncode}:\n{process.tail()}"
                )
            if time.monotonic() > deadline:
                raise StackError(
                    f"the Spark Connect server is not ready within {self._start_timeout} s:\n{process.tail()}"
                )
            self._tree.pause(_POLL, process)
        self._application()
