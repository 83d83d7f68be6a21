# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a job, each with what to do next."""

from __future__ import annotations

from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException


class ResumableJobError(AirflowException):
    """Base of every error of the job protocol that Airflow may retry.

    Args:
        message: What happened and what to do.
        external_id: The service's id of the job, when it is known.
        generation: The job's generation, counted from 1, when it is known.

    Attributes:
        last_status: The service's own word for the job when it was last seen, in this try or an earlier one.
    """

    last_status: str | None = None

    def __init__(self, message: str, *, external_id: Any = None, generation: int | None = None) -> None:
        super().__init__(message)
        self.external_id = external_id
        self.generation = generation

    def complete(self, external_id: Any, generation: int | None, last_status: str | None) -> None:
        """Fill what whoever raised it could not know."""
        self.external_id = external_id if self.external_id is None else self.external_id
        self.generation = generation if self.generation is None else self.generation
        self.last_status = last_status if self.last_status is None else self.last_status


class ResumableJobFatal(ResumableJobError, AirflowFailException):
    """Base of the errors that another try can't mend: Airflow fails the task without a retry."""


class JobFailed(ResumableJobError):
    """The service says that the job failed or was cancelled; the next try starts the next generation."""


class JobMissing(ResumableJobFatal):
    """The service no longer knows the job, and `on_missing` is ``fail``; a clear starts afresh."""


class JobNotSettled(ResumableJobError):
    """A job stayed in a stopping or unknown state for longer than its timeout; nothing was submitted."""


class JobNotCancelled(ResumableJobError):
    """A cleared task's job is still alive after `cancel_timeout`; nothing was submitted."""


class JobAmbiguous(ResumableJobFatal):
    """Several live jobs carry the mark of one task instance; a person has to choose."""


class JobSuperseded(ResumableJobError):
    """A newer attempt owns the job; this one neither submits, writes nor cancels any more."""


class StatusBudgetExhausted(ResumableJobError):
    """The service could not be asked for `status_error_budget` seconds; the job was left alone."""


class TokenForgotten(ResumableJobError):
    """The service may have forgotten the token before it could be sent again; nothing was submitted."""


class StoreUnavailable(ResumableJobError):
    """The task state store could not be read or written; see the message for the job's whereabouts."""


class RecordUnreadable(ResumableJobFatal):
    """What lies under the record's key was not written by this version; nothing was submitted."""


class JobNotFound(LookupError):
    """Raised by an adapter's `get_job_status`: the service answered that it does not know this id."""


class TokenConflict(Exception):
    """Raised by an adapter's `submit_job`: the service holds this token for a job with other parameters.

    Args:
        message: The service's own words.
        external_id: The job that holds the token, when the answer named it.
    """

    def __init__(self, message: str, *, external_id: Any = None) -> None:
        super().__init__(message)
        self.external_id = external_id


class TaskInstanceGone(Exception):
    """A write was refused because this attempt's task instance id was replaced by a clear or a time-out."""


class JobKept(SystemExit):
    """Ends an attempt that was told to stop while its job goes on; Airflow retries it where tries are left.

    A ``SystemExit`` passes through tenacity and logging where an ``Exception`` raised by a signal
    handler is swallowed, and Airflow's task runner treats it as a retryable failure.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
