# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo on a real Spark standalone cluster, whose master's list of drivers is what counts."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_resumable.cli.demo.cases import (
    BEFORE_ID,
    LOST_REPLY,
    MID_POLL,
    SIDES,
    SIGTERM,
    STATUS_503,
    SUPERVISOR,
    Case,
)
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.cli.demo.proxy import Spoil, SpoilingProxy
from airflow_resumable.testing.demo import SPARK_JOBS, SPARK_VARIABLE
from airflow_resumable.testing.errors import StackError
from airflow_resumable.testing.spark import SparkCluster

# Spark takes no token: what was accepted and isn't on record yet is the window that remains.
_BEFORE_ID = replace(BEFORE_ID, window=True)
_LOST_REPLY = replace(LOST_REPLY, window=True)
CASES = (_BEFORE_ID, MID_POLL, SUPERVISOR, SIGTERM, _LOST_REPLY, STATUS_503)
_SPOILED: dict[str, tuple[Spoil, int]] = {
    LOST_REPLY.name: ("lost_reply", 1),
    STATUS_503.name: ("unavailable", 3),
}
_GATE = re.compile(r"/([^/\s\"]+\.gate)\b")
_ASKED_TO_KILL = re.compile(r"Asked to kill driver (driver-[0-9-]+)")


class SparkJobs:
    """A Spark master and a worker.

    Args:
        folder: Where their data and the jobs' gates are kept.
    """

    name = "a Spark standalone cluster"
    stock = "the Spark provider's SparkSubmitOperator"
    ours = "ResumableSparkSubmitOperator"
    oracle = "the master's list of drivers (each request is one) and its log (cancels)"
    cases: Sequence[Case] = CASES
    dag_file = SPARK_JOBS
    # A task is up to three JVMs: the submitting client, the driver and its executor.
    at_once = 2
    slots = 4
    patience = 120.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self._cluster = SparkCluster(folder, cores=100, memory_mb=100_000)
        self._proxies: dict[tuple[str, str], SpoilingProxy] = {}
        self._owners: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Start the cluster, and a proxy for each lane whose requests are going to be spoiled."""
        with ExitStack() as starting:
            cluster = starting.enter_context(self._cluster)
            for case in CASES:
                for side in SIDES if case.name in _SPOILED else ():
                    proxy = SpoilingProxy(cluster.rest_url, cluster.ui_url, cluster.ports["rpc"])
                    self._proxies[case.name, side] = starting.enter_context(proxy)
            self._app = cluster.sleep_app(0)
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything, drivers and executors included."""
        self._running.close()

    @property
    def versions(self) -> Mapping[str, str]:
        """Spark's and the provider's."""
        return {
            "Spark": version("pyspark"),
            "Spark provider": version("apache-airflow-providers-apache-spark"),
        }

    @property
    def environment(self) -> Mapping[str, str]:
        """Spark's own variables, a connection for each lane, and what the Dag file runs."""
        connections = {
            f"AIRFLOW_CONN_SPARK_{case.name.upper()}_{side.upper()}": self._connection(case, side)
            for case in CASES
            for side in SIDES
        }
        over_rest = {"spark.master.rest.enabled": "true"}
        told = {
            "application": self._app.resource,
            "java_class": self._app.main_class,
            "conf": {
                case.name: {**self._app.conf, **(over_rest if case is _LOST_REPLY else {})} for case in CASES
            },
        }
        return {
            **self._cluster.environment,
            **connections,
            SPARK_VARIABLE: json.dumps(told),
            # Where this environment's spark-submit is.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            # A client that runs for two seconds has no use for optimised code.
            "SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }

    def _connection(self, case: Case, side: str) -> str:
        ports = self._cluster.ports
        port, rest_port, page_port = ports["rpc"], ports["rest"], ports["master_ui"]
        proxy = self._proxies.get((case.name, side))
        if proxy:
            rest_port, page_port = proxy.rest_port, proxy.page_port
        if case is _LOST_REPLY:
            port = rest_port
        extra = {"deploy-mode": "cluster", "rest-port": rest_port, "webui-port": page_port}
        return json.dumps({"conn_type": "spark", "host": "spark://127.0.0.1", "port": port, "extra": extra})

    def dag_id(self, case: Case) -> str:
        """Return the case's Dag."""
        return f"demo_spark_{case.name}"

    def prepare(self, lane: Lane) -> dict[str, Any]:
        """Return the lane's gate; a lost reply is due at once."""
        if lane.case.name in _SPOILED and lane.case.point is None:
            self.spoil(lane)
        return {"gate": str(self._gate(lane))}

    def spoil(self, lane: Lane) -> None:
        """Make the lane's proxy spoil its next requests."""
        self._proxies[lane.key].spoil(*_SPOILED[lane.case.name])

    def spoiled_at(self, lane: Lane) -> float | None:
        """Return when the proxy had spoiled as many as it should."""
        _, times = _SPOILED[lane.case.name]
        spoiled = self._proxies[lane.key].spoiled
        return spoiled[times - 1] if len(spoiled) >= times else None

    def tell(self, lane: Lane) -> None:
        """Open the gate that the lane's drivers wait for."""
        self._gate(lane).touch()

    def decision(self, lane: Lane, try_number: int) -> str:
        """Say whether there is another driver by now; the first one was started before the trouble."""
        count = len(self._drivers(lane))
        if count != 1:
            return f"starts job {count}" if count else "has no job"
        return "keeps job 1" if lane.case.recorded else "finds job 1"

    def counts(self, lane: Lane) -> tuple[int, int, int]:
        """Count the master's drivers, and in its log what it was asked to kill.

        Raises:
            StackError: It can't be told whose driver one is, so nothing can be counted.
        """
        drivers = self._drivers(lane)
        strange = {driver.id for driver in self._cluster.drivers()} - self._owners.keys()
        if strange:
            raise StackError(
                f"whose are {', '.join(sorted(strange))} of the master's list? No worker ran them"
            )
        log = (self._folder / "processes" / "master.log").read_text(errors="replace")
        killed = [one for one in _ASKED_TO_KILL.findall(log) if one in drivers]
        return len(drivers), len(drivers), len(killed)

    def _drivers(self, lane: Lane) -> list[str]:
        for driver in self._cluster.drivers():
            if driver.id not in self._owners and (gate := self._gate_of(driver.id)):
                self._owners[driver.id] = gate
        return [driver for driver, gate in self._owners.items() if gate == self._gate(lane).name]

    def _gate_of(self, driver: str) -> str | None:
        # The list names nobody; the command that the worker launched, first in the driver's log, does.
        try:
            with (self._folder / "work" / driver / "stderr").open(encoding="utf-8", errors="replace") as log:
                found = _GATE.search(log.readline())
        except FileNotFoundError:
            return None
        return found[1] if found else None

    def _gate(self, lane: Lane) -> Path:
        return self._folder / f"{lane.case.name}-{lane.side}.gate"
