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
from collections.abc import Callable, Iterator
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs.errors import JobKept

if TYPE_CHECKING:
    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.jobs.policies import ResumePolicy

_log = logging.getLogger(__name__)

KILL_LIMIT = 1.9
"""Seconds for all that a dying task does: ask the server for its state, cancel its job."""
ASK_LIMIT = 0.9
"""Seconds of those for the question."""
WAIT_LIMIT = 2.0
"""Seconds that a stop waits for a submit, or for a call to the supervisor, that is under way."""
SWALLOWED_AFTER = 0.5
"""Seconds after which an attempt that a stop has not ended is told once more."""
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
    None: KillReason.INFRASTRUCTURE,
    "running": KillReason.INFRASTRUCTURE,
    "failed": KillReason.USER,
    "success": KillReason.USER,
    "skipped": KillReason.USER,
    "removed": KillReason.USER,
    "restarting": KillReason.CLEARED,
}


def reason_for(server_state: str | None) -> KillReason:
    """Return what a SIGTERM means, given the task's state on the server (None: it can't be asked).

    Any other state belongs to a later attempt: this one is left over.
    """
    return _REASONS.get(server_state, KillReason.SUPERSEDED)


def action_for(reason: KillReason, policy: ResumePolicy, *, last_try: bool) -> str:
    """Return ``keep`` or ``cancel``."""
    match reason:
        case KillReason.USER:
            return policy.on_user_stop or "cancel"
        case KillReason.CLEARED:
            return "keep" if policy.on_clear == "reconnect" else "cancel"
        case KillReason.SUPERSEDED:
            return "keep"
        case KillReason.TIMEOUT:
            chosen = policy.on_timeout or "keep"
        case _:
            chosen = policy.on_infrastructure_stop or "keep"
    # A job kept after the last try would have nobody left to watch it.
    return (policy.on_final_failure or "cancel") if chosen == "keep" and last_try else chosen


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
        task_state: Callable[[], str],
        cancel: Callable[[Callable[[], None], bool], object],
    ) -> None:
        self._attempt = attempt
        self._task_state = task_state
        self._cancel = cancel
        self._first_seen: float | None = None
        self._deadline = 0.0
        self._done = False
        self._answer: str | None = None
        self._unwinding_since: float | None = None

    def run(self, attempt: Callable[[], Any]) -> Any:
        """Run the attempt; as long as it runs, a stop that was swallowed is told again.

        Raises:
            JobKept: It was told to stop, now or before it began.
        """
        try:
            if self._answer is not None:
                raise JobKept(self._answer)
            return attempt()
        finally:
            if self._answer is not None:
                _take_back()

    def __call__(self, tidy_up: Callable[[], None]) -> None:
        """Handle a call of `on_kill`.

        Args:
            tidy_up: The operator's own `on_kill`, for services that can't be told to cancel otherwise.

        Raises:
            JobKept: From a signal handler, to end the attempt; Airflow retries it where tries are left.
        """
        signalled = inside_handler()
        if self._done:
            self._raise_again(signalled)
            return
        if signalled and self._comes_at_a_bad_moment():
            deliver_again()
            return
        # A second signal may arrive in the middle of the first one's handling: it finds this set.
        self._done = True
        self._deadline = time.monotonic() + KILL_LIMIT
        try:
            reason = self._reason() if signalled else KillReason.TIMEOUT
            done = self._act(reason, tidy_up)
        except Exception as error:
            # A poll loop that retries would swallow it, and the attempt would run on.
            _log.exception("on_kill failed; the attempt ends and its job is left as it is")
            done, reason = f"{type(error).__name__}: {error}", KillReason.INFRASTRUCTURE
        if signalled:
            self._answer, self._first_seen = f"stopped ({reason}): {done}", None
            if _is_running():
                _deliver_after(SWALLOWED_AFTER)
            raise JobKept(self._answer)

    def _raise_again(self, signalled: bool) -> None:
        # Answered already; but what was raised then may have been swallowed, by a finalizer that the signal
        # has interrupted or by somebody's bare except.
        if not signalled or self._answer is None or not _is_running():
            return
        if self._is_unwinding() or self._comes_at_a_bad_moment():
            deliver_again()
            return
        _log.warning("told to stop, and going on: what ends this attempt was swallowed; raising it again")
        _deliver_after(SWALLOWED_AFTER)
        raise JobKept(self._answer)

    def _is_unwinding(self) -> bool:
        # A clean-up on the way out is left its time; one that never ends isn't.
        error = sys.exc_info()[1]
        while error is not None and not isinstance(error, JobKept):
            error = error.__context__
        if error is None:
            return False
        now = time.monotonic()
        if self._unwinding_since is None:
            self._unwinding_since = now
        return now - self._unwinding_since < WAIT_LIMIT

    def _reason(self) -> KillReason:
        if inside_supervisor_call():
            return KillReason.INFRASTRUCTURE
        answer = _within(ASK_LIMIT, self._task_state)
        return reason_for(str(answer[0]) if answer else None)

    def _comes_at_a_bad_moment(self) -> bool:
        submitting = self._attempt is not None and self._attempt.submitting
        if not submitting and not inside_supervisor_call():
            return False
        now = time.monotonic()
        if self._first_seen is None:
            self._first_seen = now
            what = "a submit" if submitting else "a call to the supervisor"
            _log.warning("told to stop inside %s; waiting up to %.0f s for its end", what, WAIT_LIMIT)
        return now - self._first_seen < WAIT_LIMIT

    def _act(self, reason: KillReason, tidy_up: Callable[[], None]) -> str:
        attempt = self._attempt
        if attempt is None or not attempt.may_be_live:
            return self._say("no job of this attempt is running", reason)
        record = attempt.record
        job = f"job {attempt.external_id!r}, generation {record.generation if record else None}"
        if attempt.external_id is None:
            job = "this try has no job's id yet; one that an earlier try or this submit has started"
        action = action_for(reason, attempt.policy, last_try=attempt.is_last_try)
        if action == "keep":
            return self._say(f"{job} is kept; the next try reconnects to it", reason)
        self._say(f"{job} is being cancelled", reason)
        # A user's word is the server's; anything else may meet an attempt that was replaced long ago.
        by_user = reason in (KillReason.USER, KillReason.CLEARED)
        answer = _within(self._deadline - time.monotonic(), lambda: self._cancel(tidy_up, not by_user))
        if answer == [None]:
            return self._say(
                f"{job}: this operator has no cancel_job, so its own on_kill was called and nobody knows "
                "whether the job stops; look at it in the service",
                reason,
            )
        if not answer or not answer[0]:
            return self._say(f"{job} was NOT cancelled (within {KILL_LIMIT} s); its record is kept", reason)
        return f"{job} was cancelled"

    def _say(self, what: str, reason: KillReason) -> str:
        _log.warning("this attempt is being stopped (%s): %s", reason, what)
        return what


