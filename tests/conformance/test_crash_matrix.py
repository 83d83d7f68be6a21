# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The crash matrix: real processes die at every point; the service's own log counts.

The whole of it is run, and recorded for the docs, by `make proof`; elsewhere a slice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.testing import crash_matrix
from airflow_resumable.testing.aws import AwsService, step
from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.crash_matrix import Cell, CrashMatrix, every_cell
from airflow_resumable.testing.forked_try import Method
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.spark import SparkCluster
from airflow_resumable.testing.spark_connect import SparkConnectServer
from airflow_resumable.testing.yarn_stand_in import YarnStandIn
from tests import connect_attempts as connect
from tests import emr_job_runs as runs
from tests import systems
from tests import yarn_service as yarns
from tests.bigquery_service import serving
from tests.conformance import test_kubernetes_pod_conformance as pods
from tests.conformance import test_spark_kubernetes as drivers
from tests.connect_service import ConnectService
from tests.emr_service import EmrService
from tests.kubernetes_job_attempts import JobService as KubernetesJobs
from tests.kubernetes_job_attempts import make_job
from tests.kubernetes_service import KubernetesService
from tests.local_conformance import LocalConformance, LocalService
from tests.spark_service import SparkDrivers

RECORD = Path(__file__).resolve().parents[2] / "docs/_generated/matrix.json"
SLICE = (
    ("after_intent", "SIGKILL supervisor"),
    ("after_accept", "SIGKILL task"),
    ("mid_poll", "SIGKILL supervisor"),
    ("mid_poll", "SIGTERM"),
)


