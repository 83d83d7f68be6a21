# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The signs by which the laws know what the protocol, or Airflow, makes unavoidable. Pure.

Each asks for something that was logged: that nothing was logged excuses nothing.
"""

from __future__ import annotations

from typing import Any

from airflow_resumable.testing.soak.history import Attempt, History, Job, try_of

_AT_ONCE = 5.0
"""Seconds until whoever sees such a job has seen it, with retries of spoiled requests."""
_CUT_OFF = ("kill", "orphan", "stop", "clear_stopped")


def told_at(history: History, attempt: Attempt) -> float | None:
    """Return when a user cleared or marked the task under a running attempt, None when nobody did."""
    wishes = history.clears if attempt.hit == "clear" else []
    if attempt.hit.startswith("mark"):
        wishes = [at for at, _ in history.marks]
    return next((at for at in wishes if attempt.began < at < (attempt.ended or float("inf"))), None)


def is_on_record(history: History, job: Job, at: float = float("inf")) -> bool:
    """Say whether a job's id was on record by a moment."""
    if at == float("inf") and job.id in (history.record or {}).get("ids", ()):
        return True
    return any(repr(one) == repr(job.id) and since < at for since, _, one in history.ids)


def was_taken_back(history: History, job: Job) -> bool:
    """Section 5.0: a fenced attempt deletes exactly the job that its own submit has created."""
    attempt = history.attempts.get(job.by)
    fenced = None if attempt is None else attempt.replaced_at or told_at(history, attempt)
    if attempt is None or fenced is None or job.status != "CANCELLED":
        return False
    woken = max([job.submitted_at, *(at for at, _ in attempt.passed)])
    return any(
        try_of(one) == job.by
        and max(fenced, job.submitted_at) < one["at"] < woken + _AT_ONCE
        and not is_on_record(history, job, one["at"])
        for one in _cancels(history, job)
    )


def was_settled(history: History, job: Job) -> bool:
    """Section 5.2: the successor cancels what an attempt from before the clear has started after it."""
    attempt = history.attempts.get(job.by)
    if attempt is None or job.status != "CANCELLED":
        return False
    overtaken = [at for at in history.clears if attempt.began < at < job.submitted_at]
    return bool(overtaken) and any(
        try_of(one) > job.by
        and history.attempts[try_of(one)].began > overtaken[0]
        and not is_on_record(history, job, one["at"])
        for one in _cancels(history, job)
    )


def is_repeat(history: History, attempt: Attempt, job: Job) -> bool:
    """Section 5.2 and 8: a cancel that a clear asks for is sent again when its answer was spoiled.

    The owner is read before writes only, so who is replaced in between hears of it afterwards.
    """
    return any(
        try_of(one) == attempt.try_number
        and one["fault"]
        and one["at"] < (attempt.replaced_at or 0.0)
        and any(job.submitted_at < clear < one["at"] for clear in history.clears)
        for one in _cancels(history, job)
    )


def is_window(history: History, earlier: Job, later: Job) -> bool:
    """Say whether two jobs are one generation's, doubled inside the window of the operator's grade."""
    if is_on_record(history, earlier) and is_on_record(history, later):
        return False
    attempt, other = history.attempts.get(earlier.by), history.attempts.get(later.by)
    if attempt is None or other is None or earlier.by == later.by:
        return False
    match history.schedule.grade:
        case "narrowed":
            # Two racing attempts: the later one's lookup came before the earlier one's submit.
            looked = max((one["at"] for one in _looks(history, later)), default=other.began)
            return earlier.mark == later.mark and looked < earlier.submitted_at
        case "open":
            # A crash inside the window: something befell the attempt, or the reply, before the id was stored.
            befell = bool(attempt.hit) or _is_spoiled(history, earlier)
            return befell and not is_on_record(history, earlier, later.submitted_at)
        case _:
            return False


def was_discarded(history: History, job: Job) -> bool:
    """Airflow 3.4: a clear has dropped the one place where the id of a job stood that nobody can look up."""
    attempt = history.attempts.get(job.by)
    if not history.schedule.discards or history.schedule.grade == "closed" or attempt is None:
        return False
    # Who is there to be told of the clear has the id in memory. A mark in the intent is a way to it, too.
    intent = attempt.passed_at("after_intent") if history.schedule.grade == "narrowed" else None
    alone = any(
        one.hit == "clear_stopped"
        and one.began < clear
        and (is_on_record(history, job, clear) or (intent is not None and intent < clear))
        for one in history.attempts.values()
        for clear in history.clears
        if one.replaced_at is not None and abs(one.replaced_at - clear) < 1
    )
    return alone and any(
        job.submitted_at < clear and (job.finished_at is None or job.finished_at > clear)
        for clear in history.clears
    )