def inside_handler() -> bool:
    """Say whether the caller runs inside the process's SIGTERM handler, Airflow's own."""
    code = getattr(signal.getsignal(signal.SIGTERM), "__code__", None)
    return code is not None and any(frame.f_code is code for frame in _frames())


def inside_supervisor_call() -> bool:
    """Say whether the caller interrupted a call to the supervisor.

    Another call from there swaps the answers on 3.0 and 3.1 and deadlocks on 3.2 and 3.3; leaving the
    first one half done shifts all later answers by one.
    """
    return any(type(frame.f_locals.get("self")).__name__ == "CommsDecoder" for frame in _frames())


def _is_running() -> bool:
    return any(frame.f_code is Kill.run.__code__ for frame in _frames())


_postponed: list[threading.Timer] = []


def deliver_again() -> None:
    """Have SIGTERM delivered to this process once more, a moment later."""
    _deliver_after(AGAIN_AFTER)


def _deliver_after(seconds: float) -> None:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    _take_back()
    _postponed[:] = [timer]
    timer.start()


def _take_back() -> None:
    for timer in _postponed:
        timer.cancel()
    _postponed.clear()


def await_postponed_stop() -> None:
    """Let a stop that was put off come now, before this process gives its task away.

    Raises:
        JobKept: There was one; from its handler.
    """
    while _postponed:
        _postponed.pop().join()
        # The handler runs between two of the interpreter's steps, and may put the stop off once more.
        time.sleep(AGAIN_AFTER)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _within(seconds: float, call: Callable[[], object]) -> list[object]:
    """Run a call in a thread and return its answer in a list, or nothing when it failed or took longer."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:
            _log.warning("%s: %s (told to stop; going on without an answer)", type(error).__name__, error)

    thread = threading.Thread(target=run, name="resumable-kill", daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    return answers[:1]
