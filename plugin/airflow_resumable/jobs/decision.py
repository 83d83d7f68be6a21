# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What an attempt does next. Pure: no I/O, no clock of its own, no Airflow import.

`decide` is called with what is known so far. Where that isn't enough it answers with a question
(`AskStatus`, `LookUpToken`, `LookUpFamily`, `Sweep`, `Settle`); the attempt carries it out, adds the
answer to the facts and asks again. The order is section 5 of the job protocol: first match wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs.adapter import Capabilities, FoundJob, Observation, SubmitWindow
from airflow_resumable.jobs.record import ANY_OTHER
from airflow_resumable.jobs.steps import (
    Adopt,
    AskStatus,
    Fail,
    Finish,
    Import,
    LookUpFamily,
    LookUpToken,
    Settle,
    Stand,
    Step,
    Submit,
    Sweep,
    Watch,
)

if TYPE_CHECKING:
    from airflow_resumable.jobs.policies import ResumePolicy
    from airflow_resumable.jobs.record import JobRecord, Owner
    from airflow_resumable.jobs.token import TokenMint

LOOKUP_SKEW = timedelta(minutes=5)
"""How far a worker's clock may run ahead of the service's before a lookup misses a job."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the decision may look at.

    Args:
        owner: This attempt.
        max_tries, retries: The task instance's `max_tries` now, and the task's `retries`: a user's clear
            makes it ``try_number + retries``, an automatic retry leaves it alone.
        mint, spec, policy, can, now: Tokens, hash of the rendered job, policies, the adapter's abilities,
            the attempt's clock.
        run_started: Start date of the Dag run: no job of this run is older.
        record: The job record, or None.
        foreign_id: The value under the parent operator's key, as an external id, or None.
        observed: What was seen of an id, keyed by its JSON text.
        by_token, by_family: Answers of lookups, None while they were not asked.
        swept: Ids that a `Sweep` left alive; None while it was not carried out.
    """

    owner: Owner
    max_tries: int
    retries: int
    mint: TokenMint
    spec: str
    policy: ResumePolicy
    can: Capabilities
    now: datetime
    run_started: datetime | None = None
    record: JobRecord | None = None
    foreign_id: Any = None
    observed: Mapping[str, Observation] = field(default_factory=dict)
    by_token: tuple[tuple[FoundJob, Observation], ...] | None = None
    by_family: tuple[tuple[FoundJob, Observation], ...] | None = None
    swept: tuple[Any, ...] | None = None

    @property
    def first_of_sequence(self) -> bool:
        """Whether this try is the first since the task instance was made or cleared."""
        return self.owner.try_number == self.max_tries - self.retries + 1

    @property
    def plainly_first(self) -> bool:
        """Whether no earlier attempt can have existed."""
        return self.owner.try_number <= 1 and self.first_of_sequence

    def seen(self, external_id: Any) -> Observation | None:
        """What was seen of an id, or None."""
        return self.observed.get(repr(external_id))


def decide(facts: Facts) -> Step:
    """Return the next step of an attempt."""
    record = facts.record
    if record is not None and record.owner.is_newer_than(facts.owner):
        return Stand(
            f"try {record.owner.try_number}, started {record.owner.started_at.isoformat()}, owns the record"
        )
    # The key was empty when an intent was written, so what stands there since is that intent's job, even
    # where a service gives the same id again.
    if facts.foreign_id is not None and (
        record is None or record.phase == "intent" or not record.knows(facts.foreign_id)
    ):
        return _import(facts)
    if record is None:
        return _without_record(facts)
    if was_cleared(facts, record) and facts.policy.on_clear == "resubmit":
        return _after_clear(facts, record)
    if record.phase == "intent":
        return _with_intent(facts, record)
    return _with_id(facts, record)


def was_cleared(facts: Facts, record: JobRecord) -> bool:
    """Say whether a user has cleared the task since the record's intent was written."""
    # A clear is followed by a higher try number; a try that was started twice has the same one. A sweep has
    # put this attempt's own number on record.
    later = facts.swept is not None or facts.owner.try_number > record.owner.try_number
    reported = record.reported and later
    return reported or record.max_tries != facts.max_tries


def search_from(facts: Facts) -> datetime:
    """Return the moment from which lookups search: no job of this run is older."""
    # The run's start is by the server's clock, the intent by a worker's; and a cleared run has a later
    # start than the jobs that its record knows of.
    starts = [facts.run_started or facts.now - timedelta(days=1)]
    if facts.record is not None:
        starts.append(facts.record.intent_at)
    return min(starts) - LOOKUP_SKEW


