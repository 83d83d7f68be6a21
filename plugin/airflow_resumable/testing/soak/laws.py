# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Section 1 of the job protocol, asked of what a schedule came to. Pure.

Nothing is waved through: what the protocol itself allows is found by positive signs in the logs (`signs`),
excuses from the law that it is about and from no other, and is counted under its own name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from airflow_resumable.testing.soak import signs
from airflow_resumable.testing.soak.history import Attempt, History, Job, try_of

IN_WINDOW = "jobs inside the named window"
TAKEN_BACK = "jobs that a fenced attempt had started itself and cancelled at once (5.0)"
SETTLED = "late jobs of a token that a clear had overtaken, cancelled by the successor (5.2)"
DISCARDED = "jobs whose record a clear discarded, at a service that lists no family (3.4)"
UNNAMED = "late jobs of an attempt that a discarding clear overtook, without installation_id (section 3)"
STOPPING = "jobs still stopping as the next began: a clear discarded the record that names them (3.4)"
RACED = "jobs left by a racing attempt beside the one on record with the same mark (narrowed, section 11)"
UNKNOWABLE = "jobs left alive in the open window: their id is lost and nothing can be looked up (section 11)"
LATE_CANCEL = "cancels by a replaced attempt of a job that had ended before"
REPEATED = "repeats of a sweep's cancel that had failed before the attempt was replaced (section 8)"
LATE_SUBMIT = "submits of a replaced attempt after its id was on record, answered with the existing job"
LOST_CLEAR = "clears of a running task that its worker could not answer: the next try reconnects"
UNASKED = "jobs left when a stop could not ask the server, or cancel, within its two seconds (section 6)"
UNSTORED = "jobs whose id could not be stored, watched to their end (open window, on_store_down)"
LATE_RESULT = "XComs overwritten by a replaced attempt, stopped after its last write (Airflow fences no XCom)"
FORGOTTEN = "jobs that the service forgot"

_SAME_MOMENT = 0.005


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
    if not any(one.lines or one.passed or one.how for one in history.attempts.values()):
        verdict.violations.append("law 2: no attempt has run at all")
    excused = _excused(history)
    verdict.allowed.update(excused.values())
    _one_at_a_time(history, excused, verdict)
    _as_many_as_reasons(history, excused, verdict)
    _a_job_after_each_clear(history, verdict)
    _none_after_the_end(history, verdict)
    _success_is_the_current_jobs(history, verdict)
    _no_submit_after_the_id(history, excused, verdict)
    _no_cancel_without_reason(history, verdict)
    return verdict


def _excused(history: History) -> dict[str, str]:
    """Return the jobs that laws 1 and 2 excuse, by ``repr`` of their id, and each one's exception."""
    excused = {}
    for job in history.jobs:
        if job.forgotten:
            excused[repr(job.id)] = FORGOTTEN
        elif signs.was_taken_back(history, job):
            excused[repr(job.id)] = TAKEN_BACK
        elif signs.was_settled(history, job):
            excused[repr(job.id)] = SETTLED
        elif not signs.is_on_record(history, job) and any(
            signs.is_window(history, *sorted((job, other), key=_start))
            for other in history.jobs
            if other is not job
        ):
            excused[repr(job.id)] = IN_WINDOW
        elif signs.was_discarded(history, job):
            excused[repr(job.id)] = DISCARDED
        elif signs.is_unnamed(history, job):
            excused[repr(job.id)] = UNNAMED
        elif any(
            signs.is_stopping_unseen(history, job, other.submitted_at)
            for other in history.jobs
            if _overlap(job, other)
        ):
            excused[repr(job.id)] = STOPPING
    return excused


def _overlap(earlier: Job, later: Job) -> bool:
    starts_later = earlier.submitted_at < later.submitted_at
    return starts_later and (earlier.finished_at is None or earlier.finished_at > later.submitted_at)


def _start(job: Job) -> float:
    return job.submitted_at


def _one_at_a_time(history: History, excused: dict[str, str], verdict: Verdict) -> None:
    for earlier, later in combinations(sorted(history.jobs, key=_start), 2):
        if not _overlap(earlier, later):
            continue
        pair = {excused.get(repr(earlier.id)), excused.get(repr(later.id))}
        if (
            pair & {TAKEN_BACK, SETTLED}
            or excused.get(repr(earlier.id)) in (DISCARDED, UNNAMED)
            or excused.get(repr(earlier.id)) == STOPPING
            or signs.is_forgotten_before(history, earlier, later.submitted_at)
            or (IN_WINDOW in pair and signs.is_window(history, earlier, later))
        ):
            continue
        verdict.violations.append(f"law 1: {later.id} was started while {earlier.id} was alive")


