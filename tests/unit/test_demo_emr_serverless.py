# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's part for EMR Serverless, on a stand-in for it; what all AWS services share is tested for EMR."""

from __future__ import annotations

from pathlib import Path

from airflow_resumable.cli.demo.cases import MARK_FAILED, TIME_OUT
from airflow_resumable.cli.demo.emr_serverless import EmrServerlessJobs
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.testing.aws import ROLE, AwsService


def test_the_runs_of_the_lanes_application_are_counted(aws: AwsService, tmp_path: Path) -> None:
    """And submits and cancels of it; those of other lanes count for nothing."""
    jobs, lane, other = (
        EmrServerlessJobs(tmp_path),
        Lane(MARK_FAILED, "ours"),
        Lane(MARK_FAILED, "stock"),
    )
    jobs._aws = aws
    for one in (lane, other):
        jobs._owners[one.key] = jobs.make_owner(aws)
    client = aws.client("emr-serverless", own=False)
    place = jobs.prepare(lane)["owner"]
    run = client.start_job_run(applicationId=place, clientToken="token", executionRoleArn=ROLE)["jobRunId"]
    client.start_job_run(applicationId=place, clientToken="token", executionRoleArn=ROLE)
    client.cancel_job_run(applicationId=place, jobRunId=run)

    assert jobs.counts(lane) == (1, 2, 1)
    assert jobs.counts(other) == (0, 0, 0)
    assert jobs.decision(lane, 2) == "has cancelled job 1"
    client.close()


def test_only_the_time_out_has_a_dag_of_its_own(tmp_path: Path) -> None:
    """All other cases are runs of one Dag."""
    jobs = EmrServerlessJobs(tmp_path)

    assert {jobs.dag_id(case) for case in jobs.cases if case is not TIME_OUT} == {"demo_emr_serverless"}
    assert jobs.dag_id(TIME_OUT) == "demo_emr_serverless_time_out"
