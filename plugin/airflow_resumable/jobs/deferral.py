# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Handing the watching of a job to the triggerer, and taking it back.

The job of a deferred task is on record before the task is deferred. Whatever wakes the task, an event, a
trigger that failed or a time-out, is no more than a reason to look: only what the service says counts.
See https://airflow.apache.org/docs/apache-airflow/stable/authoring-and-scheduling/deferring.html
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NoReturn

from airflow.sdk.exceptions import TaskDeferralTimeout, TaskDeferred

from airflow_resumable.integration.compat import serialized
from airflow_resumable.jobs import errors
from airflow_resumable.jobs.adapter import Observation
from airflow_resumable.jobs.kill import await_postponed_stop
from airflow_resumable.jobs.steps import Import
from airflow_resumable.jobs.watch import Watch

if TYPE_CHECKING:
    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.jobs.wake import Wake

_log = logging.getLogger(__name__)

RESUME_METHOD = "resume_job"
"""The method of `ResumableJobMixin` with which Airflow goes on after a deferral."""

SHORTEST_TIMEOUT = timedelta(seconds=1)
"""What is left of `execution_timeout` when it has passed before the task could be deferred."""


class Deferral:
    """The deferred side of one attempt.

    Args:
        attempt: The attempt.
        wake: Why the task runs again; None on its first way through `execute`.
        deferrable: Whether the triggerer is to watch the job; a Dag may be edited while its task is deferred.
    """

    def __init__(self, attempt: JobAttempt, wake: Wake | None, deferrable: bool) -> None:
        self._attempt = attempt
        self._wake = wake
        self._deferrable = deferrable

    @property
    def may_hand_over(self) -> bool:
        """Whether the triggerer is to watch: not again after its trigger has failed, nor a job without id."""
        failed = self._wake is not None and self._wake.failure is not None
        record = self._attempt.record
        return self._deferrable and not failed and record is not None and record.external_id is not None

    def check(self) -> None:
        """Find out before a job is started whether it could be handed over.

        Raises:
            ResumableJobFatal: It couldn't; says what to define, or to set deferrable=False.
        """
        if not self._deferrable:
            return
        from airflow_resumable.jobs.trigger import path_of

        attempt, adapter = self._attempt, self._attempt.adapter
        kind = type(adapter).__name__
        if not attempt.can.deferrable:
            raise errors.ResumableJobFatal(
                f"deferrable=True is not possible: {kind} has no get_watch_arguments, from which the "
                "triggerer could make it anew; define it, or set deferrable=False"
            )
        path_of(adapter)
        try:
            arguments = dict(adapter.get_watch_arguments(attempt.context))
            json.dumps(arguments, allow_nan=False)
            serialized(arguments)
        except (TypeError, ValueError, AttributeError) as error:
            raise errors.ResumableJobFatal(
                f"deferrable=True is not possible: what get_watch_arguments of {kind} returns isn't JSON "
                f"that Airflow can store ({error}); return plain values, or set deferrable=False"
            ) from error
        try:
            adapter.for_watching(arguments)
        except Exception as error:
            raise errors.ResumableJobFatal(
                f"deferrable=True is not possible: {kind}.for_watching can't make it anew from what "
                f"get_watch_arguments returns ({type(error).__name__}: {error}); define for_watching, or "
                "return every argument that the constructor requires"
            ) from error

    def hand_over(self) -> NoReturn:
        """Defer the task; the triggerer watches its current job.

        Raises:
            TaskDeferred: Always; Airflow's own way of saying so.
        """
        from airflow_resumable.jobs.trigger import JobTrigger

        attempt, record = self._attempt, self._attempt.record
        if record is None:
            raise AssertionError("a job that is not on record is not handed over")
        trigger = JobTrigger.for_attempt(attempt, record)
        kwargs = {
            "external_id": record.external_id,
            "generation": record.generation,
            "submitted": attempt.has_submitted,
        }
        # Here, where a refusal is this attempt's failure; Airflow does it when nothing of ours runs any more.
        serialized([trigger.serialize()[1], kwargs])
        attempt.announce("Defer", None, "the triggerer watches the job from here on")
        attempt.reach("before_defer")
        await_postponed_stop()
        raise TaskDeferred(
            trigger=trigger,
            method_name=RESUME_METHOD,
            kwargs=kwargs,
            timeout=self._time_left(),
        )

    def _time_left(self) -> timedelta | None:
        attempt = self._attempt
        limit: timedelta | None = getattr(attempt.context.get("task"), "execution_timeout", None)
        started: datetime | None = getattr(attempt.context["ti"], "start_date", None)
        if limit is None or started is None:
            return limit
        # Airflow keeps the start of the attempt over a deferral, so all its parts share one time-out.
        return max(SHORTEST_TIMEOUT, limit - (datetime.now(UTC) - started))

    def take_back(self) -> Observation | None:
        """Go on where the trigger stopped.

        Returns:
            SUCCEEDED or MISSING; None when the record has to be asked what to do next.

        Raises:
            TaskDeferred: The job still runs.
            ResumableJobError: What the trigger gave up for, or how the job ended.
        """
        attempt, wake = self._attempt, self._wake
        if wake is None:
            return None
        handed = wake.job if {"external_id", "generation"} <= set(wake.job) else {}
        # Unknown after a failure; a service that loses each job must not be sent one after another.
        attempt.has_submitted = bool(handed.get("submitted", True))
        if isinstance(wake.failure, TaskDeferralTimeout):
            raise wake.failure
        if attempt.record is None and handed:
            attempt.import_job(
                Import(
                    "the record is gone, but the deferred task knows its job",
                    handed["external_id"],
                    handed["generation"],
                    attempt.max_tries,
                )
            )
        record = attempt.record
        if record is None or record.phase != "submitted":
            return None
        told = {wake.told.get("generation"), handed.get("generation")} - {None, record.generation}
        if told:
            attempt.announce(
                "Refuse", None, f"the event is one of generation {told}, on record is {record.generation}"
            )
            return None
        attempt.take_over()
        return self._judge(wake)

    def _judge(self, wake: Wake) -> Observation:
        attempt, event = self._attempt, wake.told
        job = f"job {attempt.external_id!r} (generation {attempt.generation})"
        attempt.seen_alive = event.get("seen_alive") is True
        message = str(event.get("message"))
        if event.get("error") == "StatusBudgetExhausted":
            raise errors.StatusBudgetExhausted(message)
        watch = Watch(attempt)
        end = watch.look()
        if end is not None:
            return end
        if event.get("error") == "JobNotSettled":
            raise errors.JobNotSettled(message)
        what = wake.failure or event.get("error") or ("" if self.may_hand_over else "deferrable=False now")
        if what:
            _log.warning(
                "%s still runs, but its trigger watches it no more (%s; see the triggerer's log); watching "
                "it from this worker now",
                job,
                what,
            )
            return watch.until_the_end()
        _log.warning("%s still runs, though the trigger told of its end (%r); deferring again", job, event)
        self.hand_over()
