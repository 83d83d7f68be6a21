# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Job runs of EMR Serverless and EMR on EKS that take time, end, and are cancelled by the services' rules."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from airflow_resumable.testing.aws import clock
from airflow_resumable.testing.aws.errors import AwsError
from airflow_resumable.testing.aws.requests import Call


class Runs:
    """The job runs of one service.

    Args:
        service: The boto3 client's name.
        lifecycle: Their states.
        pace: How fast they pass through them.
    """

    def __init__(self, service: str, lifecycle: clock.Lifecycle, pace: clock.Pace) -> None:
        self.service = service
        self.jobs: dict[str, clock.Job] = {}
        self._lifecycle = lifecycle
        self._pace = pace

    def adopt(self, records: Iterable[Any]) -> list[str]:
        """Take over the job runs that moto has made since; return their ids.

        moto has them SUCCESS (Serverless) or RUNNING (EKS) at once, and created at midnight.
        """
        new = []
        for record in records:
            if record.id not in self.jobs:
                seconds, good = clock.own_words(record.job_driver)
                job = clock.Job(record, self._lifecycle, seconds, good, held=self._pace.held)
                self.jobs[record.id] = job
                record.created_at = datetime.now(UTC).replace(tzinfo=None)
                job.begin()
                self.date(job)
                new.append(record.id)
        return new

    def settle(self, looked_at: Iterable[str] = ()) -> None:
        """Let time pass; the reply to come shows the jobs with these ids."""
        looked = set(looked_at)
        for job_id, job in self.jobs.items():
            job.tick(self._pace, job_id in looked)
            self.date(job)

    def date(self, job: clock.Job) -> None:
        """Write what a job run's description says beside its state."""
        record: Any = job.record
        record.state_details = job.reason
        if self.service == "emr-serverless":
            record.updated_at = datetime.now(UTC).replace(tzinfo=None)
        elif job.over is not None:
            record.finished_at = job.over.replace(tzinfo=None)
            if job.state == self._lifecycle.failed:
                record.failure_reason = "USER_ERROR"

    def cancel(self, call: Call) -> dict[str, Any]:
        """Answer CancelJobRun: the run stops, in its own time; one that has ended can't be cancelled.

        moto's Serverless cancels what is done. The services say ValidationException, "Job run ... is not in a
        cancellable state" (Serverless: https://github.com/opensearch-project/sql/pull/2577; EKS:
        https://github.com/aws-controllers-k8s/community/issues/2594). That a run which is being cancelled
        already is refused too is moto's reading for EKS, taken over for both.

        Raises:
            AwsError: Unknown (ResourceNotFoundException; EKS documents ValidationException for all) or ended.
        """
        job_id, job = self._known(call)
        if job.ended or job.state == self._lifecycle.stopping:
            raise AwsError("ValidationException", f"Job run {job_id} is not in a cancellable state")
        job.cancel()
        self.date(job)
        return {name: call.parameters[name] for name in self._names}

    def dashboard(self, call: Call) -> dict[str, Any]:
        """Answer GetDashboardForJobRun, which moto doesn't know: a new URL each time."""
        job_id, _ = self._known(call)
        return {"url": f"https://p-{job_id}.emrappui-prod.example/shs/?authToken={uuid4().hex}"}

    @property
    def _names(self) -> tuple[str, str]:
        serverless = self.service == "emr-serverless"
        return ("applicationId", "jobRunId") if serverless else ("virtualClusterId", "id")

    def _known(self, call: Call) -> tuple[str, clock.Job]:
        owner_id, job_id = (str(call.parameters[name]) for name in self._names)
        job = self.jobs.get(job_id)
        record: Any = job.record if job else None
        serverless = self.service == "emr-serverless"
        owner = record and (record.application_id if serverless else record.virtual_cluster_id)
        if job is None or owner != owner_id:
            status = 404 if serverless else 400
            raise AwsError("ResourceNotFoundException", f"Job run {job_id} doesn't exist.", status)
        return job_id, job
