# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableSparkConnectOperator` passes the conformance suite on a real server."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_resumable.testing.conformance import JobConformance
from tests.connect_attempts import FAILS, SUCCEEDS, operator
from tests.connect_service import ConnectService


class TestConformance(JobConformance):
    """The suite that every operator passes."""

    short = 0.5

    @pytest.fixture
    def service(self, connect: ConnectService) -> ConnectService:
        """Give a test its own view of the server."""
        return connect

    def make(self, service: Any, outcome: Any) -> Any:
        """Make an operator."""
        return operator({"runs": service.gate.closed, "succeeds": SUCCEEDS, "fails": FAILS}[outcome])