def _submit(facts: Facts, generation: int, reason: str) -> Submit:
    return Submit(reason, generation, facts.mint.token(facts.max_tries, generation))


def _import(facts: Facts) -> Import:
    record = facts.record
    if record is None:
        # A first try of a later sequence with a parent's id means that a user cleared since; the
        # impossible max_tries makes the cleared rule see that.
        cleared = facts.first_of_sequence and facts.owner.try_number > 1
        known = -1 if cleared else facts.max_tries
        return Import(
            "the parent operator's key holds a job and there is no record", facts.foreign_id, 1, known
        )
    # An intent without id whose key write got through is the same generation; anything else was
    # started by the parent operator itself.
    generation = record.generation if record.phase == "intent" else record.generation + 1
    return Import(
        "the parent operator's key holds a job that is not on record",
        facts.foreign_id,
        generation,
        record.max_tries,
    )


def _after_clear(facts: Facts, record: JobRecord) -> Step:
    if facts.swept is None:
        return Sweep(
            f"cleared since generation {record.generation} was started",
            record.ids,
            (record.token, *record.unsettled),
            search_from(facts),
            whole_family=facts.can.find_by_family and bool(facts.mint.installation),
        )
    if facts.swept:
        return Fail(
            f"cleared, and {_names(facts.swept)} of an earlier generation could not be cancelled: stop it in "
            "the service (or set on_clear=reconnect to go on with it), then clear the task again",
            "JobNotCancelled",
            facts.swept[0],
        )
    return _submit(
        facts, record.generation + 1, "cleared by a user; nothing of the earlier generations is alive"
    )


def _without_record(facts: Facts) -> Step:
    if facts.plainly_first:
        return _submit(facts, 1, "first try, nothing on record")
    if not facts.can.find_by_family:
        return _submit(facts, 1, "nothing on record, and this service can't be searched")
    if facts.by_family is None:
        return LookUpFamily("nothing on record, but this isn't plainly the first try", search_from(facts))
    live = [found for found, seen in facts.by_family if seen.is_live]
    if len(live) > 1:
        return _ambiguous(live)
    if live:
        return _with_live_job_of_the_family(facts, live[0])
    # A finished job of another max_tries belongs to a sequence that a clear has ended.
    ours = [
        (number, found)
        for found, _ in facts.by_family
        if (number := _generation_of(facts, found)) is not None
    ]
    if not ours:
        return _submit(facts, 1, "nothing on record, and no job of this sequence of tries was found")
    generation, last = max(ours, key=lambda pair: pair[0])
    return Adopt(
        "a finished job of this sequence of tries was found",
        last,
        generation,
        facts.mint.token(facts.max_tries, generation),
    )


def _with_live_job_of_the_family(facts: Facts, found: FoundJob) -> Step:
    generation = _generation_of(facts, found)
    token = found.token or facts.mint.token(facts.max_tries, generation or 1)
    what = "a live job of this task instance was found"
    if generation is not None or found.token is None or facts.policy.on_clear != "resubmit":
        return Adopt(what, found, generation or 1, token)
    # Airflow 3.4's clear may discard the record of a job that goes on. Put on record with a max_tries that
    # can't be, it is cancelled by the cleared rule, and not before a write has shown that we may.
    what += ", started before a clear that has discarded its record"
    if facts.mint.installation:
        return Adopt(what, found, 1, token, max_tries=-1)
    # On the strength of a family alone nothing is cancelled; the attempt or trigger that had the job does it.
    if facts.swept is None:
        return Sweep(
            f"{what}; with no [resumable] installation_id it is waited for, not cancelled",
            (found.external_id,),
            (),
            search_from(facts),
            whole_family=False,
            cancels=False,
        )
    if facts.swept:
        return Fail(
            f"{what}, job {found.external_id!r}, and it goes on: stop it in the service and clear the task "
            "again; set [resumable] installation_id to have such a job cancelled, or on_clear=reconnect to "
            "go on with it",
            "JobNotCancelled",
            found.external_id,
        )
    return _submit(facts, 1, f"{what}, has ended")


def _generation_of(facts: Facts, found: FoundJob) -> int | None:
    return facts.mint.generation_of(found.token, facts.max_tries) if found.token else None


