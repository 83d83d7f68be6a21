# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A real Spark standalone cluster on this host, from the installed pyspark package.

::

    with SparkCluster(tmp_path) as spark:
        driver = spark.create(spark.sleep_app(5))
        assert spark.wait_for_driver(driver).state == "FINISHED"
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast

import httpx
import psutil

from airflow_resumable.testing.errors import StackError, SystemUnavailable
from airflow_resumable.testing.ports import free_ports, is_free
from airflow_resumable.testing.processes import Managed, ProcessTree
from airflow_resumable.testing.spark_app import SparkApp, build_sleep_jar, java_sleep_app, sql_sleep_app
from airflow_resumable.testing.spark_host import find_java, find_spark, require_memory
from airflow_resumable.testing.spark_listing import App, Driver, apps_of, drivers_of

_PORTS = ("rpc", "rest", "master_ui", "worker", "worker_ui")
_POLL = 0.1
TERMINAL_STATES = frozenset({"FINISHED", "FAILED", "KILLED", "ERROR"})


class SparkCluster:
    """A master with its REST gateway, and one worker.

    All processes, drivers and executors included, end with the ``with`` block and with the harness (see
    `airflow_resumable.testing.processes`).

    Args:
        work_dir: Logs, drivers' directories, recovery state and the compiled application.
        cores: Cores the worker offers. A driver takes one and its executor another; with too few, a
            driver stays SUBMITTED.
        recovery: Spark's ``spark.deploy.recoveryMode``: NONE forgets everything when the master is
            restarted, FILESYSTEM keeps running drivers.
        ports: Fixed ports by name, any of ``rpc``, ``rest``, ``master_ui``, ``worker``, ``worker_ui``;
            free ones for the rest.
        memory_mb: Memory the worker offers, in MiB.
        start_timeout: Seconds until both must be ready.

    Raises:
        SystemUnavailable: When pyspark or Java 17 is missing, memory is short or a port is taken: one
            line that says what to do.
        StackError: When the master or worker dies or isn't ready in time, with the end of its log.
    """

    def __init__(
        self,
        work_dir: Path,
        cores: int = 8,
        *,
        recovery: Literal["NONE", "FILESYSTEM"] = "NONE",
        ports: Mapping[str, int] | None = None,
        memory_mb: int = 8192,
        start_timeout: float = 90.0,
    ) -> None:
        if recovery not in ("NONE", "FILESYSTEM"):
            raise ValueError(f"recovery={recovery!r} is not known; use 'NONE' or 'FILESYSTEM'")
        if cores < 1:
            raise ValueError(f"cores={cores!r} must be 1 or more")
        unknown = set(ports or {}) - set(_PORTS)
        if unknown:
            raise ValueError(f"ports has {sorted(unknown)}; the ports are {', '.join(_PORTS)}")
        self.work_dir = work_dir.resolve()
        if any(character.isspace() for character in str(self.work_dir)):
            raise ValueError(
                f"work_dir={str(self.work_dir)!r} has a space, which Spark's options can't quote"
            )
        self.ports = {**dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True)), **(ports or {})}
        self.timings: dict[str, float] = {}
        """Seconds of the last start, by step."""
        self._cores = cores
        self._recovery = recovery
        self._memory_mb = memory_mb
        self._start_timeout = start_timeout
        self._tree = ProcessTree(self.work_dir / "processes")
        self._http: httpx.Client | None = None
        self._processes: dict[str, Managed] = {}
        self._down: set[str] = set()
        self.spark_home = Path()
        self.java_home = Path()

    @property
    def master_url(self) -> str:
        """``spark://`` URL of the RPC gateway, for spark-submit."""
        return f"spark://127.0.0.1:{self.ports['rpc']}"

    @property
    def rest_url(self) -> str:
        """Base URL of the REST gateway."""
        return f"http://127.0.0.1:{self.ports['rest']}"

    @property
    def ui_url(self) -> str:
        """Base URL of the master's web page; ``/json/`` below it is what `drivers` reads."""
        return f"http://127.0.0.1:{self.ports['master_ui']}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a spark-submit that is to use this Spark and nobody's configuration."""
        return {
            "JAVA_HOME": str(self.java_home),
            "SPARK_HOME": str(self.spark_home),
            "SPARK_CONF_DIR": str(self.work_dir / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
            "SPARK_PUBLIC_DNS": "127.0.0.1",
        }

    def __enter__(self) -> Self:
        """Check the host and start the cluster."""
        self.spark_home, self.java_home = find_spark(), find_java()
        require_memory()
        for name, port in self.ports.items():
            if not is_free(port):
                raise SystemUnavailable(
                    f"port {port} ({name}) is in use: end the server there (ss -ltnp 'sport = :{port}') "
                    "or let the cluster pick a free port"
                )
        began = time.monotonic()
        for name in ("conf", "recovery", "work", "local", "tmp"):
            (self.work_dir / name).mkdir(parents=True, exist_ok=True)
        self._http = httpx.Client(timeout=10.0, trust_env=False)
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise
        self.timings["ready"] = time.monotonic() - began
        return self

    def _start_all(self) -> None:
        # Together: a worker that finds no master yet tries again by itself.
        self._start("master")
        self._start("worker")
        self._await_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything, drivers and executors included."""
        self.close()

    def close(self) -> None:
        """Stop every process of the cluster; a second call does nothing."""
        self._tree.close()
        self._processes.clear()
        if self._http is not None:
            self._http.close()

    def processes(self) -> list[psutil.Process]:
        """List every living process of the cluster: master, worker, drivers, executors."""
        return self._tree.members()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the master or the worker alone and wait for its end.

        Args:
            name: Which one, ``master`` or ``worker``.
            number: The signal; SIGTERM makes a worker kill its drivers first.
        """
        self._down.add(name)
        process = self._processes[name]
        process.send(number)
        if process.wait(30.0) is None:
            raise StackError(f"the Spark {name} still runs 30 s after {number.name}:\n{process.tail()}")

    def start(self, name: str) -> None:
        """Start the master or worker again after `kill` and wait until the cluster is ready."""
        self._start(name)
        self._await_ready()

    def restart_master(self, *, kill: bool = True) -> None:
        """End the master, start it on the same ports, and wait until its worker is back.

        Args:
            kill: By SIGKILL; else by SIGTERM.
        """
        self.kill("master", signal.SIGKILL if kill else signal.SIGTERM)
        self.start("master")

    def drivers(self) -> list[Driver]:
        """Return every driver the master knows, active ones first: the oracle for "one job was started"."""
        return drivers_of(self._page())

    def apps(self) -> list[App]:
        """Return every application the master knows, active ones first."""
        return apps_of(self._page())

    def wait_for_driver(
        self, driver_id: str, states: Collection[str] = TERMINAL_STATES, timeout: float = 120.0
    ) -> Driver:
        """Wait until the master lists the driver in one of `states`; return it.

        Args:
            driver_id: The driver.
            states: The states to wait for.
            timeout: Seconds.

        Raises:
            TimeoutError: With the drivers the master lists.
        """
        deadline = time.monotonic() + timeout
        while True:
            found = [one for one in self.drivers() if one.id == driver_id and one.state in states]
            if found:
                return found[0]
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"driver {driver_id} not in {sorted(states)} within {timeout} s; "
                    f"the master lists {self.drivers()}"
                )
            self._pause()

    def sleep_app(
        self, seconds: float | Path, marker: Path | None = None, *, fail: bool = False, bare: bool = False
    ) -> SparkApp:
        """Return an application that sleeps: compiled where there is a javac, else Spark's SQL shell.

        Args:
            seconds: How long it sleeps once its context is up; compiled, a file: until that is there.
            marker: Gets a line (compiled) or a file (SQL shell, a directory then) at each start.
            fail: End with an error.
            bare: Make no Spark context, where it is compiled.

        Raises:
            SystemUnavailable: There is no javac, and it is to wait for a file.
        """
        javac = shutil.which(
            "javac", path=f"{self.java_home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        )
        if javac is None:
            if isinstance(seconds, Path):
                raise SystemUnavailable("there is no javac to make what waits for a file: install a JDK")
            app = sql_sleep_app(self.spark_home, seconds, marker, fail)
        else:
            jar = build_sleep_jar(self.work_dir / "app", self.spark_home, javac)
            app = java_sleep_app(jar, seconds, marker, fail, bare)
        options = {f"spark.{who}.extraJavaOptions": self._java_options for who in ("driver", "executor")}
        return replace(app, conf={**app.conf, **options})

    def create(self, app: SparkApp, *, name: str = "sleep", conf: Mapping[str, str] | None = None) -> str:
        """Start an application in cluster mode over the REST gateway and return its driver's id.

        Args:
            app: The application.
            name: ``spark.app.name``.
            conf: Further Spark properties.
        """
        properties = {
            **app.conf,
            "spark.app.name": name,
            "spark.master": self.master_url,
            "spark.submit.deployMode": "cluster",
            "spark.jars": app.resource,
            **(conf or {}),
        }
        answer = self.rest(
            "POST",
            "create",
            {
                "action": "CreateSubmissionRequest",
                "clientSparkVersion": "4.0.0",
                "appResource": app.resource,
                "mainClass": app.main_class,
                "appArgs": list(app.args),
                "environmentVariables": {"SPARK_ENV_LOADED": "1"},
                "sparkProperties": properties,
            },
        )
        if not answer.get("success"):
            raise StackError(f"the REST gateway refused the application: {answer}")
        return str(answer["submissionId"])

    def rest(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request below /v1/submissions/ of the REST gateway and return its JSON, refusals too.

        Args:
            method: ``GET`` or ``POST``.
            path: ``status/<id>``, ``kill/<id>``, ``create``, ``readyz``...
            body: A JSON body.
        """
        assert self._http is not None
        response = self._http.request(method, f"{self.rest_url}/v1/submissions/{path}", json=body)
        return cast(dict[str, Any], response.json())

    def _page(self) -> dict[str, Any]:
        assert self._http is not None
        return cast(dict[str, Any], self._http.get(f"{self.ui_url}/json/").raise_for_status().json())

    def _start(self, name: str) -> None:
        argv = self._worker_command() if name == "worker" else self._master_command("127.0.0.1")
        self._run(name, argv, self._daemon_env())

    def _run(self, name: str, argv: list[str], env: Mapping[str, str]) -> None:
        self._processes[name] = self._tree.start(name, argv, env=env, cwd=self.work_dir)
        self._down.discard(name)

    def _master_command(self, host: str) -> list[str]:
        return [
            *(str(self.spark_home / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"),
            *("--host", host, "--port", str(self.ports["rpc"])),
            *("--webui-port", str(self.ports["master_ui"])),
        ]

    def _worker_command(self) -> list[str]:
        return [
            *(str(self.spark_home / "bin" / "spark-class"), "org.apache.spark.deploy.worker.Worker"),
            *("--host", "127.0.0.1", "--port", str(self.ports["worker"])),
            *("--webui-port", str(self.ports["worker_ui"])),
            *("--cores", str(self._cores), "--memory", f"{self._memory_mb}m"),
            *("--work-dir", str(self.work_dir / "work"), self.master_url),
        ]

    @property
    def _java_options(self) -> str:
        # On two cores a JVM that doesn't optimise is up sooner; a killed one leaves its files behind.
        return f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.io.tmpdir={self.work_dir / 'tmp'}"

    def _daemon_env(self) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "JAVA_TOOL_OPTIONS"))
        }
        options = {
            "spark.master.rest.enabled": "true",
            "spark.master.rest.port": str(self.ports["rest"]),
            **self._recovery_options(),
            # Else a taken port is quietly replaced by the next one, where another's server may answer.
            "spark.port.maxRetries": "0",
        }
        return {
            **inherited,
            **self.environment,
            "SPARK_MASTER_OPTS": " ".join(f"-D{name}={value}" for name, value in options.items()),
            "SPARK_WORKER_OPTS": "-Dspark.port.maxRetries=0",
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": self._java_options,
            "SPARK_LOCAL_DIRS": str(self.work_dir / "local"),
            "SPARK_NO_DAEMONIZE": "1",
        }

    def _recovery_options(self) -> dict[str, str]:
        return {
            "spark.deploy.recoveryMode": self._recovery,
            "spark.deploy.recoveryDirectory": str(self.work_dir / "recovery"),
        }

    def _await_ready(self) -> None:
        deadline = time.monotonic() + self._start_timeout
        while True:
            seen = self._look()
            if seen is None:
                return
            if time.monotonic() > deadline:
                tails = "\n".join(f"--- {name}\n{one.tail()}" for name, one in self._processes.items())
                raise StackError(f"Spark not ready within {self._start_timeout} s: {seen}\n{tails}")
            self._pause()

    def _look(self) -> str | None:
        """Return what is missing for a ready cluster, None when nothing is."""
        try:
            page = self._page()
            if page["status"] != "ALIVE":
                return f"the master is {page['status']}"
            if "worker" not in self._down and page["aliveworkers"] < 1:
                return "no worker has registered"
            # Spark 3 has no readyz and answers with an error in JSON: the gateway is up all the same.
            self.rest("GET", "readyz")
        except (httpx.HTTPError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _pause(self) -> None:
        self._tree.pause(_POLL, *(one for name, one in self._processes.items() if name not in self._down))
        for name, process in self._processes.items():
            if name not in self._down and not process.alive:
                raise StackError(f"the Spark {name} died with code {process.returncode}:\n{process.tail()}")
