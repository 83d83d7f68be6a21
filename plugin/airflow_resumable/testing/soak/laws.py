# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Section 1 of the job protocol, asked of what a schedule came to. Pure.

Nothing is waved through: what the protocol itself allows (the named window of a grade, section 5.0's job
of a fenced attempt that is taken back, a stopped attempt's late submit that the token makes harmless) is
found by its own signs in the log and counted under its own name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from airflow_resumable.testing.soak.history import Attempt, History, Job, try_of

IN_WINDOW = "jobs inside the named window"
TAKEN_BACK = "jobs that a fenced attempt had started, cancelled at once (5.0)"
LATE_CANCEL = "cancels by a replaced attempt of a job that a clear had ended before"
LATE_SUBMIT = "submits of a replaced attempt after its id was on record, answered with the existing job"
LOST_CLEAR = "clears of a running task that its worker could not answer: the next try reconnects"
UNASKED = "jobs left when a stop could not ask the server, or cancel, within its two seconds (section 6)"
LATE_RESULT = "XComs overwritten by a replaced attempt, stopped after its last write (Airflow fences no XCom)"
FORGOTTEN = "jobs that the service forgot"

_SAME_MOMENT = 0.005
_AT_ONCE = 5.0
"""Seconds until whoever sees such a job has seen it, with retries of spoiled requests."""


@dataclass
class Verdict:
    """What the laws say.

    Attributes:
        violations: Each names its law.
        allowed: How often what the protocol names as an exception has happened.
    """

    violations: list[str] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)


def judge(history: History) -> Verdict:
    """Ask all five laws."""
    verdict = Verdict()
    verdict.violations += history.hung
    counted = _counted(history, verdict)
    _one_at_a_time(counted, verdict)
    _as_many_as_reasons(history, counted, verdict)
    _none_after_the_end(history, counted, verdict)
    _success_is_the_current_jobs(history, verdict)
    _no_submit_after_the_id(history, verdict)
    _no_cancel_without_reason(history, verdict)
    return verdict


def _counted(history: History, verdict: Verdict) -> list[Job]:
    """Return the jobs that the laws count; the others are counted under their exception's name."""
    on_record = {repr(one) for one in (history.record or {}).get("ids", ())}
    on_record |= {repr(job_id) for _, _, job_id in history.ids}
    counted = []
    for job in history.jobs:
        if job.forgotten:
            verdict.allowed[FORGOTTEN] += 1
        elif repr(job.id) in on_record:
            counted.append(job)
        elif _was_taken_back(history, job):
            verdict.allowed[TAKEN_BACK] += 1
        elif _is_in_window(history, job):
            verdict.allowed[IN_WINDOW] += 1
        else:
            counted.append(job)
    return counted


def _was_taken_back(history: History, job: Job) -> bool:
    attempt = history.attempts.get(job.by)
    return (
        job.status == "CANCELLED"
        and attempt is not None
        and attempt.replaced_at is not None
        and attempt.replaced_at < job.submitted_at + _SAME_MOMENT
        and any(
            try_of(one) >= job.by and one["at"] < job.submitted_at + _AT_ONCE
            for one in _cancels(history, job)
        )
    )


def _is_in_window(history: History, job: Job) -> bool:
    """Say whether a job whose id never came on record may be one too many, by its operator's grade."""
    attempt = history.attempts.get(job.by)
    if attempt is None or history.schedule.grade == "closed":
        return False
    if history.schedule.grade == "narrowed":
        # "Two racing attempts can double": the other one had begun before this one's submit.
        return any(
            other.began < job.submitted_at for number, other in history.attempts.items() if number > job.by
        )
    # "A crash inside the window": something befell the attempt, or the reply, before the id was stored.
    spoiled = any(
        one["verb"] == "submit" and one["fault"] and try_of(one) == job.by for one in history.requests
    )
    return bool(attempt.hit) or spoiled


def _one_at_a_time(jobs: list[Job], verdict: Verdict) -> None:
    for earlier, later in pairwise(jobs):
        if earlier.finished_at is None or earlier.finished_at > later.submitted_at:
            verdict.violations.append(f"law 1: {later.id} was started while {earlier.id} was alive")


def _as_many_as_reasons(history: History, jobs: list[Job], verdict: Verdict) -> None:
    failures = sum(job.status == "FAILED" for job in jobs)
    # A job that was forgotten counts, when it was the first or a reason's.
    most = 1 + failures + len(history.clears)
    count = len(jobs) + sum(job.forgotten for job in history.jobs)
    if count > most:
        verdict.violations.append(
            f"law 2: {count} jobs started; 1 + {failures} failures + {len(history.clears)} clears is right"
        )