class Matrix:
    """The tests of one operator; a subclass gives a fresh service for each cell and makes operators."""

    name: str
    window = SubmitWindow.CLOSED
    method: Method = "fork"

    def services(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
        """Yield a service without jobs, again and again."""
        raise NotImplementedError

    def make(self, service: Any, outcome: Any) -> Any:
        """Make an operator."""
        raise NotImplementedError

    def maker(self, service: Any, outcome: Any) -> Callable[[], Any]:
        """Return what makes an operator."""
        return lambda: self.make(service, outcome)

    def _cells(self, request: pytest.FixtureRequest, folder: Path, chosen: Any) -> list[Cell]:
        services, matrix = (
            self.services(request, folder),
            CrashMatrix(self.maker, self.window, folder, self.method),
        )
        expected = matrix.undisturbed(next(services))
        assert expected.how == "returned"
        return [matrix.cell(next(services), point, death, expected) for point, death in chosen]

    def test_a_slice_holds(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        """One job, no cancel, and in the end what an undisturbed run returns."""
        cells = self._cells(request, tmp_path, SLICE)

        assert [cell for cell in cells if not cell.holds] == []
        assert any(cell.reached for cell in cells)

    @pytest.mark.slow
    @pytest.mark.timeout(1800)
    def test_every_cell_holds(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        """Every point, every death; what was seen is what the docs show."""
        cells = self._cells(request, tmp_path, every_cell())
        if os.environ.get("AIRFLOW_RESUMABLE_RECORD"):
            crash_matrix.record(RECORD, self.name, cells)

        assert [cell for cell in cells if not cell.holds] == []


class TestLocalJob(Matrix):
    """The local job service, which takes a token."""

    name = "local job service"

    def services(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
        with JobService(folder / "service") as process:
            for number in range(1000):
                yield LocalService(process, folder / f"gate-{number}")

    def make(self, service: Any, outcome: Any) -> Any:
        return LocalConformance().make(service, outcome)


class TestKubernetesPod(Matrix):
    """A pod, at a real API server."""

    name = "Kubernetes Pod"

    def services(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
        cluster: KubernetesCluster = request.getfixturevalue("kubernetes")
        proxy = cluster.proxy()
        for number in range(1000):
            yield KubernetesService(cluster, proxy, folder / f"gate-{number}")

    def make(self, service: Any, outcome: Any) -> Any:
        return pods.TestPod().make(service, outcome)


class TestSparkOnYarn(Matrix):
    """An application on YARN, at a stand-in for its ResourceManager."""

    name = "Spark on YARN (stand-in)"
    window = SubmitWindow.NARROWED

    def services(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
        with YarnStandIn(folder / "yarn") as yarn:
            named = yarns.connection(yarn.address)
            request.getfixturevalue("monkeypatch").setenv(yarns.CONNECTION, named)
            for number in range(1000):
                place = folder / f"yarn-{number}"
                place.mkdir()
                yield yarns.YarnService(yarn, place)

    def make(self, service: Any, outcome: Any) -> Any:
        return yarns.make(service.spark_submit, service.plan(outcome))


class TestKubernetesJob(Matrix):
    """A Job, at a real API server with its own controller."""

    name = "Kubernetes Job"

    def services(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
        cluster: KubernetesCluster = request.getfixturevalue("kubernetes")
        proxy = cluster.proxy()
        for number in range(1000):
            yield KubernetesJobs(cluster, proxy, folder / f"gate-{number}")

    def make(self, service: Any, outcome: Any) -> Any:
        return make_job(service, outcome, on_finish_action="keep_pod")


class TestEmrSteps(Matrix):
    """Two steps of an EMR cluster, at a stand-in for AWS."""

    name = "EMR steps (stand-in)"
    window = SubmitWindow.NARROWED

    def services(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
        systems.require("moto")
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        with AwsService() as aws:
            for name, value in aws.environment().items():
                patch.setenv(name, value)
            while True:
                yield EmrService(aws)

    def make(self, service: Any, outcome: Any) -> Any:
        words = ["spark-submit", "job.py"] if outcome == "runs" else ["sleep", "0"]
        return service.operator(step("first", ["sleep", "0"]), step("second", words))


class TestEmrServerless(Matrix):
    """A job run of EMR Serverless, at a stand-in for AWS."""

    name = "EMR Serverless (stand-in)"
    service: Literal["emr-serverless", "emr-containers"] = "emr-serverless"

    def services(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
        aws = request.getfixturevalue("aws")
        runs.reach(aws, request.getfixturevalue("monkeypatch"))
        while True:
            yield runs.JobRunService(aws, self.service)

    def make(self, service: Any, outcome: Any) -> Any:
        return runs.serverless(service, outcome)


class TestEmrContainers(TestEmrServerless):
    """A job run of EMR on EKS, at a stand-in for AWS."""

    name = "EMR on EKS (stand-in)"
    service: Literal["emr-serverless", "emr-containers"] = "emr-containers"

    def make(self, service: Any, outcome: Any) -> Any:
        return runs.containers(service, outcome)


class TestSparkConnect(Matrix):
    """An operation on a real Spark Connect server."""

    name = "Spark Connect"
    method: Method = "forkserver"

    def services(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
        for one in ("java", "pyspark"):
            systems.require(one)
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        with SparkConnectServer(folder / "connect") as server, ConnectProxy(server.port) as proxy:
            patch.setenv(connect.CONNECTION, connect.connection(proxy.port, ui_url=server.ui_url))
            while True:
                proxy.requests.clear()
                yield ConnectService(server, proxy)

    def maker(self, service: Any, outcome: Any) -> Callable[[], Any]:
        return partial(connect.operator, service.gate.closed if outcome == "runs" else connect.SUCCEEDS)


class TestBigQuery(Matrix):
    """A query at an emulator, by Google's own client."""

    name = "BigQuery (emulator)"

    def services(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
        emulator, proxy = (request.getfixturevalue(one) for one in ("bigquery", "bigquery_proxy"))
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        for number in range(1000):
            place = folder / f"bigquery-{number}"
            place.mkdir()
            yield from serving(emulator, proxy, place, patch)

    def make(self, service: Any, outcome: Any) -> Any:
        return service.operator(outcome)


@pytest.mark.slow
class TestSparkOnKubernetes(Matrix):
    """A driver pod, at a real API server, by real spark-submit; on the stand-in for a node."""

    name = "Spark on Kubernetes"

    def services(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
        for one in ("java", "pyspark"):
            systems.require(one)
        cluster: KubernetesCluster = request.getfixturevalue("kubernetes")
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        proxy, jar = cluster.proxy(), drivers.build(folder / "app")
        for number in range(1000):
            service = drivers.DriverPods(cluster, proxy, folder / f"gate-{number}")
            service.jar, service.marker = jar, folder / f"marker-{number}"
            drivers.lead_to(service, patch)
            yield service

    def make(self, service: Any, outcome: Any) -> Any:
        return drivers.operator(service, outcome)


@pytest.mark.slow
class TestSparkStandalone(Matrix):
    """A driver on a real standalone cluster, by real spark-submit."""

    name = "Spark standalone"
    window = SubmitWindow.OPEN

    def services(self, request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
        # Its eight cores are enough for the drivers and executors of two tries that overlap.
        cluster: SparkCluster = request.getfixturevalue("spark")
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        drivers.build(cluster.work_dir / "app")
        environment = SparkDrivers(cluster, folder / "gate").task("runs").environment
        for name, value in environment.items():
            patch.setenv(name, value)
        for number in range(1000):
            yield SparkDrivers(cluster, folder / f"gate-{number}")

    def make(self, service: Any, outcome: Any) -> Any:
        return service.operator(outcome)

    def test_a_kill_is_counted(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        """Nought cancels in the matrix means that the master was asked for none."""
        service = next(self.services(request, tmp_path))
        service.cluster.rest("POST", "kill/driver-20260101000000-9999")

        assert service.cancels() == 1
