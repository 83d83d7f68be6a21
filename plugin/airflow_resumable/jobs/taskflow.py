# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The job protocol for plain `@task` functions: `ExternalJob` and `resumable_job`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs.defaults import AdapterDefaults
from airflow_resumable.jobs.host import Host
from airflow_resumable.jobs.policies import ResumePolicy, configured
from airflow_resumable.jobs.unrecorded import UnrecordedAttempt
from airflow_resumable.jobs.watch import Watched, poll

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue


class ExternalJob(AdapterDefaults, ABC):
    """One external job of a `@task` function: an adapter that is no operator.

    Subclass it with the five methods below, and add those of
    `airflow_resumable.jobs.adapter.JobAdapter` that the service allows. Two jobs of one task need two
    values of `external_id_key`.
    """

    external_id_key: str = "external_job_id"
    _host: Host | None = None

    @property
    def idempotency_token(self) -> str | None:
        """The token of the current generation, 33 characters, or None outside of `resumable_job`."""
        return self._host.attempt.token if self._host and self._host.attempt else None

    @property
    def job_family(self) -> str | None:
        """The 16 hex digits that all generations of this task instance share, or None as above."""
        return self._host.attempt.mint.family if self._host and self._host.attempt else None

    @abstractmethod
    def submit_job(self, context: Context) -> JsonValue:
        """Start the job, with `idempotency_token` where the service takes one; return its id."""

    @abstractmethod
    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the raw status; raise `JobNotFound` when the service has no such job."""

    @abstractmethod
    def is_job_active(self, status: str) -> bool:
        """Say whether the job may still do work."""

    @abstractmethod
    def is_job_succeeded(self, status: str) -> bool:
        """Say whether the job has succeeded."""

    def get_job_result(self, external_id: JsonValue, context: Context) -> Any:
        """Return the job's result; undefined: its id."""
        return external_id

    def get_job_spec(self, context: Context) -> Any:
        """Return what makes two jobs the same; undefined: the public attributes."""
        return {name: value for name, value in sorted(vars(self).items()) if not name.startswith("_")}

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Look at the job every `poll_interval` seconds until it has ended."""
        attempt: Watched | None = self._host.attempt if self._host else None
        if attempt is None:
            policy = ResumePolicy().filled(configured())
            attempt = UnrecordedAttempt(self, context, policy, self.get_capabilities())
        poll(attempt, external_id)


def resumable_job(
    job: ExternalJob,
    context: Context | None = None,
    *,
    policy: ResumePolicy | Mapping[str, Any] | None = None,
) -> Any:
    """Start a job once, watch it to its end and return its result, from inside a `@task` function.

    Args:
        job: The job.
        context: The task's context; the running task's own when left out.
        policy: What to do off the straight path; what it leaves open comes from ``[resumable]``.

    Raises:
        TypeError, ValueError: For an argument of the wrong kind, naming it, the value and what is allowed.
        ResumableJobError: One of `airflow_resumable.jobs.errors`; each says what to do.

    Example::

        @task(retries=3)
        def load() -> dict:
            return resumable_job(MyJob(table="t"))
    """
    if not isinstance(job, ExternalJob):
        raise TypeError(f"job={job!r} is not allowed; use an instance of a subclass of ExternalJob")
    from airflow_resumable.integration import settings

    # A function may run several jobs, an operator has one.
    job.token_scope = job.external_id_key
    filled = ResumePolicy.of(policy).filled(configured())
    if context is None:
        from airflow.sdk import get_current_context

        context = get_current_context()
    ctx = context
    task: Any = ctx["task"]

    def unrecorded() -> Any:
        job._host = None
        external_id = job.submit_job(ctx)
        if job.get_capabilities().cancel:
            # As an operator that isn't durable does: whatever stops the task ends its job.
            task.on_kill = lambda: job.cancel_job(external_id, ctx)
        job.poll_until_complete(external_id, ctx)
        return job.get_job_result(external_id, ctx)

    if not settings.enabled():
        return unrecorded()
    host = job._host = Host(job, job.get_capabilities(), filled)
    own = task.on_kill
    # Airflow's signal handler asks the task object, so that is where the job's own answer has to be. It
    # stays there after an error: Airflow calls on_kill after an execution_timeout has left this function.
    task.on_kill = lambda: host.on_kill(own)
    result = host.run(ctx, unrecorded=unrecorded)
    task.on_kill = own
    vars(task).setdefault("_resumable_attempts", []).append(host.attempt)
    return result
