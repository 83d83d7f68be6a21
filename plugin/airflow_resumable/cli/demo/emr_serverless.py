# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo on a stand-in for EMR Serverless: a job run in an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_resumable.cli.demo.aws import AwsJobs
from airflow_resumable.testing.demo import EMR_SERVERLESS_JOBS

if TYPE_CHECKING:
    from airflow_resumable.testing.aws import AwsService
    from airflow_resumable.testing.aws.requests import Call


class EmrServerlessJobs(AwsJobs):
    """An application for each lane."""

    name = "a stand-in for EMR Serverless"
    stock = "the Amazon provider's EmrServerlessStartJobOperator"
    ours = "ResumableEmrServerlessStartJobOperator"
    dag_file = EMR_SERVERLESS_JOBS
    dag = "demo_emr_serverless"
    owner_names = ("applicationId",)
    submit = "StartJobRun"
    cancel = "CancelJobRun"

    def make_owner(self, aws: AwsService) -> str:
        """Make an application."""
        return aws.application()

    def asks_how_a_job_is(self, call: Call) -> bool:
        """Say whether a request is one for the state of a run."""
        return call.action == "GetJobRun"
