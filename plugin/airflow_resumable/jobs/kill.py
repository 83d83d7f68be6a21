# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Why is this task dying, and what that means for its job."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING

from airflow_resumable.jobs.errors import JobKept

if TYPE_CHECKING:
    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.jobs.policies import ResumePolicy

_log = logging.getLogger(__name__)

CALL_LIMIT = 1.5
"""Seconds for each of the two things a dying task may do: ask the server, cancel the job."""
SUBMIT_LIMIT = 2.0
"""Seconds that a stop waits for a submit under way to bring the job's id."""
AGAIN_AFTER = 0.05
"""Seconds after which a stop that came at a bad moment is delivered again."""


class KillReason(StrEnum):
    """Why an attempt is being ended from outside."""

    USER = "user"
    CLEARED = "cleared"
    INFRASTRUCTURE = "infrastructure"
    TIMEOUT = "timeout"
    SUPERSEDED = "superseded"


_REASONS = {
    "failed": KillReason.USER,
    "success": KillReason.USER,
    "skipped": KillReason.USER,
    "removed": KillReason.USER,
    "restarting": KillReason.CLEARED,
    "queued": KillReason.SUPERSEDED,
    "scheduled": KillReason.SUPERSEDED,
    "up_for_retry": KillReason.SUPERSEDED,
}


def reason_for(server_state: str | None) -> KillReason:
    """Return what a SIGTERM means, given the task's state on the server (None: it can't be asked)."""
    return _REASONS.get(server_state or "", KillReason.INFRASTRUCTURE)


def action_for(reason: KillReason, policy: ResumePolicy, *, last_try: bool) -> str:
    """Return ``keep`` or ``cancel``."""
    match reason:
        case KillReason.USER:
            return policy.on_user_stop or "cancel"
        case KillReason.CLEARED:
            return "keep" if policy.on_clear == "reconnect" else "cancel"
        case KillReason.SUPERSEDED:
            return "keep"
        case _ if last_try:
            return policy.on_final_failure or "cancel"
        case KillReason.TIMEOUT:
            return policy.on_timeout or "keep"
        case _:
            return policy.on_infrastructure_stop or "keep"


class Kill:
    """Answers the stop of one attempt: once, within two seconds, and never by tidying up blindly.

    Args:
        attempt: The attempt that is being ended, or None when it has not begun.
        task_state: Asks the API server for the task's state; None when it can't be asked.
        cancel: Cancels the attempt's job.
    """

    def __init__(
        self,
        attempt: JobAttempt | None,
        task_state: Callable[[], str | None],
        cancel: Callable[[Callable[[], None]], object],
    ) -> None:
        self._attempt = attempt
        self._task_state = task_state
        self._cancel = cancel
        self._first_seen: float | None = None
        self._done = False

    def __call__(self, tidy_up: Callable[[], None]) -> None:
        """Handle a call of `on_kill`.

        Args:
            tidy_up: The operator's own `on_kill`, for services that can't be told to cancel otherwise.

        Raises:
            JobKept: From a signal handler, to end the attempt; Airflow retries it where tries are left.
        """
        if self._done:
            return
        frames = _stack(sys._getframe(1))
        signalled = any(name == "_on_term" for name, _ in frames)
        if signalled and self._comes_at_a_bad_moment(frames):
            threading.Timer(AGAIN_AFTER, os.kill, (os.getpid(), signal.SIGTERM)).start()
            return
        # A second signal may arrive in the middle of the first one's handling: it finds this set.
        self._done = True
        try:
            reason = reason_for(_within(CALL_LIMIT, self._task_state)) if signalled else KillReason.TIMEOUT
            done = self._act(reason, tidy_up)
        except Exception as error:
            # A poll loop that retries would swallow it, and the attempt would run on.
            _log.exception("on_kill failed; the attempt ends and its job is left as it is")
            done, reason = f"{type(error).__name__}: {error}", KillReason.INFRASTRUCTURE
        if signalled:
            raise JobKept(f"stopped ({reason}): {done}")

    def _comes_at_a_bad_moment(self, frames: list[tuple[str, str]]) -> bool:
        # A call to the supervisor from a handler that interrupted one swaps the answers on 3.0 and
        # 3.1 and deadlocks on 3.2 and 3.3; leaving it half done shifts all later answers by one.
        if any(owner == "CommsDecoder" for _, owner in frames):
            return True
        if self._attempt is None or not self._attempt.submitting:
            return False
        now = time.monotonic()
        if self._first_seen is None:
            self._first_seen = now
            _log.warning("told to stop inside a submit; waiting up to %.0f s for the job's id", SUBMIT_LIMIT)
        return now - self._first_seen < SUBMIT_LIMIT

    def _act(self, reason: KillReason, tidy_up: Callable[[], None]) -> str:
        attempt = self._attempt
        if attempt is None or not attempt.may_be_live:
            return self._say("no job of this attempt is running", reason)
        record = attempt.record
        job = f"job {attempt.external_id!r}, generation {record.generation if record else None}"
        action = action_for(reason, attempt.policy, last_try=attempt.is_last_try)
        if action == "keep":
            return self._say(f"{job} is kept; the next try reconnects to it", reason)
        self._say(f"{job} is being cancelled", reason)
        if _within(CALL_LIMIT, lambda: self._cancel(tidy_up)) is None:
            return self._say(f"{job} was NOT cancelled within {CALL_LIMIT} s; its record is kept", reason)
        return f"{job} was cancelled"

    def _say(self, what: str, reason: KillReason) -> str:
        _log.warning("this attempt is being stopped (%s): %s", reason, what)
        return what


def _within(seconds: float, call: Callable[[], object]) -> str | None:
    """Run a call in a thread and return its answer as text, or None when it failed or took longer."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:
            _log.warning("%s: %s (told to stop; going on without an answer)", type(error).__name__, error)

    thread = threading.Thread(target=run, name="resumable-kill", daemon=True)
    thread.start()
    thread.join(seconds)
    return str(answers[0]) if answers and answers[0] not in (None, False) else None


def _stack(frame: FrameType | None) -> list[tuple[str, str]]:
    names = []
    while frame is not None:
        owner = type(frame.f_locals.get("self")).__name__ if "self" in frame.f_code.co_varnames[:1] else ""
        names.append((frame.f_code.co_name, owner))
        frame = frame.f_back
    return names
