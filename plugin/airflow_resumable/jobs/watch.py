# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Following one job to its end, through whatever its poll loop raises."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tenacity import RetryCallState, wait_random_exponential

from airflow_resumable.jobs import errors
from airflow_resumable.jobs.adapter import Observation
from airflow_resumable.jobs.settling import Settling

if TYPE_CHECKING:
    from airflow_resumable.jobs.adapter import JobAdapter
    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.jobs.policies import ResumePolicy

_log = logging.getLogger(__name__)

GOOD_RUN = 60.0
"""Seconds that a poll loop must have run for its earlier failures to be forgiven."""

_OURS = (
    errors.JobSuperseded,
    errors.JobNotSettled,
    errors.StatusBudgetExhausted,
    errors.TaskInstanceGone,
    errors.ResumableJobFatal,
)


class Watch:
    """Runs an adapter's poll loop until the service itself says that the job has ended.

    An exception out of the loop isn't believed: the job is asked for its status. Active means: poll
    on, within `status_error_budget`; ended means: decide. So a provider's loop that gives up after
    three errors doesn't end the attempt.
    """

    def __init__(self, attempt: JobAttempt) -> None:
        self._attempt = attempt
        self._failing_since: float | None = None
        self._failures = 0

    def until_the_end(self) -> Observation:
        """Return SUCCEEDED, or MISSING when the service lost the job.

        Raises:
            JobFailed: The job ended without success; a provider's own exception is passed on instead.
        """
        attempt = self._attempt
        job = attempt.external_id
        while True:
            attempt.forget_last()
            started, error = time.monotonic(), None
            try:
                attempt.adapter.poll_until_complete(job, attempt.context)
            except _OURS:
                raise
            except Exception as raised:
                error = raised
            # Only an end is taken from the loop's own last look; after an error the job is asked anew.
            last = attempt.last
            ended = last is not None and not last[0].is_live
            seen, raw = last if last is not None and ended else attempt.observe(job)
            end = self._end(seen, raw, error)
            if end is not None:
                return end
            self._go_on(error, raw, time.monotonic() - started)

    def look(self) -> Observation | None:
        """Look once: SUCCEEDED or MISSING, None while the job is alive.

        Raises:
            JobFailed: The job ended without success.
        """
        return self._end(*self._attempt.observe(self._attempt.external_id), None)

    def _end(self, seen: Observation, raw: str | None, error: Exception | None) -> Observation | None:
        if seen is Observation.SUCCEEDED:
            if error is not None:
                _log.warning(
                    "job %r succeeded, though polling it raised %r", self._attempt.external_id, error
                )
            return seen
        if seen is Observation.FAILED:
            self._attempt.record_failure(raw)
            raise error or self._failed(raw)
        return self._missing(error) if seen is Observation.MISSING else None

    def _failed(self, raw: str | None) -> errors.JobFailed:
        attempt = self._attempt
        generation = attempt.record.generation if attempt.record else None
        return errors.JobFailed(
            f"job {attempt.external_id!r} (generation {generation}) ended as {raw!r}; the next try starts "
            "the next generation",
            external_id=attempt.external_id,
            generation=generation,
        )

    def _missing(self, error: Exception | None) -> Observation:
        attempt = self._attempt
        if attempt.can.missing_is_failure and attempt.seen_alive:
            attempt.record_failure("deleted while running")
            raise error or self._failed("deleted while running")
        return Observation.MISSING

    def _go_on(self, error: Exception | None, raw: str | None, ran: float) -> None:
        attempt, budget = self._attempt, self._attempt.policy.seconds("status_error_budget")
        if ran >= GOOD_RUN or self._failing_since is None:
            self._failing_since, self._failures = time.monotonic(), 0
        self._failures += 1
        used = time.monotonic() - self._failing_since
        if used > budget:
            raise errors.StatusBudgetExhausted(
                f"polling job {attempt.external_id!r} ended {self._failures} times in {used:.0f} s "
                f"(status_error_budget {budget:.0f} s) while the job is {raw!r}, last with {error!r}. The "
                "job was left alone; the next try watches it again",
                external_id=attempt.external_id,
            )
        wait = _backoff(self._failures)
        _log.warning(
            "job %r is %r, but polling it ended with %r; polling on in %.1f s (%.0f of %.0f s used)",
            attempt.external_id,
            raw,
            error,
            wait,
            used,
            budget,
        )
        time.sleep(wait)


class Watched(Protocol):
    """What `poll` needs of an attempt."""

    adapter: JobAdapter
    policy: ResumePolicy

    def observe(self, external_id: Any) -> tuple[Observation, str | None]:
        """Look at the job."""


def poll(attempt: Watched, external_id: Any, pause: Callable[[str | None], None] | None = None) -> str | None:
    """Look at a job every `get_poll_interval` seconds until it has ended or the service lost it.

    Args:
        attempt: The attempt.
        external_id: The job.
        pause: Takes the place of the pause between two looks; is told the last status.

    Returns:
        The last status, None when the service has lost the job.

    Raises:
        JobNotSettled: It was stopping, or in a state that nobody has heard of, for too long.
    """
    settling = Settling(attempt.policy, external_id)
    while True:
        seen, raw = attempt.observe(external_id)
        if not seen.is_live:
            return raw
        settling.check(seen, raw, time.monotonic())
        if pause is not None:
            pause(raw)
        else:
            time.sleep(attempt.adapter.get_poll_interval())


def _backoff(failures: int) -> float:
    state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
    state.attempt_number = failures
    return float(wait_random_exponential(multiplier=0.5, max=30)(state))
