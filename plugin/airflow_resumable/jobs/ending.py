# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The end of an attempt whose job may go on: failed, replaced or stopped, and what becomes of the job."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException, TaskDeferralTimeout

from airflow_resumable.jobs import errors

if TYPE_CHECKING:
    from airflow_resumable.jobs.attempt import JobAttempt

_log = logging.getLogger(__name__)


class Ending:
    """Decides what becomes of the current job when its attempt ends before it.

    Args:
        attempt: The attempt.
    """

    def __init__(self, attempt: JobAttempt) -> None:
        self._attempt = attempt

    def after_failure(self, error: Exception) -> None:
        """Keep or cancel the job of an attempt that fails; the error itself is the caller's to raise."""
        attempt = self._attempt
        if not attempt.may_be_live:
            return
        job = f"job {attempt.external_id!r} (generation {attempt.generation})"
        if attempt.external_id is None:
            job = f"what may have been started as generation {attempt.generation}"
        final = attempt.is_last_try or isinstance(error, AirflowFailException)
        # In a worker execution_timeout comes through on_kill; a deferred task gets it as an error.
        if isinstance(error, TaskDeferralTimeout) and attempt.policy.on_timeout == "cancel":
            self._cancel(job, "execution_timeout, on_timeout=cancel")
        elif isinstance(error, errors.JobAmbiguous):
            _log.error("the jobs are left alone: a person has to choose (%s)", error)
        elif isinstance(error, errors.StatusBudgetExhausted):
            _log.error("%s is left alone: a used-up status budget never cancels (%s)", job, error)
        elif not final or attempt.policy.on_final_failure == "keep":
            why = "on_final_failure=keep" if final else "tries are left"
            _log.warning("%s is kept: %s after %s: %s", job, why, type(error).__name__, error)
        else:
            why = f"the task fails for good ({type(error).__name__}: {error}), on_final_failure=cancel"
            self._cancel(job, why)

    def _cancel(self, job: str, why: str) -> None:
        if not self._attempt.can.cancel:
            _log.error("%s is NOT cancelled (%s): this operator has no cancel_job", job, why)
            return
        _log.warning("%s is being cancelled: %s", job, why)
        try:
            self.cancel(only_if_owner=True)
        except Exception:
            _log.exception("%s was NOT cancelled; look at it in the service", job)

    def after_fencing(self, gone: errors.TaskInstanceGone) -> errors.JobSuperseded:
        """Return the error of an attempt that the server no longer knows; cancel if a user's clear did it."""
        from airflow_resumable.integration.server import task_state

        attempt = self._attempt
        try:
            state = task_state(attempt.context)
        except Exception as error:
            state = f"nothing ({error})"
        cancelled = ""
        if (
            state == "restarting"
            and attempt.policy.on_clear == "resubmit"
            and attempt.live
            and attempt.external_id is not None
            and attempt.can.cancel
        ):
            taken = attempt.service.cancel(attempt.external_id)
            cancelled = "; the task was cleared while running, its job was cancelled"
            if not taken:
                cancelled = "; the task was cleared while running, its job was NOT cancelled: see the service"
        return errors.JobSuperseded(
            f"this attempt was replaced ({gone}); the server says {state!r}; job {attempt.external_id!r}, "
            f"generation {attempt.generation}{cancelled}",
            external_id=attempt.external_id,
            generation=attempt.generation,
        )

    def cancel(self, *, only_if_owner: bool = False) -> bool:
        """Cancel the current job, known by id, from the store, or by its token; say whether that was taken.

        Args:
            only_if_owner: Leave it alone unless a write shows that it is still this attempt's.
        """
        attempt = self._attempt
        attempt.recall()
        try:
            # A fresh operator knows neither the job's uid nor where it was started.
            attempt.equip()
        except Exception:
            _log.exception("job %r can't be taken over; cancelling it by its id alone", attempt.external_id)
        if only_if_owner and not self._still_owns(f"job {attempt.external_id!r}"):
            return False
        if not only_if_owner and self._was_replaced():
            _log.warning("job %r is left alone: a newer attempt has it", attempt.external_id)
            return False
        ids = [] if attempt.external_id is None else [attempt.external_id]
        if not ids and attempt.record is not None and attempt.can.find_by_token:
            found = attempt.service.find_by_token(attempt.record.token, attempt.search_from)
            ids = [job.external_id for job in found]
        if not ids:
            _log.info("no job of this task instance is on record or found by its token; nothing to cancel")
        return all([attempt.service.cancel(one, patient=False) for one in ids])

    def _was_replaced(self) -> bool:
        # The server's "success" or "failed" may be the newer attempt's own end. A replaced attempt reads
        # nothing up to 3.3; who was cleared reads nothing either, and acts on that.
        from airflow_resumable.integration.server import task_state

        attempt = self._attempt
        if attempt.record is None:
            return False
        on_file = attempt.ledger.read()
        if on_file is not None:
            return on_file.owner.is_newer_than(attempt.owner)
        return task_state(attempt.context) != "restarting"

    def _still_owns(self, job: str) -> bool:
        attempt = self._attempt
        try:
            # Up to 3.3 a replaced attempt reads "none" and only a write tells it apart.
            if attempt.record is not None:
                attempt.ledger.write(attempt.record)
        except Exception as error:
            _log.warning("%s is left alone: it can't be shown to be this attempt's (%s)", job, error)
            return False
        return True
