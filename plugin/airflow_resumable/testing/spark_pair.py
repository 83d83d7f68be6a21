# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A real Spark standalone cluster with two masters, of which ZooKeeper elects the one that leads.

::

    with SparkPair(tmp_path) as spark:
        assert spark.leader == "127.0.0.2"
        spark.kill_master("127.0.0.2")
        spark.wait_for_leader("127.0.0.1")

ZooKeeper is the server in the library that Spark's own package brings along.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from airflow_resumable.testing.ports import free_port
from airflow_resumable.testing.spark import SparkCluster

HOSTS: Mapping[str, str] = {"first": "127.0.0.1", "second": "127.0.0.2"}
"""The masters' addresses by the names of their processes, in the order of the master URL."""

# Spark asks for 60 s, in which nobody notices that a leader has died; the server may give less.
_SESSION_MS = 4000


class SparkPair(SparkCluster):
    """Two masters on the same ports of two addresses, one worker, and ZooKeeper.

    The second of the master URL leads at first, the first stands by: who asks in the order of the URL meets
    the standby. Processes for `kill` and `start`: ``first``, ``second``, ``worker``, ``zookeeper``.

    Args:
        work_dir: As of `SparkCluster`.
        cores: As of `SparkCluster`.
        start_timeout: Seconds until the cluster must be ready.

    Raises:
        SystemUnavailable, StackError: As of `SparkCluster`.
    """

    def __init__(self, work_dir: Path, cores: int = 8, *, start_timeout: float = 120.0) -> None:
        super().__init__(work_dir, cores, start_timeout=start_timeout)
        self._zookeeper_port = free_port()
        self._leader = ""

    @property
    def master_url(self) -> str:
        """``spark://`` URL of both RPC gateways."""
        return "spark://" + ",".join(f"{host}:{self.ports['rpc']}" for host in HOSTS.values())

    @property
    def leader(self) -> str:
        """The address of the master that led when the cluster was last looked at."""
        return self._leader

    @property
    def standby(self) -> str:
        """The address of the other master."""
        return next(host for host in HOSTS.values() if host != self._leader)

    @property
    def rest_url(self) -> str:
        """Base URL of the leader's REST gateway."""
        return f"http://{self._leader}:{self.ports['rest']}"

    @property
    def ui_url(self) -> str:
        """Base URL of the leader's web page."""
        return f"http://{self._leader}:{self.ports['master_ui']}"

    def kill_master(self, host: str) -> None:
        """Kill the master at an address."""
        self.kill(next(name for name, one in HOSTS.items() if one == host))

    def revive(self) -> None:
        """Start what was killed, and wait until one master leads and the other stands by."""
        for name in sorted(self._down):
            self._start(name)
        self._await_ready()
        name = next(name for name, host in HOSTS.items() if host == self.standby)
        self._wait_for_status(name, "STANDBY")

    def wait_for_leader(self, host: str, timeout: float = 60.0) -> None:
        """Wait until the master at an address leads and its worker is back.

        Args:
            host: The address.
            timeout: Seconds.

        Raises:
            TimeoutError: With what each master says of itself.
        """
        deadline = time.monotonic() + timeout
        while self._look() is not None or self._leader != host:
            if time.monotonic() > deadline:
                said = {name: self._status_of(address) for name, address in HOSTS.items()}
                raise TimeoutError(f"{host} does not lead within {timeout} s: {said}")
            self._pause()

    def _start_all(self) -> None:
        # One after the other: who comes first leads.
        self._start("zookeeper")
        self._start("second")
        self._wait_for_status("second", "ALIVE")
        self._start("first")
        self._wait_for_status("first", "STANDBY")
        self._start("worker")
        self._await_ready()

    def _start(self, name: str) -> None:
        env = self._daemon_env()
        if name == "zookeeper":
            self._run(name, self._zookeeper_command(), env)
        elif name == "worker":
            self._run(name, self._worker_command(), env)
        else:
            # By this a web page's address is chosen, which must be the other's on the same port.
            own = dict.fromkeys(("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS"), HOSTS[name])
            self._run(name, self._master_command(HOSTS[name]), {**env, **own})

    def _zookeeper_command(self) -> list[str]:
        data = self.work_dir / "zookeeper"
        data.mkdir(exist_ok=True)
        settings = {
            "dataDir": data,
            "clientPort": self._zookeeper_port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": 500,
            "maxSessionTimeout": _SESSION_MS,
        }
        config = self.work_dir / "zookeeper.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return [
            str(self.java_home / "bin" / "java"),
            *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-Dlog4j2.level=INFO"),
            *("-cp", f"{self.spark_home / 'jars'}/*"),
            *("org.apache.zookeeper.server.ZooKeeperServerMain", str(config)),
        ]

    def _recovery_options(self) -> dict[str, str]:
        return {
            "spark.deploy.recoveryMode": "ZOOKEEPER",
            "spark.deploy.zookeeper.url": f"127.0.0.1:{self._zookeeper_port}",
        }

    def _status_of(self, host: str) -> str:
        assert self._http is not None
        try:
            page = self._http.get(f"http://{host}:{self.ports['master_ui']}/json/").json()
        except (httpx.HTTPError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return str(page["status"])

    def _wait_for_status(self, name: str, status: str) -> None:
        deadline = time.monotonic() + self._start_timeout
        while (said := self._status_of(HOSTS[name])) != status:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the {name} master is {said}, not {status}:\n{self._processes[name].tail()}"
                )
            self._pause()

    def _page(self) -> dict[str, Any]:
        for host in HOSTS.values():
            if self._status_of(host) == "ALIVE":
                self._leader = host
        return super()._page()
