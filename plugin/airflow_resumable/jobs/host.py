# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one attempt for whoever hosts it, an operator or a `@task` function, and answers for its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, cast

from airflow_resumable.jobs import kill
from airflow_resumable.jobs.errors import JobKept, StoreUnavailable

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_resumable.jobs.adapter import Capabilities, JobAdapter
    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.jobs.policies import ResumePolicy
    from airflow_resumable.jobs.wake import Wake

_log = logging.getLogger(__name__)


def stop_before_start(tidy_up: Callable[[], None]) -> None:
    """Answer a stop that comes before the attempt has begun: there is no job of ours yet, and shall be none.

    Args:
        tidy_up: The operator's own `on_kill`.

    Raises:
        JobKept: From a signal handler, so that the task doesn't go on to submit.
    """
    signalled = kill.inside_handler()
    if signalled and kill.inside_supervisor_call():
        kill.deliver_again()
        return
    tidy_up()
    if signalled:
        raise JobKept("stopped before this attempt had begun")


class Host:
    """The process in which one attempt runs: its store, its attempt, and what a stop does to it.

    Args:
        adapter: The seam to the service.
        can: What the adapter is able to do.
        policy: A policy without gaps.
    """

    def __init__(self, adapter: JobAdapter, can: Capabilities, policy: ResumePolicy) -> None:
        self.attempt: JobAttempt | None = None
        self._adapter = adapter
        self._can = can
        self._policy = policy
        self._kill: kill.Kill | None = None
        self._tidying = False
        self._preparing = False

    def run(
        self,
        context: Context,
        *,
        unrecorded: Callable[[], Any],
        deferrable: bool = False,
        wake: Wake | None = None,
    ) -> Any:
        """Carry the job to its end and return its result.

        Args:
            context: The task's context.
            unrecorded: Runs the job without a record, for ``on_store_down=submit``.
            deferrable: Whether the triggerer is to watch the job.
            wake: Why a deferred task runs again: its job exists, so nothing is ever run without a record.

        Raises:
            StoreUnavailable: There is no store, and ``on_store_down`` is ``fail``.
            ResumableJobError: One of `airflow_resumable.jobs.errors`.
        """
        attempt = self.prepare(context, deferrable=deferrable, wake=wake)
        if attempt is None and wake is None:
            return self._without_store(unrecorded, "there is no task_state_store in the context")
        if attempt is None:
            raise StoreUnavailable("no task_state_store in the context; the deferred job is left alone")
        if self._kill is None:
            raise AssertionError("an attempt was prepared without its answer to a stop")
        try:
            return self._kill.run(attempt.run)
        except StoreUnavailable as error:
            if wake is not None:
                raise
            if attempt.external_id is None and not attempt.submitting and attempt.record is None:
                self.attempt = self._kill = None
                return self._without_store(unrecorded, str(error))
            raise

    def prepare(
        self, context: Context, *, deferrable: bool = False, wake: Wake | None = None
    ) -> JobAttempt | None:
        """Make the attempt without beginning it, so that a stop can be answered; None without a store."""
        self._preparing = True
        try:
            return self._prepare(context, deferrable, wake)
        finally:
            self._preparing = False

    def _prepare(self, context: Context, deferrable: bool, wake: Wake | None) -> JobAttempt | None:
        from airflow_resumable.integration import settings
        from airflow_resumable.jobs.attempt import JobAttempt
        from airflow_resumable.store.accessor import install

        # The policy hook has done this already, unless a site's own hook kept it from being called.
        install(cast(MutableMapping[str, Any], context))
        store = context.get("task_state_store")
        if store is None:
            return None
        attempt = JobAttempt(
            self._adapter,
            context,
            store,
            policy=self._policy,
            can=self._can,
            installation=settings.read("installation_id") or "",
            deferrable=deferrable,
            wake=wake,
        )
        self.attempt, self._kill = attempt, self._new_kill(attempt)
        return attempt

    def _without_store(self, unrecorded: Callable[[], Any], why: str) -> Any:
        if self._policy.on_store_down == "fail":
            raise StoreUnavailable(
                f"{why}; nothing was submitted, since a crash could not be recovered from. The next try asks "
                "again; on_store_down=submit runs the job all the same"
            )
        _log.error(
            "%s; on_store_down=submit: the job is run without a record, a crash will start it again", why
        )
        return unrecorded()

    def on_kill(self, tidy_up: Callable[[], None]) -> None:
        """Find out why the task is dying, and keep or cancel its job by policy.

        Args:
            tidy_up: What the host itself does when it is killed; called where nothing of ours runs, and
                to cancel a job for whose service there is no `cancel_job`.

        Raises:
            JobKept: From a signal handler, to end the attempt.
        """
        if self._tidying:
            tidy_up()
        elif self._preparing and kill.inside_handler():
            # No I/O is under way, so it is over soon; then the job of the try before can be thought of.
            kill.deliver_again()
        elif self._kill is None:
            stop_before_start(tidy_up)
        else:
            self._kill(tidy_up)

    def _new_kill(self, attempt: JobAttempt) -> kill.Kill:
        # Imported before a signal can arrive: a handler that imports may meet a half-imported module.
        from airflow_resumable.integration.server import task_state

        return kill.Kill(attempt, lambda: task_state(attempt.context), self._cancel)

    def _cancel(self, tidy_up: Callable[[], None], only_if_owner: bool) -> bool | None:
        if self.attempt is None:
            return False
        if self.attempt.can.cancel:
            return self.attempt.ending.cancel(only_if_owner=only_if_owner)
        # The host's own on_kill is all that is known about cancelling this job.
        self._tidying = True
        try:
            tidy_up()
        finally:
            self._tidying = False
        return None
