# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A real standalone cluster as the crash matrix sees it: the master's own list and log count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_resumable.testing.conformance import SeenJob, ServiceUnderTest
from airflow_resumable.testing.spark import SparkCluster
from tests.spark_attempts import SparkTask, connection


class SparkDrivers(ServiceUnderTest):
    """The drivers of a cluster, from the moment at which this object is made.

    Args:
        cluster: The cluster, with a compiler for its application.
        gate: The file that running applications wait for.
    """

    def __init__(self, cluster: SparkCluster, gate: Path) -> None:
        self.cluster, self.gate = cluster, gate
        self._drivers_before = {one.id for one in cluster.drivers()}
        self._kills_before = self._kills()

    def jobs(self) -> list[SeenJob]:
        """Read the master's list."""
        new = [one for one in self.cluster.drivers() if one.id not in self._drivers_before]
        return [SeenJob(one.id, one.active) for one in sorted(new, key=lambda one: one.id)]

    def release(self) -> None:
        """Open the gate."""
        self.gate.touch()

    def cancels(self) -> int:
        """Count the kill requests in the master's log, those for drivers that it doesn't know too."""
        return self._kills() - self._kills_before

    def _kills(self) -> int:
        log = self.cluster.work_dir / "processes" / "master.log"
        return log.read_text(encoding="utf-8").count("Asked to kill driver")

    def task(self, outcome: str) -> SparkTask:
        """Return what knows the environment of an attempt, and makes its operator."""
        seconds = self.gate if outcome == "runs" else 0
        app = self.cluster.sleep_app(seconds, fail=outcome == "fails", bare=True)
        return SparkTask(
            self.cluster.environment,
            connection=connection(self.cluster),
            # The tries that the matrix makes bring a store of their own.
            store_dir=self.gate.with_suffix(".store"),
            app=app,
        )

    def operator(self, outcome: str) -> Any:
        """Return an operator that runs the test application."""
        return self.task(outcome).operator()
