# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One real Spark cluster for all conformance tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_resumable.testing.spark import SparkCluster
from tests.systems import require


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A running Spark standalone cluster that recovers running drivers when its master is restarted."""
    require("java")
    require("pyspark")
    with SparkCluster(tmp_path_factory.mktemp("spark"), recovery="FILESYSTEM") as running:
        yield running