def _with_intent(facts: Facts, record: JobRecord) -> Step:
    if facts.can.find_by_token:
        if facts.by_token is None:
            return LookUpToken("an intent without an id is on record", record.token, search_from(facts))
        live = [found for found, seen in facts.by_token if seen.is_live]
        if len(live) > 1:
            return _ambiguous(live)
        # Of jobs that have ended, one that succeeded leaves nothing more to do.
        ended = [found for found, seen in facts.by_token if seen is Observation.SUCCEEDED]
        chosen = live or ended or [found for found, _ in facts.by_token]
        if chosen:
            return Adopt(
                "the job that the intent announced was found", chosen[0], record.generation, record.token
            )
    memory = facts.can.token_memory
    if memory is not None and facts.now - record.intent_at > memory:
        age = facts.now - record.intent_at
        return _missing(
            facts,
            record,
            f"the intent is {age} old, longer than the {memory} for which the service remembers a token, so "
            "nobody can say whether its job was started",
        )
    if record.unsettled and facts.can.find_by_token:
        if facts.swept is None:
            return _sweep_unsettled(facts, record)
        if facts.swept:
            return Fail(
                f"{_names(facts.swept)} was started by an attempt that a clear had overtaken, and goes on: "
                "stop it in the service; the next try starts the job then",
                "JobNotCancelled",
                facts.swept[0],
            )
    unsure = "" if facts.can.submit_window is SubmitWindow.CLOSED else f" (window {facts.can.submit_window})"
    return Submit(f"the intent's job was not found{unsure}", record.generation, record.token, same_token=True)


def _sweep_unsettled(facts: Facts, record: JobRecord) -> Sweep:
    anything = ANY_OTHER in record.unsettled
    return Sweep(
        "an attempt that a clear has overtaken may have submitted since",
        (),
        record.unsettled,
        search_from(facts),
        whole_family=anything and facts.can.find_by_family,
        # What is known by its family alone may be another installation's.
        cancels=not anything or bool(facts.mint.installation),
    )


def _with_id(facts: Facts, record: JobRecord) -> Step:
    job = record.external_id
    if record.phase == "succeeded":
        return Finish("the job on record had succeeded", job)
    if record.phase in ("failed", "cancelled"):
        return _submit(
            facts, record.generation + 1, f"generation {record.generation} is on record as {record.phase}"
        )
    match facts.seen(job):
        case None:
            return AskStatus("a job is on record", job)
        case Observation.SUCCEEDED:
            return Finish("the job succeeded while nobody watched", job)
        case Observation.FAILED:
            return _submit(
                facts, record.generation + 1, f"generation {record.generation} ended without success"
            )
        case Observation.MISSING:
            return _missing(facts, record, "the service no longer knows the job")
        case Observation.STOPPING:
            return Settle("the job is stopping", job)
        case _:
            return _with_live_job(facts, record)


def _with_live_job(facts: Facts, record: JobRecord) -> Step:
    if record.spec == facts.spec:
        return Watch("the job on record is active", record.external_id)
    change = f"the rendered job changed ({record.spec} on record, {facts.spec} now)"
    if facts.policy.on_change == "reconnect":
        return Watch(f"the job on record is active; {change}, on_change=reconnect", record.external_id)
    if facts.swept is None:
        return Sweep(change, record.ids, (), search_from(facts), whole_family=False)
    if facts.swept:
        return Fail(
            f"{change}, and {_names(facts.swept)} could not be cancelled", "JobNotCancelled", facts.swept[0]
        )
    return _submit(facts, record.generation + 1, f"{change}, on_change=resubmit")


def _missing(facts: Facts, record: JobRecord, what: str) -> Step:
    if facts.policy.on_missing == "resubmit":
        return _submit(facts, record.generation + 1, f"{what}; on_missing=resubmit")
    return Fail(
        f"{what} (job {record.external_id!r}, generation {record.generation}, token {record.token}, last "
        f"seen as {record.last_status!r} at {record.last_seen_at}); look for it in the service, then clear "
        "the task to start afresh, or set on_missing=resubmit",
        "JobMissing",
        record.external_id,
    )


def _ambiguous(live: list[FoundJob]) -> Fail:
    names = _names(tuple(found.external_id for found in live))
    return Fail(
        f"{names} are alive and carry the mark of this task instance: stop all but one in the service, then "
        "clear the task",
        "JobAmbiguous",
        live[0].external_id,
    )


def _names(ids: tuple[Any, ...]) -> str:
    return f"{'jobs' if len(ids) > 1 else 'job'} {', '.join(repr(one) for one in ids)}"
