# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The local job service used as one that takes no token, and as one that offers nothing at all."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_resumable.sdk import FoundJob, ResumableJobMixin, SubmitWindow
from airflow_resumable.testing.local_job import LocalJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class NarrowedJobOperator(LocalJobOperator):
    """The mark stands in the job's name, which can be looked up; the same request twice is two jobs."""

    submit_window = SubmitWindow.NARROWED
    find_jobs_by_family: Any = ResumableJobMixin.find_jobs_by_family

    def submit_job(self, context: Context) -> Any:
        """Submit without a token."""
        job = self.client.submit(list(self.command), family=self.job_family, name=self.idempotency_token)
        self._created = job["created"]
        return job["id"]

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> list[FoundJob]:
        """Look for the mark in the names of the family's jobs."""
        jobs = self.client.find(family=self.job_family, since=since.timestamp())
        return [FoundJob(job["id"], job["status"], token) for job in jobs if job["name"] == token]


class OpenJobOperator(LocalJobOperator):
    """Neither token nor mark: what was accepted and isn't on record yet can't be found again."""

    submit_window = SubmitWindow.OPEN
    find_job_by_token: Any = ResumableJobMixin.find_job_by_token
    find_jobs_by_family: Any = ResumableJobMixin.find_jobs_by_family

    def submit_job(self, context: Context) -> Any:
        """Submit a job that nothing tells from another."""
        job = self.client.submit(list(self.command))
        self._created = job["created"]
        return job["id"]


OPERATORS: dict[str, type[LocalJobOperator]] = {
    "closed": LocalJobOperator,
    "narrowed": NarrowedJobOperator,
    "open": OpenJobOperator,
}
"""The operator of each grade."""