def _none_after_the_end(history: History, jobs: list[Job], verdict: Verdict) -> None:
    # A stop that interrupts a call to the supervisor, and doesn't see its end, can't ask what it means.
    unasked = any(
        one.hit.startswith("mark") and one.says in ("", "infrastructure", "not cancelled")
        for one in history.attempts.values()
    )
    for job in jobs:
        if job.finished_at is not None:
            continue
        if unasked and history.by_user:
            verdict.allowed[UNASKED] += 1
        else:
            verdict.violations.append(f"law 3: {job.id} is {job.status} after the task's final end")


def _success_is_the_current_jobs(history: History, verdict: Verdict) -> None:
    if history.state != "success" or history.by_user:
        return
    current = (history.record or {}).get("external_id")
    job = next((one for one in history.jobs if one.id == current), None)
    if job is None or job.status != "SUCCEEDED":
        # A job whose id could not be stored is watched on, and said so loudly (section 9, on_store_down).
        job = _unstored(history)
    if job is None or job.status != "SUCCEEDED":
        verdict.violations.append(f"law 4: success, but job {current!r} is {job and job.status}")
        return
    last_clear = max(history.clears, default=0.0)
    cleared = [one for one in history.attempts.values() if one.hit == "clear"]
    if job.submitted_at < last_clear and cleared and cleared[-1].says != "cleared":
        verdict.allowed[LOST_CLEAR] += 1
    elif job.submitted_at < last_clear:
        verdict.violations.append(f"law 4: success by {job.id}, which was started before the last clear")
    value = next(
        (one.value for one in reversed(list(history.attempts.values())) if one.how == "returned"), None
    )
    if value is None or value == {"job": job.id}:
        return
    if any(one.replaced_at and one.passed_at("after_outcome") for one in history.attempts.values()):
        verdict.allowed[LATE_RESULT] += 1
    else:
        verdict.violations.append(f"law 4: the result {value!r} is not that of job {job.id}")


def _unstored(history: History) -> Job | None:
    last = max(history.attempts, default=0)
    return next((one for one in history.jobs if one.by == last and one.status == "SUCCEEDED"), None)


def _no_submit_after_the_id(history: History, verdict: Verdict) -> None:
    on_record: dict[str, tuple[float, Any]] = {}
    for at, mark, job_id in history.ids:
        on_record.setdefault(mark, (at, job_id))
    marks = {repr(job.id): job.mark for job in history.jobs}
    for request in history.requests:
        mark = request["token"] or marks.get(repr(request["job"])) or ""
        if request["verb"] != "submit" or not try_of(request) or mark not in on_record:
            continue
        at, job_id = on_record[mark]
        if request["at"] < at + _SAME_MOMENT:
            continue
        attempt = history.attempts[try_of(request)]
        if attempt.replaced_at is not None and attempt.replaced_at < request["at"]:
            if not request["created"]:
                verdict.allowed[LATE_SUBMIT] += 1
            # One that created a job is that job's matter: it was counted, taken back or in the window.
            continue
        verdict.violations.append(
            f"law 5: try {try_of(request)} sent a submit of {mark} after job {job_id!r} was on record"
        )


def _no_cancel_without_reason(history: History, verdict: Verdict) -> None:
    jobs = {repr(job.id): job for job in history.jobs}
    for request in history.requests:
        if request["verb"] != "cancel" or not try_of(request):
            continue
        attempt, job = history.attempts[try_of(request)], jobs.get(repr(request["job"]))
        replaced = (
            attempt.replaced_at is not None and attempt.replaced_at < request["at"] and attempt.hit != "clear"
        )
        if job is not None and replaced and _is_over(history, job, request["at"]):
            verdict.allowed[LATE_CANCEL] += 1
            continue
        if replaced and not (job is not None and _was_taken_back(history, job)):
            verdict.violations.append(
                f"law 5: superseded try {attempt.try_number} ({attempt.hit}) cancelled {request['job']}"
            )
            continue
        if not (
            any(at < request["at"] for at in history.clears)
            or any(at < request["at"] for at, _ in history.marks)
            or _may_end_the_last_try(attempt, request["at"])
            or (job is not None and _was_taken_back(history, job))
        ):
            verdict.violations.append(
                f"law 5: try {attempt.try_number} ({attempt.hit or 'nothing befell it'}) cancelled "
                f"{request['job']} without a user's wish"
            )


def _is_over(history: History, job: Job, at: float) -> bool:
    over = job.finished_at is not None and (job.status == "CANCELLED" or job.finished_at < at)
    return over and any(job.submitted_at < clear < at for clear in history.clears)


def _may_end_the_last_try(attempt: Attempt, at: float) -> bool:
    return attempt.last and (attempt.replaced_at is None or attempt.replaced_at > at)


def _cancels(history: History, job: Job) -> list[dict[str, Any]]:
    return [one for one in history.requests if one["verb"] == "cancel" and repr(one["job"]) == repr(job.id)]
