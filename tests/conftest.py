# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What every test run shares: a private Airflow home, systems that may be missing, hypothesis profiles."""

from __future__ import annotations

import collections
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import systems

if TYPE_CHECKING:
    from airflow_resumable.testing.aws import AwsService
    from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator
    from airflow_resumable.testing.http_faults import HttpFaultProxy
    from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
    from airflow_resumable.testing.spark import SparkCluster

# Before anything imports Airflow, which reads its configuration on import: the tests must neither see nor
# touch the Airflow of whoever runs them.
for _name in [
    name for name in os.environ if name.startswith(("AIRFLOW__", "AIRFLOW_HOME", "AIRFLOW_CONFIG"))
]:
    del os.environ[_name]
_AIRFLOW_HOME = tempfile.mkdtemp(prefix="airflow-resumable-tests-")
os.environ["AIRFLOW_HOME"] = _AIRFLOW_HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

# "seeded" tries the same examples on every run; "proof" is what `make proof` runs.
settings.register_profile("seeded", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("proof", max_examples=5000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "seeded"))


@pytest.fixture(scope="session")
def require() -> Callable[[str], Path]:
    """`tests.systems.require`, for tests that need a system outside Python."""
    return systems.require


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A running Spark standalone cluster that recovers running drivers when its master is restarted."""
    from airflow_resumable.testing.spark import SparkCluster

    systems.require("java")
    systems.require("pyspark")
    with SparkCluster(tmp_path_factory.mktemp("spark"), recovery="FILESYSTEM") as running:
        yield running


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """A Kubernetes cluster of the test run's own: real API server and controllers, a stand-in for the node.

    Its audit log is what tests count in, so a cluster named by AIRFLOW_RESUMABLE_KUBECONFIG won't do here.
    """
    from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster

    if systems.require("kubernetes").name != "kube-apiserver":
        pytest.skip(
            "a cluster named by AIRFLOW_RESUMABLE_KUBECONFIG shows no audit log to count in; unset it for "
            "the tests' own, by scripts/kubernetes_control_plane.sh"
        )
    # What Spark's images have at a place of their own.
    home = systems.find("pyspark")
    environment = {"SPARK_HOME": str(home)} if home else {}
    with KubernetesCluster(tmp_path_factory.mktemp("kubernetes"), environment=environment) as running:
        yield running


@pytest.fixture(scope="session")
def aws_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsService]:
    """EMR, EMR Serverless and EMR on EKS for the whole run: moto in a process of its own, mended."""
    from airflow_resumable.testing.aws import AwsService

    systems.require("moto")
    with AwsService(tmp_path_factory.mktemp("aws")) as running:
        yield running


@pytest.fixture
def aws(aws_process: AwsService) -> AwsService:
    """The AWS stand-in, emptied, with no fault left from another test."""
    aws_process.reset()
    return aws_process


@pytest.fixture(scope="session")
def bigquery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BigQueryEmulator]:
    """A BigQuery emulator with the layer that restores what it lacks."""
    from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator

    systems.require("bigquery")
    with BigQueryEmulator(tmp_path_factory.mktemp("bigquery")) as running:
        yield running


@pytest.fixture(scope="session")
def bigquery_proxy(bigquery: BigQueryEmulator) -> Iterator[HttpFaultProxy]:
    """A proxy before the emulator, whose named faults are told as BigQuery tells them."""
    from airflow_resumable.testing.bigquery.replies import REPLIES
    from airflow_resumable.testing.http_faults import HttpFaultProxy

    with HttpFaultProxy(bigquery.port, replies=REPLIES) as proxy:
        yield proxy


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a misspelt system in AIRFLOW_RESUMABLE_REQUIRE, which would otherwise require nothing."""
    try:
        systems.must_be_here()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Ask for what the marker ``spark`` stands for before any fixture starts something."""
    if item.get_closest_marker("spark"):
        systems.require("java")
        systems.require("pyspark")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the tests that were skipped for want of a system, with how to get it."""
    missing: collections.Counter[str] = collections.Counter()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            _, found, reason = report.longrepr[2].partition(systems.SKIP_PREFIX)
            missing[reason] += bool(found)
    if missing := +missing:
        terminalreporter.section(f"systems not here: {missing.total()} tests skipped")
        for reason, count in missing.most_common():
            terminalreporter.write_line(f"{count:5d}  {reason}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the run's Airflow home."""
    shutil.rmtree(_AIRFLOW_HOME, ignore_errors=True)
