# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableSparkSubmitOperator` for YARN in the conformance suite, at a ResourceManager *stand-in*.

No YARN server can be had here: REST API and spark-submit are `airflow_resumable.testing.yarn_stand_in`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.jobs.adapter import Capabilities
from airflow_resumable.testing.conformance import JobConformance
from airflow_resumable.testing.yarn_stand_in import YarnStandIn
from tests.yarn_service import CONNECTION, YarnService, connection, make

# spark-submit isn't waited for once its id is known.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


class TestSparkOnYarnStandIn(JobConformance):
    """An application that carries its token as a tag."""

    crash_by = "sigkill"
    short = 0.5

    @pytest.fixture(scope="class")
    @classmethod
    def yarn(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnStandIn]:
        """Start the stand-in: two ResourceManagers, of which the second is the active one."""
        with YarnStandIn(tmp_path_factory.mktemp("yarn"), managers=2) as running:
            running.fail_over("rm2")
            yield running

    @pytest.fixture
    def service(
        self, yarn: YarnStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[YarnService]:
        """Give a test its own view of the class's stand-in, and leave that without faults."""
        monkeypatch.setenv(CONNECTION, connection(yarn.address))
        service = YarnService(yarn, tmp_path)
        yield service
        yarn.heal()
        service.release()
        gc.collect()

    def _can(self, service: Any) -> Capabilities:
        # Which cluster it is, and so what it can, is in the connection.
        operator = self.make(service, "runs")
        with operator.looking({}):
            can: Capabilities = operator.get_capabilities()
        return can

    def make(self, service: YarnService, outcome: Any) -> Any:
        """Make an operator; what the application is to do is its argument."""
        return make(service.spark_submit, service.plan(outcome))