def _as_many_as_reasons(history: History, excused: dict[str, str], verdict: Verdict) -> None:
    # A job that was forgotten, or discarded, counts: it was the first or a reason's.
    counted = [
        job
        for job in history.jobs
        if excused.get(repr(job.id)) not in (IN_WINDOW, TAKEN_BACK, SETTLED, UNNAMED)
    ]
    failures = sum(job.status == "FAILED" and signs.was_seen(history, job) for job in counted)
    if len(counted) > 1 + failures + len(history.clears):
        verdict.violations.append(
            f"law 2: {len(counted)} jobs started; 1 + {failures} failures + {len(history.clears)} clears is "
            "right"
        )


def _a_job_after_each_clear(history: History, verdict: Verdict) -> None:
    if not history.clears or history.by_user:
        return
    last_clear = max(history.clears)
    if any(job.submitted_at > last_clear and _began(history, job) > last_clear for job in history.jobs):
        return
    after = [one for one in history.attempts.values() if one.began > last_clear]
    if history.state == "success":
        if signs.lost_clear(history):
            verdict.allowed[LOST_CLEAR] += 1
        else:
            verdict.violations.append("law 2: success, and no job was started after the last clear")
    elif not after or after[-1].how in ("", "killed", "returned"):
        verdict.violations.append(
            f"law 2: {history.state} with no job after the last clear, and no attempt said why"
        )


def _began(history: History, job: Job) -> float:
    attempt = history.attempts.get(job.by)
    return attempt.began if attempt is not None else 0.0


def _none_after_the_end(history: History, verdict: Verdict) -> None:
    for job in history.jobs:
        if job.finished_at is not None or job.forgotten:
            continue
        if signs.was_discarded(history, job) or signs.is_unnamed(history, job):
            # Counted already.
            continue
        if signs.stop_was_helpless(history):
            verdict.allowed[UNASKED] += 1
        elif signs.is_unknowable(history, job):
            verdict.allowed[UNKNOWABLE] += 1
        elif signs.was_raced(history, job):
            verdict.allowed[RACED] += 1
        else:
            verdict.violations.append(f"law 3: {job.id} is {job.status} after the task's final end")


def _success_is_the_current_jobs(history: History, verdict: Verdict) -> None:
    if history.state != "success" or history.by_user:
        return
    current = (history.record or {}).get("external_id")
    job = next((one for one in history.jobs if one.id == current), None)
    if job is None or job.status != "SUCCEEDED":
        unstored = signs.unstored(history)
        if unstored is not None:
            verdict.allowed[UNSTORED] += 1
        job = unstored or job
    if job is None or job.status != "SUCCEEDED":
        verdict.violations.append(f"law 4: success, but job {current!r} is {job and job.status}")
        return
    if job.submitted_at < max(history.clears, default=0.0) and not signs.lost_clear(history):
        verdict.violations.append(f"law 4: success by {job.id}, which was started before the last clear")
    value = next(
        (one.value for one in reversed(list(history.attempts.values())) if one.how == "returned"), None
    )
    if value is None or value == {"job": job.id}:
        return
    if signs.is_late_result(history, value):
        verdict.allowed[LATE_RESULT] += 1
    else:
        verdict.violations.append(f"law 4: the result {value!r} is not that of job {job.id}")


def _no_submit_after_the_id(history: History, excused: dict[str, str], verdict: Verdict) -> None:
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
                continue
            if excused.get(repr(request["job"])) in (TAKEN_BACK, SETTLED, IN_WINDOW):
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
        what = f"law 5: try {attempt.try_number} ({attempt.hit or 'nothing befell it'}) cancelled "
        if job is None:
            verdict.violations.append(f"{what}{request['job']}, which was never started")
            continue
        if signs.was_taken_back(history, job) and attempt.try_number == job.by:
            continue
        if attempt.replaced_at is not None and attempt.replaced_at < request["at"] and attempt.hit != "clear":
            if job.finished_at is not None and job.finished_at < request["at"]:
                verdict.allowed[LATE_CANCEL] += 1
            elif signs.is_repeat(history, attempt, job):
                verdict.allowed[REPEATED] += 1
            else:
                verdict.violations.append(f"{what}{request['job']}, though superseded")
        elif not _has_a_reason(history, attempt, job, request["at"]):
            verdict.violations.append(f"{what}{request['job']} without a user's wish")


def _has_a_reason(history: History, attempt: Attempt, job: Job, at: float) -> bool:
    wishes = [*history.clears, *(marked for marked, _ in history.marks)]
    if any(job.submitted_at < wish < at for wish in wishes):
        return True
    # The stop came inside the submit: the attempt that was cleared or marked waits for its own job's id.
    told = signs.told_at(history, attempt)
    if job.by == attempt.try_number and told is not None and told < at:
        return True
    if signs.was_settled(history, job):
        return True
    return attempt.last and attempt.how != "returned" and (attempt.replaced_at or at) >= at
