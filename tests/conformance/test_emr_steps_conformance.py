# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableEmrAddStepsOperator` in the conformance suite.

EMR is moto behind a layer that mends it, see `airflow_resumable.testing.aws`.
"""

from __future__ import annotations

from typing import Any

import pytest

from airflow_resumable.testing.aws import AwsService, step
from airflow_resumable.testing.conformance import JobConformance
from tests.emr_job_runs import reach
from tests.emr_service import EmrService

STEPS = {"runs": ["spark-submit", "job.py"], "succeeds": ["sleep", "0"], "fails": ["exit", "3"]}


class TestOneStep(JobConformance):
    """A task with one step."""

    short = 0.3
    how_many = 1

    @pytest.fixture
    def service(self, aws: AwsService, monkeypatch: pytest.MonkeyPatch) -> EmrService:
        """Give a test a cluster of its own."""
        reach(aws, monkeypatch)
        return EmrService(aws)

    def make(self, service: EmrService, outcome: Any) -> Any:
        """Make an operator whose steps do what is asked for."""
        arguments = STEPS["succeeds" if outcome == "runs" and service.is_released else outcome]
        steps = [step(f"work {number}", arguments) for number in range(self.how_many)]
        return service.operator(*steps)


@pytest.mark.slow
class TestThreeSteps(TestOneStep):
    """A task with three steps, which are one job."""

    how_many = 3
