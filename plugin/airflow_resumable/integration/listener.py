# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The listener that notes on record that a task's success has been reported.

From then on only a user's clear can run the task again, whatever `max_tries` says.
See https://airflow.apache.org/docs/apache-airflow/stable/administration-and-deployment/listeners.html
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from airflow_resumable.jobs.attempt import JobAttempt

_log = logging.getLogger(__name__)


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Mark the job's record as reported, in the task's own process.

    The API server calls the same hook when a user marks a task, with another class of task instance:
    that is no success of ours.
    """
    task = getattr(task_instance, "task", None)
    for attempt in (getattr(task, "_resumable_attempt", None), *getattr(task, "_resumable_attempts", ())):
        if attempt is not None:
            _mark(attempt)


def _mark(attempt: JobAttempt) -> None:
    try:
        attempt.mark_reported()
    except Exception as error:
        _log.warning(
            "job %r: its record could not be marked as reported (%s: %s); a clear is still told from a retry "
            "by max_tries",
            attempt.external_id,
            type(error).__name__,
            error,
        )
