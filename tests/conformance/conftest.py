# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of a real Spark Connect server, and those of a real Spark master, share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.spark import SparkCluster
from airflow_resumable.testing.spark_connect import SparkConnectServer
from airflow_resumable.testing.task_tries import TaskTries
from tests import spark_attempts, systems
from tests.connect_attempts import CONNECTION, connection
from tests.connect_service import ConnectService
from tests.spark_attempts import SparkTask
from tests.spark_proxy import SparkProxy


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnectServer]:
    """One server for all tests that don't end it."""
    systems.require("java")
    systems.require("pyspark")
    with SparkConnectServer(tmp_path_factory.mktemp("connect")) as running:
        yield running


@pytest.fixture
def connect_proxy(
    connect_server: SparkConnectServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ConnectProxy]:
    """A gateway before the server, which the connection of this process names."""
    with ConnectProxy(connect_server.port) as running:
        monkeypatch.setenv(CONNECTION, connection(running.port, ui_url=connect_server.ui_url))
        yield running


@pytest.fixture
def connect(connect_server: SparkConnectServer, connect_proxy: ConnectProxy) -> Iterator[ConnectService]:
    """A view of the server with no job in it yet; in the end nothing waits any more."""
    view = ConnectService(connect_server, connect_proxy)
    yield view
    view.release()


@pytest.fixture
def tries() -> TaskTries:
    """One task instance."""
    return TaskTries()


@pytest.fixture
def spark_started(spark: SparkCluster) -> Callable[[], list[str]]:
    """The ids of the drivers that the master took since the test began, oldest first."""
    before = {one.id for one in spark.drivers()}
    return lambda: sorted(one.id for one in spark.drivers() if one.id not in before)


@pytest.fixture
def spark_state(spark: SparkCluster) -> Callable[[str], str]:
    """The state of a driver as the master lists it."""
    return lambda driver: next(one.state for one in spark.drivers() if one.id == driver)


@pytest.fixture
def spark_task(spark: SparkCluster, tmp_path: Path) -> Callable[..., SparkTask]:
    """Make a task whose driver sleeps for some seconds, or until a file is there, and makes no context."""

    def task(
        seconds: float | Path = 0, *, fail: bool = False, bare: bool = True, **options: Any
    ) -> SparkTask:
        options.setdefault("connection", spark_attempts.connection(spark))
        app = spark.sleep_app(seconds, tmp_path / "starts", fail=fail, bare=bare)
        return SparkTask(spark.environment, store_dir=tmp_path / "store", app=app, **options)

    return task


@pytest.fixture
def spark_proxy(spark: SparkCluster) -> Iterator[SparkProxy]:
    """A proxy before the cluster's REST gateway."""
    with SparkProxy(spark.rest_url) as running:
        yield running
