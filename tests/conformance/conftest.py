# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of a real Spark Connect server share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.spark_connect import SparkConnectServer
from airflow_resumable.testing.task_tries import TaskTries
from tests import systems
from tests.connect_attempts import CONNECTION, connection
from tests.connect_service import ConnectService


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
