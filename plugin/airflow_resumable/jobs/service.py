# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Calls to the external service: asked patiently, answered in the protocol's own words."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs.adapter import (
    Capabilities,
    FoundJob,
    JobAdapter,
    Observation,
    SubmitWindow,
    observe,
)
from airflow_resumable.jobs.errors import JobNotFound, StatusBudgetExhausted, TokenForgotten
from airflow_resumable.jobs.record import ANY_OTHER
from airflow_resumable.jobs.settling import Settling
from airflow_resumable.jobs.transient import WorthAsking, apatiently, patiently, status_code, was_refused

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_resumable.jobs.policies import ResumePolicy
    from airflow_resumable.jobs.steps import LookUpFamily, LookUpToken, Sweep

_log = logging.getLogger(__name__)

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking call in a thread."""

LONGEST_WAIT = timedelta(seconds=30)
"""The longest pause before a submit is sent again, see `patiently`."""
MISSING_LOOKS = 3
"""Looks until "not found" is believed: a service's reads may lag behind its writes."""
MISSING_WAIT = 5.0
"""Seconds between two of them, at most."""

HASTY_BUDGET = 1.0
"""Seconds for which a dying task repeats a cancel that a transient error met."""


class JobService:
    """One adapter, one task instance: every call to the service goes through here.

    Args:
        adapter, context: The operator's adapter and the context it is handed.
        policy: A policy without gaps.
        can: What the adapter is able to do.
    """

    def __init__(
        self, adapter: JobAdapter, context: Context, policy: ResumePolicy, can: Capabilities
    ) -> None:
        self._adapter = adapter
        self._context = context
        self._policy = policy
        self._can = can
        self.is_sweeping = False
        """Whether jobs of before are being ended: who waits for none has to say how they are then."""

    def ask(self, what: str, call: Callable[[], Any]) -> Any:
        """Call the service; transient errors and expired credentials use up `status_error_budget`.

        Raises:
            StatusBudgetExhausted: The budget is used up; the job was left alone.
        """
        try:
            return patiently(what, self._sorted_out(call), budget=self._budget, may_retry=_is_worth_asking)
        except WorthAsking as again:
            raise self._exhausted(what, again.error) from again.error

    async def aask(self, what: str, call: Callable[[], Any], in_thread: InThread) -> Any:
        """Do what `ask` does, from an event loop: calls go through `in_thread`, pauses don't.

        Raises:
            StatusBudgetExhausted: The budget is used up; the job was left alone.
        """
        # In the thread too, since fresh credentials may have to be fetched.
        once = self._sorted_out(call)

        async def call_once() -> Any:
            return await in_thread(once)

        try:
            return await apatiently(what, call_once, budget=self._budget)
        except WorthAsking as again:
            raise self._exhausted(what, again.error) from again.error

    def _sorted_out(self, call: Callable[[], Any]) -> Callable[[], Any]:
        def once() -> Any:
            try:
                return call()
            except Exception as error:
                if self._may_retry(error):
                    raise WorthAsking(error) from error
                raise

        return once

    @property
    def _budget(self) -> float:
        return self._policy.seconds("status_error_budget")

    def _exhausted(self, what: str, error: BaseException) -> StatusBudgetExhausted:
        return StatusBudgetExhausted(
            f"{what}: no good answer for {self._budget:.0f} s (status_error_budget), last "
            f"{type(error).__name__}: {error}. The job was left alone; the next try watches it again"
        )

    def look(self, external_id: Any, looks: int = MISSING_LOOKS) -> tuple[Observation, str | None]:
        """Return what a job is doing, and the service's raw word for it.

        Args:
            external_id: The job.
            looks: How many of them until "not found" is believed.
        """
        for looks_left in reversed(range(looks)):
            try:
                raw = self.ask(
                    f"status of job {external_id!r}",
                    lambda: self._adapter.get_job_status(external_id, self._context),
                )
            except JobNotFound as error:
                _say_missing(external_id, error, looks_left)
                if looks_left:
                    time.sleep(min(self.poll_interval, MISSING_WAIT))
            else:
                return self._observed(raw)
        return Observation.MISSING, None

    async def alook(self, external_id: Any, in_thread: InThread) -> tuple[Observation, str | None]:
        """Do what `look` does, from an event loop."""
        for looks_left in reversed(range(MISSING_LOOKS)):
            try:
                raw = await self.aask(
                    f"status of job {external_id!r}",
                    lambda: self._adapter.get_job_status(external_id, self._context),
                    in_thread,
                )
            except JobNotFound as error:
                _say_missing(external_id, error, looks_left)
                if looks_left:
                    await asyncio.sleep(min(self.poll_interval, MISSING_WAIT))
            else:
                return self._observed(raw)
        return Observation.MISSING, None

    def _observed(self, raw: Any) -> tuple[Observation, str | None]:
        text = str(getattr(raw, "value", raw)) if raw is not None else None
        return observe(self._adapter, raw, self._can), text

    @property
    def poll_interval(self) -> float:
        """Seconds between two looks at a job."""
        return self._adapter.get_poll_interval()

    @property
    def can_cancel(self) -> bool:
        """Whether the adapter is able to cancel a job."""
        return self._can.cancel

    def wait_while_stopping(self, external_id: Any) -> tuple[Observation, str | None]:
        """Return what a job is doing once it is no longer stopping.

        Raises:
            JobNotSettled: It has been stopping for `stopping_timeout`.
        """
        settling = Settling(self._policy, external_id)
        while (seen := self.look(external_id))[0] is Observation.STOPPING:
            settling.check(*seen, time.monotonic())
            time.sleep(self.poll_interval)
        return seen

    def find(self, step: LookUpToken | LookUpFamily, family: str) -> tuple[tuple[FoundJob, Observation], ...]:
        """Carry out a lookup; a refused permission is raised, never read as "nothing found"."""
        token = getattr(step, "token", None)
        return self.classified(
            self.find_by_token(token, step.since) if token else self.find_by_family(family, step.since)
        )

    def find_by_token(self, token: str, since: Any) -> Sequence[FoundJob]:
        """Return the jobs that carry `token`."""
        return tuple(
            self.ask(
                f"looking for token {token}",
                lambda: self._adapter.find_job_by_token(token, since, self._context),
            )
        )

    def find_by_tokens(self, tokens: Iterable[str], since: Any) -> list[FoundJob]:
        """Return the jobs that carry one of `tokens`; `ANY_OTHER` among them is none to look for."""
        return [job for token in tokens if token != ANY_OTHER for job in self.find_by_token(token, since)]

    def find_by_family(self, family: str, since: Any) -> Sequence[FoundJob]:
        """Return the jobs of all generations of one task instance."""
        return tuple(
            self.ask(
                f"looking for family {family}",
                lambda: self._adapter.find_jobs_by_family(family, since, self._context),
            )
        )

    def classified(self, found: Sequence[FoundJob]) -> tuple[tuple[FoundJob, Observation], ...]:
        """Return found jobs, each with what it is doing."""
        return tuple((job, observe(self._adapter, job.status, self._can)) for job in found)

    def sweep(self, step: Sweep, family: str) -> tuple[Any, ...]:
        """Cancel what is alive of earlier generations, unless told to wait only; return what is left."""
        self.is_sweeping = True
        try:
            return self._swept(step, family)
        finally:
            self.is_sweeping = False

    def _swept(self, step: Sweep, family: str) -> tuple[Any, ...]:
        suspects = list(step.ids)
        found = self.find_by_tokens(step.tokens if self._can.find_by_token else (), step.since)
        if step.whole_family:
            found += self.find_by_family(family, step.since)
        suspects += [job.external_id for job in found if job.external_id not in suspects]
        # By their text: an id may be an object, which can't be hashed.
        distinct = {repr(job): job for job in suspects}.values()
        seen = {repr(job): self.look(job)[0] for job in distinct}
        live = [job for job in distinct if seen[repr(job)].is_live]
        # Who stops already needs no second request.
        for job in (job for job in live if step.cancels and seen[repr(job)] is not Observation.STOPPING):
            if not self._can.cancel:
                _log.error("job %r is alive, and this operator has no cancel_job: it can't be cancelled", job)
                return tuple(live)
            # Asked again after a lost reply, a service may answer that the job has ended.
            if not self.cancel(job) and self.look(job)[0].is_live:
                return tuple(live)
        return self._wait_until_gone(live)

    def cancel(self, external_id: Any, *, patient: bool = True) -> bool:
        """Ask for a cancel; a refusal is logged as "not cancelled" and answered with False.

        Args:
            external_id: The job.
            patient: Whether transient errors are retried for as long as `status_error_budget`; a dying task
                has only moments.
        """

        def cancel() -> None:
            self._adapter.cancel_job(external_id, self._context)

        try:
            if patient:
                self.ask(f"cancelling job {external_id!r}", cancel)
            else:
                # A clear whose one cancel meets one reset would be lost: the next try can't tell it from a
                # retry.
                patiently(
                    f"cancelling job {external_id!r}",
                    cancel,
                    budget=HASTY_BUDGET,
                    may_retry=self._may_retry,
                    longest_wait=0.2,
                )
        except JobNotFound:
            _log.info("job %r: nothing to cancel, the service does not know it", external_id)
        except Exception as error:
            _log.error(
                "job %r was NOT cancelled: %s: %s; the record is kept",
                external_id,
                type(error).__name__,
                error,
            )
            return False
        else:
            _log.warning("job %r: the service took the cancel request", external_id)
        return True

    def _wait_until_gone(self, live: list[Any]) -> tuple[Any, ...]:
        deadline = time.monotonic() + self._policy.seconds("cancel_timeout")
        while live := [job for job in live if self.look(job)[0].is_live]:
            if time.monotonic() >= deadline:
                _log.error(
                    "%r still alive %.0f s after the cancel (cancel_timeout)",
                    live,
                    self._policy.seconds("cancel_timeout"),
                )
                break
            time.sleep(min(self.poll_interval, max(0.0, deadline - time.monotonic())))
        return tuple(live)

    def submit(self, token: str, intent_at: datetime, *, again: bool = False) -> Any:
        """Submit once, or as often as the token makes harmless; return the id.

        Args:
            token: The idempotency token.
            intent_at: When the intent with this token was written first.
            again: Whether an earlier try may have sent it.

        A service that takes the token is asked again with the same one after any transient error;
        any other only when the error proves that the request was not taken. Once a request may have been
        taken, none is sent after the service may have forgotten the token.
        """
        closed = self._can.submit_window is SubmitWindow.CLOSED

        unsure, memory = again, self._can.token_memory

        def may_retry(error: BaseException) -> bool:
            nonlocal unsure
            unsure = unsure or not was_refused(error)
            if unsure and memory is not None and datetime.now(UTC) - intent_at + LONGEST_WAIT > memory:
                return False
            return was_refused(error) or (closed and self._may_retry(error))

        def once() -> Any:
            # This process may have been stopped since it was decided to send.
            age = datetime.now(UTC) - intent_at
            if unsure and memory is not None and age > memory:
                raise TokenForgotten(
                    f"token {token} is {age} old, and the service remembers one for {memory}: nobody can say "
                    "whether a job was started with it, so it was not sent again; the next try goes by "
                    "on_missing"
                )
            return self._adapter.submit_job(self._context)

        return patiently(
            f"submitting with token {token}",
            once,
            budget=self._policy.seconds("status_error_budget"),
            may_retry=may_retry,
        )

    def _may_retry(self, error: BaseException) -> bool:
        if not isinstance(error, Exception) or isinstance(error, JobNotFound):
            return False
        if status_code(error) == 401:
            return self._refreshed()
        return self._adapter.is_transient_error(error)

    def _refreshed(self) -> bool:
        try:
            return self._adapter.refresh_credentials(self._context)
        except Exception as error:
            _log.warning("credentials could not be refreshed: %s: %s", type(error).__name__, error)
            return False


def _say_missing(external_id: Any, error: JobNotFound, looks_left: int) -> None:
    _log.warning(
        "job %r: the service does not know it (%s); looking %d times more", external_id, error, looks_left
    )


def _is_worth_asking(error: BaseException) -> bool:
    return isinstance(error, WorthAsking)
