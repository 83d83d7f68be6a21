# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo on a stand-in for Amazon EMR: a step of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_resumable.cli.demo.aws import AwsJobs
from airflow_resumable.testing.demo import EMR_JOBS

if TYPE_CHECKING:
    from airflow_resumable.testing.aws import AwsService
    from airflow_resumable.testing.aws.requests import Call


class EmrJobs(AwsJobs):
    """A cluster for each lane."""

    name = "a stand-in for Amazon EMR"
    stock = "the Amazon provider's EmrAddStepsOperator"
    ours = "ResumableEmrAddStepsOperator"
    dag_file = EMR_JOBS
    dag = "demo_emr"
    owner_names = ("JobFlowId", "ClusterId")
    submit = "AddJobFlowSteps"
    cancel = "CancelSteps"

    def make_owner(self, aws: AwsService) -> str:
        """Make a cluster whose steps run side by side."""
        return aws.cluster(concurrency=10)

    def asks_how_a_job_is(self, call: Call) -> bool:
        """Say whether a request is one for the state of steps that are known."""
        return call.action == "DescribeStep" or (call.action == "ListSteps" and "StepIds" in call.parameters)
