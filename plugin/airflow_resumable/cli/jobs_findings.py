# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What doesn't fit between a record, its task and the service. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from airflow_resumable.cli.jobs_inquiry import SeenJob
from airflow_resumable.cli.jobs_store import StoredJob
from airflow_resumable.jobs.adapter import Observation

Kind = Literal["orphan", "double", "intent", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a person should look at.

    Attributes:
        kind: ``orphan``: the job is alive and its task has ended for good. ``double``: it is one of several
            live jobs of one task instance. ``intent``: an intent without a job id that no attempt is at
            work on. ``missing``: the record says that the job runs, the service doesn't know it.
        job: The record.
        seen: The service's job; None for an intent whose job wasn't found.
        detail: What it is, in a sentence.
        kept_from_cancel: Why ``--cancel`` would refuse it, or None.
    """

    kind: Kind
    job: StoredJob
    seen: SeenJob | None
    detail: str
    kept_from_cancel: str | None

    def is_about(self, wanted: str) -> bool:
        """Say whether this is about the job whose id was written on the command line."""
        return self.seen is not None and self.seen.text == wanted


def findings(
    job: StoredJob, jobs: tuple[SeenJob, ...], *, can_cancel: bool, can_search: bool, installation: str
) -> list[Finding]:
    """Compare one record with what the service says.

    Args:
        job: The record; a readable one.
        jobs: What the service says of the task instance's jobs.
        can_cancel: Whether the adapter can cancel a job.
        can_search: Whether it can find a job that isn't on record.
        installation: ``[resumable] installation_id``, or an empty string.
    """
    record = job.record
    if record is None:
        return []
    live = [one for one in jobs if one.observation.is_live]

    def found(kind: Kind, seen: SeenJob | None, detail: str) -> Finding:
        return Finding(kind, job, seen, detail, _kept(job, seen, can_cancel, installation))

    if len(live) > 1:
        names = ", ".join(one.text for one in live)
        return [found("double", one, f"{len(live)} live jobs of one task instance: {names}") for one in live]
    if live and job.task_has_ended:
        return [found("orphan", live[0], f"alive, and its task has ended: {_ending(job)}")]
    if record.phase == "intent" and job.task_state != "running":
        return [_intent(found, job, jobs, can_search)]
    missing = [one for one in jobs if _is_lost(record.external_id, one)]
    if record.phase == "submitted" and missing:
        last = f"last seen as {record.last_status!r} at {record.last_seen_at}" if record.last_status else ""
        return [
            found("missing", missing[0], f"on record as running, unknown to the service; {last}".strip("; "))
        ]
    return []


def _intent(found: Any, job: StoredJob, jobs: tuple[SeenJob, ...], can_search: bool) -> Finding:
    token = job.record.token if job.record else None
    known = [one for one in jobs if one.observation is not Observation.MISSING]
    what = "intent without a job id; "
    if known:
        one: Finding = found("intent", known[0], f"{what}its job exists: {known[0].status}")
    elif can_search:
        one = found("intent", None, f"{what}the service has no job with token {token}")
    else:
        one = found("intent", None, f"{what}whether its job exists can't be said: no search by token")
    return one


def _is_lost(current: Any, one: SeenJob) -> bool:
    return one.observation is Observation.MISSING and one.external_id == current


def _ending(job: StoredJob) -> str:
    if job.task_state == "gone":
        return "it is gone"
    if job.task_state == "failed":
        return "failed, no retry will come"
    return job.task_state


def _kept(job: StoredJob, seen: SeenJob | None, can_cancel: bool, installation: str) -> str | None:
    if seen is None:
        return "there is no job to cancel"
    if not seen.observation.is_live:
        return f"the job is not alive: {seen.status or 'the service does not know it'}"
    if not job.task_has_ended:
        return (
            f"the task is {job.task_state}: an attempt may own the job. Mark the task failed in Airflow if "
            "it has to stop, and look again"
        )
    if not can_cancel:
        return "the operator has no cancel_job: stop the job in the service"
    if not seen.on_record and not installation:
        return (
            "it is known by its family alone, and without [resumable] installation_id another installation "
            "may own it: stop it in the service if it is this one's"
        )
    return None
