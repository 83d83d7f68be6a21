# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The poll loop's view of a job that nobody records: not durable, or switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs.adapter import Observation
from airflow_resumable.jobs.errors import JobFailed, JobMissing
from airflow_resumable.jobs.service import JobService

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_resumable.jobs.adapter import Capabilities, JobAdapter
    from airflow_resumable.jobs.policies import ResumePolicy


class UnrecordedAttempt:
    """Looks at a job for `airflow_resumable.jobs.watch.poll` and raises where it didn't succeed."""

    def __init__(
        self, adapter: JobAdapter, context: Context, policy: ResumePolicy, can: Capabilities
    ) -> None:
        self.adapter = adapter
        self.policy = policy
        self._service = JobService(adapter, context, policy, can)

    def observe(self, external_id: Any) -> tuple[Observation, str | None]:
        """Look at the job.

        Raises:
            JobFailed, JobMissing: Nobody else will look at it.
        """
        seen, raw = self._service.look(external_id)
        if seen is Observation.FAILED:
            raise JobFailed(f"job {external_id!r} ended as {raw!r}", external_id=external_id)
        if seen is Observation.MISSING:
            raise JobMissing(f"the service no longer knows job {external_id!r}", external_id=external_id)
        return seen, raw
