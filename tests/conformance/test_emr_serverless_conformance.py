# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableEmrServerlessStartJobOperator` in the conformance suite, on a stand-in for AWS.

The stand-in is moto's server with the service's token, states and clocks put right, see
`airflow_resumable.testing.aws`; the book of jobs is its log of requests.
"""

from __future__ import annotations

from typing import Any

import pytest

from airflow_resumable.testing.aws import AwsService
from airflow_resumable.testing.conformance import JobConformance
from tests.emr_job_runs import JobRunService, cut_off, cut_off_connects, reach, serverless

__all__ = ["cut_off"]


@cut_off_connects
@pytest.mark.usefixtures("cut_off")
class TestServerless(JobConformance):
    """A job run that is known by its client token and its name."""

    @pytest.fixture
    def service(self, aws: AwsService, monkeypatch: pytest.MonkeyPatch) -> JobRunService:
        """Give a test an application of its own."""
        reach(aws, monkeypatch)
        return JobRunService(aws, "emr-serverless")

    def make(self, service: JobRunService, outcome: Any) -> Any:
        """Make an operator with a short poll interval."""
        return serverless(service, outcome)
