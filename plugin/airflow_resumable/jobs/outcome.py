# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a job: its result, its outcome on record, and only then the tidying up."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs import errors
from airflow_resumable.jobs.adapter import Observation
from airflow_resumable.jobs.record import JobRecord, StoredResult

if TYPE_CHECKING:
    from airflow_resumable.jobs.attempt import JobAttempt

_log = logging.getLogger(__name__)

RESULT_LIMIT = 16_384
"""Bytes of JSON up to which a result is kept on record."""


class Outcome:
    """Ends one attempt's job on record."""

    def __init__(self, attempt: JobAttempt) -> None:
        self._attempt = attempt

    def succeed(self, record: JobRecord, raw: str | None) -> Any:
        """Read the result, record the outcome, let the adapter tidy up, return the result.

        Raises:
            JobMissing: The job is gone from the service and its result was not kept.
        """
        attempt = self._attempt
        attempt.live = False
        attempt.reach("before_result")
        result = self._read_result(record)
        attempt.reach("before_outcome")
        try:
            if record.phase == "succeeded":
                # An earlier try died between the outcome and its end: whoever tidies up has to own the job.
                attempt.claim(record)
            else:
                attempt.claim(
                    record.with_(
                        phase="succeeded",
                        result=self._kept(result),
                        last_status=raw or record.last_status,
                        last_seen_at=datetime.now(UTC),
                    )
                )
        except errors.StoreUnavailable as error:
            _log.error(
                "job %r succeeded, but the outcome could not be stored: %s. Returning the result; the "
                "adapter's tidying up is left undone",
                record.external_id,
                error,
            )
            return result
        attempt.reach("after_outcome")
        self._clean_up(record.external_id, Observation.SUCCEEDED)
        attempt.reach("before_return")
        return result

    def fail(self, record: JobRecord | None, raw: str | None) -> None:
        """Record that the job ended without success, then let the adapter tidy up."""
        attempt = self._attempt
        attempt.live = False
        if record is None or record.external_id is None:
            return
        try:
            attempt.claim(record.with_(phase="failed", last_status=raw, last_seen_at=datetime.now(UTC)))
        except errors.StoreUnavailable as error:
            _log.error(
                "job %r ended as %r, but that could not be stored: %s; the next try asks the service again",
                record.external_id,
                raw,
                error,
            )
            return
        self._clean_up(record.external_id, Observation.FAILED)

    def report(self, record: JobRecord | None) -> None:
        """Note on record that the server has the success on file, if it has."""
        from airflow_resumable.integration import settings
        from airflow_resumable.integration.server import task_state

        # The report may have been refused, and then a retry must find a success that it can return. With
        # the success on file no other attempt can be at work, so the owner needn't be read once more.
        if record is None or record.phase != "succeeded" or settings.clears_on_success():
            return
        if task_state(self._attempt.context) == "success":
            self._attempt.claim(record.with_(reported=True), check_owner=False)

    def _kept(self, result: Any) -> StoredResult | None:
        # What isn't to be pushed as an XCom isn't to be stored anywhere else either.
        if getattr(self._attempt.context.get("task"), "do_xcom_push", True) is False:
            return None
        return _storable(result)

    def _clean_up(self, external_id: Any, observation: Observation) -> None:
        attempt = self._attempt
        try:
            attempt.adapter.clean_up_job(external_id, observation, attempt.context)
        except Exception:
            # The outcome stands, and a success that became a failure here would be tried again.
            _log.exception(
                "job %r: tidying up failed after its outcome (%s) was recorded; what is left has to be "
                "removed by hand, the task goes on",
                external_id,
                observation,
            )

    def _read_result(self, record: JobRecord) -> Any:
        attempt = self._attempt
        try:
            return attempt.service.ask(
                f"result of job {record.external_id!r}",
                lambda: attempt.adapter.get_job_result(record.external_id, attempt.context),
            )
        except errors.JobNotFound:
            if record.result is None:
                raise errors.JobMissing(
                    f"job {record.external_id!r} (generation {record.generation}) succeeded, but the "
                    "service no longer knows it and its result was not kept (too large, or not JSON); "
                    "clear the task to run it again",
                    external_id=record.external_id,
                    generation=record.generation,
                ) from None
            _log.warning("job %r is gone from the service; returning the recorded result", record.external_id)
            return record.result.value


def _storable(result: Any) -> StoredResult | None:
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError):
        return None
    # A tuple or a number as a key would come back as something else.
    stored = json.loads(text)
    return StoredResult(value=stored) if len(text) <= RESULT_LIMIT and stored == result else None
