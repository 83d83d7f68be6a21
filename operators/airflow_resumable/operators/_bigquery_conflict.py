# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Whose is a job whose id carries no token: what ``force_rerun=False`` means when that id is taken.

There the id is the provider's own, made of the configuration, so that one configuration isn't run twice. The
token stands in a label, by which a task knows its own job. Any other is somebody else's, and the provider's
rules hold: `reattach_states`, and another id for what ended for want of quota.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum
from typing import Any

from airflow_resumable.jobs.errors import ResumableJobError, ResumableJobFatal
from airflow_resumable.jobs.token import family_of
from airflow_resumable.operators._bigquery_errors import QUOTA
from airflow_resumable.operators._bigquery_jobs import TOKEN_LABEL

_TOKEN = re.compile(r"r[0-9a-f]{32}")


class Verdict(Enum):
    """What is to be done with a job that has the id."""

    ADOPT = "adopt"
    """It is watched as this task's own."""
    OWN_ID = "own id"
    """This task's job gets an id that ends with the token."""


def token_on(job: Any) -> str | None:
    """Return the token that a job carries in its label, None without."""
    label = (job.labels or {}).get(TOKEN_LABEL)
    return label if isinstance(label, str) and _TOKEN.fullmatch(label) else None


def judge(job: Any, token: str, reattach_states: Collection[str], *, first_try: bool) -> Verdict:
    """Say what is to be done when a job of Google's client has the id that this task's was to have.

    Args:
        job: The job that is there.
        token: This task's token.
        reattach_states: The operator's.
        first_try: Whether this is the task's first try.

    Raises:
        ResumableJobFatal: It has ended, and another try wouldn't change that.
        ResumableJobError: It may be another matter in the next try.
    """
    label, ended = token_on(job), job.state == "DONE"
    if label == token:
        return Verdict.ADOPT
    whose = f"job {job.job_id!r} of this very configuration, which this task has not started, is {job.state}"
    if label is not None and family_of(label) == family_of(token):
        if ended:
            return Verdict.OWN_ID
        raise ResumableJobError(
            f"job {job.job_id!r}, which this task started before it was cleared, is still {job.state}; stop "
            "it in BigQuery, or wait for its end: the next try starts the job then"
        )
    if not ended:
        if job.state in reattach_states:
            return Verdict.ADOPT
        raise ResumableJobError(
            f"{whose}, and force_rerun=False: add {job.state!r} to reattach_states to watch it as this "
            "task's, or set force_rerun=True to run the configuration again"
        )
    reason = (job.error_result or {}).get("reason")
    if reason in QUOTA:
        if not first_try:
            return Verdict.OWN_ID
        raise ResumableJobError(
            f"{whose} for want of quota ({reason}); the next try runs the configuration under an id of its "
            "own"
        )
    raise ResumableJobFatal(
        f"{whose} ({reason or 'it succeeded'}), and force_rerun=False: nothing is run. Set force_rerun=True "
        "to run the configuration again, or another job_id"
    )