def is_unnamed(history: History, job: Job) -> bool:
    """Section 3: without an installation id nothing is cancelled on the strength of a family match alone.

    A clear of Airflow 3.4 has left no more than that, and the attempt that it overtook can't tell whether
    another has adopted what it starts.
    """
    attempt = history.attempts.get(job.by)
    if not history.schedule.discards or history.schedule.installation or attempt is None:
        return False
    overtaken = any(attempt.began < clear < job.submitted_at for clear in history.clears)
    return overtaken and attempt.wrote("may have adopted it, so it is left alone")


def is_stopping_unseen(history: History, job: Job, at: float) -> bool:
    """Airflow 3.4: the cleared attempt had its job cancelled; the next one can't know of it, nor wait."""
    attempt = history.attempts.get(job.by)
    if not history.schedule.discards or history.schedule.grade == "closed" or attempt is None:
        return False
    return any(
        history.attempts[try_of(one)].hit == "clear" and one["fault"] == "slow_stop" and one["at"] < at
        for one in _cancels(history, job)
        if try_of(one)
    )


def is_forgotten_before(history: History, job: Job, at: float) -> bool:
    """Section 5.2 and 5.5: not found is gone."""
    return any(repr(one) == repr(job.id) and since < at for since, one in history.forgets)


def was_seen(history: History, job: Job) -> bool:
    """Say whether an attempt can have seen a job's end."""
    return job.finished_at is not None and any(
        one["verb"] in ("status", "find", "submit") and try_of(one) and one["at"] >= job.finished_at
        for one in history.requests
    )


def could_not_act(attempt: Attempt) -> bool:
    """Section 6: by its own words a stop could not ask the server, or not cancel, in its two seconds."""
    if attempt.wrote("attempt is being stopped", "was NOT cancelled"):
        return True
    return attempt.wrote("being stopped (infrastructure)") and (
        attempt.wrote("told to stop; going on without an answer")
        or attempt.wrote("told to stop inside a call to the supervisor")
    )


def stop_was_helpless(history: History) -> bool:
    """Say whether the attempt whose stop was the task's end could not act."""
    if not history.attempts:
        return False
    last = history.attempts[max(history.attempts)]
    stopped = last.hit.startswith("mark") if history.by_user else last.hit == "term" and last.last
    return stopped and could_not_act(last)


def lost_clear(history: History) -> bool:
    """Say whether the last clear met a worker that could neither act on it nor pass it on.

    Up to 3.3 a clear of a running task leaves no trace that the next try could read; 3.4's does.
    """
    last_clear = max(history.clears, default=0.0)
    met = [one for one in history.attempts.values() if told_at(history, one) == last_clear]
    if history.schedule.discards or not met:
        return False
    one = met[-1]
    return one.how == "killed" or one.wrote("nothing to cancel") or could_not_act(one)


def is_unknowable(history: History, job: Job) -> bool:
    """Section 11: the only one that knew the id is dead, or never heard it, and nothing can be looked up."""
    attempt = history.attempts.get(job.by)
    if history.schedule.grade != "open" or attempt is None or is_on_record(history, job):
        return False
    # On a real Airflow nobody tells how a killed task ended.
    return attempt.how == "killed" or attempt.hit == "kill" or _is_spoiled(history, job)


def was_raced(history: History, job: Job) -> bool:
    """Section 11: it woke up replaced, can't read the record any more, and one of the two may be adopted."""
    attempt = history.attempts.get(job.by)
    if history.schedule.grade != "narrowed" or attempt is None or is_on_record(history, job):
        return False
    beside = [one for one in history.jobs if one.mark == job.mark and is_on_record(history, one)]
    return bool(beside) and attempt.wrote("may have adopted it, so it is left alone")


def unstored(history: History) -> Job | None:
    """Return the succeeded job whose id the last attempt, by its own words, could not store."""
    last = max(history.attempts, default=0)
    if history.schedule.grade != "open" or not history.attempts[last].wrote("Watching it on"):
        return None
    return next((one for one in history.jobs if one.by == last and one.status == "SUCCEEDED"), None)


def is_late_result(history: History, value: Any) -> bool:
    """Say whether a value is that of an attempt that was replaced after its last write."""
    return any(
        one.replaced_at is not None
        and (wrote := one.passed_at("after_outcome")) is not None
        and wrote <= one.replaced_at
        and any(value == {"job": job.id} and job.submitted_at < wrote for job in history.jobs)
        for one in history.attempts.values()
    )


def _is_spoiled(history: History, job: Job) -> bool:
    return any(
        one["verb"] == "submit"
        and one["fault"]
        and try_of(one) == job.by
        and repr(one["job"]) == repr(job.id)
        for one in history.requests
    )


def _looks(history: History, job: Job) -> list[dict[str, Any]]:
    return [
        one
        for one in history.requests
        if one["verb"] == "find" and try_of(one) == job.by and one["at"] < job.submitted_at
    ]


def _cancels(history: History, job: Job) -> list[dict[str, Any]]:
    return [one for one in history.requests if one["verb"] == "cancel" and repr(one["job"]) == repr(job.id)]
