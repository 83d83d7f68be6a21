# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The decision's table: what is known, and the one thing that follows from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_resumable.jobs import decision as d
from airflow_resumable.jobs import steps
from airflow_resumable.jobs.adapter import Capabilities, FoundJob, Observation, SubmitWindow
from airflow_resumable.jobs.policies import ResumePolicy, configured
from airflow_resumable.jobs.record import JobRecord, Owner
from airflow_resumable.jobs.token import TokenMint

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
MINT = TokenMint("here", "dag", "run", "task", -1, NOW - timedelta(hours=1))
OPEN = Capabilities()
CLOSED = Capabilities(SubmitWindow.CLOSED, True, True, True, True)


def owner(try_number: int = 2) -> Owner:
    return Owner(try_number=try_number, started_at=NOW, ti_id=f"ti-{try_number}")


def facts(**changes: Any) -> d.Facts:
    """Second try of a task with two retries, nothing on record."""
    base = d.Facts(
        owner=owner(),
        max_tries=2,
        retries=2,
        mint=MINT,
        spec="spec",
        policy=ResumePolicy().filled(configured()),
        can=CLOSED,
        now=NOW,
        run_started=NOW - timedelta(hours=1),
    )
    return replace(base, **changes)


def record(**changes: Any) -> JobRecord:
    """Generation 1, submitted by the first try."""
    base = JobRecord(
        generation=1,
        token=MINT.token(2, 1),
        phase="submitted",
        external_id="j1",
        ids=("j1",),
        spec="spec",
        max_tries=2,
        owner=owner(1),
        intent_at=NOW - timedelta(minutes=30),
    )
    return base.with_(**changes)


def intent(**changes: Any) -> JobRecord:
    return record(phase="intent", external_id=None, ids=(), **changes)


def seen(what: Observation, job: Any = "j1") -> dict[str, Observation]:
    return {repr(job): what}


def found(status: Observation, job: str = "j1", token: str | None = None) -> tuple[FoundJob, Observation]:
    return FoundJob(job, "", token=token or MINT.token(2, 1)), status


def policy(**changes: Any) -> ResumePolicy:
    return ResumePolicy(**changes).filled(configured())


@pytest.mark.parametrize(
    ("known", "step"),
    [
        # Fence
        ({"record": record(owner=owner(3))}, steps.Stand),
        ({"record": record(owner=owner(3)), "foreign_id": "j9"}, steps.Stand),
        # Foreign id
        ({"foreign_id": "j9"}, steps.Import),
        ({"foreign_id": 0}, steps.Import),
        ({"record": record(), "foreign_id": "j9"}, steps.Import),
        ({"record": record(), "foreign_id": "j1"}, steps.AskStatus),
        ({"record": intent().with_(ids=("j1",)), "foreign_id": "j1"}, steps.Import),
        # Cleared
        ({"record": record(), "max_tries": 3}, steps.Sweep),
        ({"record": record(reported=True)}, steps.Sweep),
        ({"record": record(phase="succeeded"), "max_tries": 3, "swept": ()}, steps.Submit),
        ({"record": record(), "max_tries": 3, "swept": ("j1",)}, steps.Fail),
        ({"record": record(), "max_tries": 3, "policy": policy(on_clear="reconnect")}, steps.AskStatus),
        # No record
        ({"owner": owner(1)}, steps.Submit),
        ({}, steps.LookUpFamily),
        ({"owner": owner(1), "max_tries": 3}, steps.LookUpFamily),
        ({"can": OPEN}, steps.Submit),
        ({"by_family": ()}, steps.Submit),
        ({"by_family": (found(Observation.ACTIVE),)}, steps.Adopt),
        ({"by_family": (found(Observation.ACTIVE), found(Observation.ACTIVE, "j2"))}, steps.Fail),
        ({"by_family": (found(Observation.SUCCEEDED),)}, steps.Adopt),
        ({"by_family": (found(Observation.SUCCEEDED, token=MINT.token(1, 1)),)}, steps.Submit),
        # Intent without id
        ({"record": intent()}, steps.LookUpToken),
        ({"record": intent(), "can": OPEN}, steps.Submit),
        ({"record": intent(), "by_token": ()}, steps.Submit),
        ({"record": intent(), "by_token": (found(Observation.FAILED),)}, steps.Adopt),
        (
            {"record": intent(), "by_token": (found(Observation.ACTIVE), found(Observation.ACTIVE, "j2"))},
            steps.Fail,
        ),
        # Id on record
        ({"record": record()}, steps.AskStatus),
        ({"record": record(external_id=0, ids=(0,))}, steps.AskStatus),
        ({"record": record(phase="succeeded")}, steps.Finish),
        ({"record": record(phase="failed")}, steps.Submit),
        ({"record": record(phase="cancelled")}, steps.Submit),
        ({"record": record(), "observed": seen(Observation.ACTIVE)}, steps.Watch),
        ({"record": record(), "observed": seen(Observation.UNKNOWN)}, steps.Watch),
        ({"record": record(), "observed": seen(Observation.SUCCEEDED)}, steps.Finish),
        ({"record": record(), "observed": seen(Observation.FAILED)}, steps.Submit),
        ({"record": record(), "observed": seen(Observation.STOPPING)}, steps.Settle),
        ({"record": record(), "observed": seen(Observation.MISSING)}, steps.Fail),
        (
            {
                "record": record(),
                "observed": seen(Observation.MISSING),
                "policy": policy(on_missing="resubmit"),
            },
            steps.Submit,
        ),
        # A changed job
        ({"record": record(), "observed": seen(Observation.ACTIVE), "spec": "other"}, steps.Watch),
        (
            {
                "record": record(),
                "observed": seen(Observation.ACTIVE),
                "spec": "other",
                "policy": policy(on_change="resubmit"),
            },
            steps.Sweep,
        ),
    ],
)
def test_first_match_wins(known: dict[str, Any], step: type[steps.Step]) -> None:
    """Section 5 of the protocol, row by row."""
    assert type(d.decide(facts(**known))) is step


@pytest.mark.parametrize("order", [1, -1])
def test_the_running_job_is_taken_whatever_the_order_of_the_list(order: int) -> None:
    """Case 4: an older failed job and a newer running one carry the token."""
    pair = (found(Observation.FAILED, "old"), found(Observation.ACTIVE, "new"))[::order]
    step = d.decide(facts(record=intent(), by_token=pair))
    assert isinstance(step, steps.Adopt)
    assert step.found.external_id == "new"


def test_two_live_jobs_are_named_and_nothing_is_chosen() -> None:
    """Case 11's kind: a person has to choose."""
    pair = (found(Observation.ACTIVE, "one"), found(Observation.ACTIVE, "two"))
    step = d.decide(facts(record=intent(), by_token=pair))
    assert isinstance(step, steps.Fail)
    assert step.error == "JobAmbiguous"
    assert "'one'" in step.reason
    assert "'two'" in step.reason


def test_a_lost_intent_is_submitted_with_the_same_token() -> None:
    """The token is on record; it is never derived again."""
    step = d.decide(facts(record=intent(token="r" + "0" * 32), by_token=()))
    assert isinstance(step, steps.Submit)
    assert (step.token, step.same_token, step.generation) == ("r" + "0" * 32, True, 1)


def test_an_intent_that_outlived_the_services_memory_is_missing() -> None:
    """Nobody can say whether its job was started."""
    forgetful = replace(CLOSED, token_memory=timedelta(minutes=5))
    step = d.decide(facts(record=intent(), by_token=(), can=forgetful))
    assert isinstance(step, steps.Fail)
    assert step.error == "JobMissing"


def test_a_failed_generation_is_followed_by_the_next_with_a_new_token() -> None:
    """A fixed token would return the failed job for ever (case 8)."""
    step = d.decide(facts(record=record(phase="failed")))
    assert isinstance(step, steps.Submit)
    assert step.generation == 2
    assert step.token == MINT.token(2, 2) != MINT.token(2, 1)
    assert not step.same_token


def test_the_parents_key_written_before_a_crash_is_the_same_generation() -> None:
    """The parent's key got through, the record's id did not."""
    step = d.decide(facts(record=intent(), foreign_id="j1"))
    assert isinstance(step, steps.Import)
    assert step.generation == 1


def test_a_job_that_the_parent_started_itself_is_another_generation() -> None:
    """The run went to the stock operator and back."""
    step = d.decide(facts(record=record(), foreign_id="j9"))
    assert isinstance(step, steps.Import)
    assert step.generation == 2


def test_a_clear_between_the_stock_operator_and_ours_is_seen() -> None:
    """First try of a new sequence, and only the parent's key: its job belongs to the cleared past."""
    imported = d.decide(facts(foreign_id="j9", owner=owner(2), max_tries=2, retries=1))
    assert isinstance(imported, steps.Import)
    after = record(external_id="j9", ids=("j9",), max_tries=imported.max_tries)
    assert isinstance(d.decide(facts(record=after, foreign_id="j9", max_tries=2, retries=1)), steps.Sweep)


def test_a_live_job_of_tries_before_a_clear_is_put_on_record_as_cleared() -> None:
    """Its record was discarded: the cleared rule, and none but it, decides what becomes of the job."""
    old = (found(Observation.ACTIVE),)
    step = d.decide(facts(max_tries=3, by_family=old))
    assert isinstance(step, steps.Adopt)
    adopted = record(token=step.token, max_tries=step.max_tries)
    assert step.token == MINT.token(2, 1)
    assert isinstance(d.decide(facts(max_tries=3, by_family=old, record=adopted)), steps.Sweep)


@pytest.mark.parametrize(
    "known",
    [
        {"policy": policy(on_clear="reconnect")},
        {"max_tries": 2},
        {"by_family": ((FoundJob("j1", "", token=None), Observation.ACTIVE),)},
    ],
)
def test_a_live_job_that_is_not_surely_of_an_earlier_sequence_is_gone_on_with(known: dict[str, Any]) -> None:
    """One to reconnect to, one of these tries, one without a mark."""
    step = d.decide(facts(**{"max_tries": 3, "by_family": (found(Observation.ACTIVE),), **known}))
    assert isinstance(step, steps.Adopt)
    assert step.max_tries is None


def test_without_an_installation_id_a_cleared_tasks_unrecorded_job_is_waited_for() -> None:
    """It may be another installation's, so nothing is cancelled, and nothing submitted beside it."""
    known = {
        "max_tries": 3,
        "by_family": (found(Observation.ACTIVE),),
        "mint": replace(MINT, installation=""),
    }
    step = d.decide(facts(**known))
    assert isinstance(step, steps.Sweep)
    assert not step.cancels
    assert isinstance(d.decide(facts(**known, swept=())), steps.Submit)
    alive = d.decide(facts(**known, swept=("j1",)))
    assert isinstance(alive, steps.Fail)
    assert alive.error == "JobNotCancelled"


def test_without_an_installation_id_a_clear_sweeps_by_id_and_token_only() -> None:
    """Nothing is ever cancelled on the strength of a family match alone."""
    anonymous = facts(record=record(), max_tries=3, mint=replace(MINT, installation=""))
    step = d.decide(anonymous)
    assert isinstance(step, steps.Sweep)
    assert not step.whole_family
    named = d.decide(facts(record=record(), max_tries=3))
    assert isinstance(named, steps.Sweep)
    assert named.whole_family


def test_lookups_start_a_little_before_the_run() -> None:
    """The intent is dated by a worker's clock, which may be hours ahead; the run by the server's."""
    step = d.decide(facts(record=intent()))
    assert isinstance(step, steps.LookUpToken)
    assert step.since == NOW - timedelta(hours=1) - d.LOOKUP_SKEW


@pytest.mark.parametrize("phase", ["intent", "submitted", "succeeded", "failed", "cancelled"])
@pytest.mark.parametrize("observation", [None, *Observation])
@pytest.mark.parametrize("can", [OPEN, CLOSED])
@pytest.mark.parametrize("max_tries", [2, 3])
def test_every_combination_has_an_answer_and_no_submit_while_a_job_lives(
    phase: Any, observation: Observation | None, can: Capabilities, max_tries: int
) -> None:
    """The decision is total, and a submit never follows from a live job on record."""
    on_record = intent() if phase == "intent" else record(phase=phase)
    observed = {} if observation is None else seen(observation)
    step = d.decide(facts(record=on_record, observed=observed, can=can, max_tries=max_tries))
    assert isinstance(step, steps.Step)
    assert step.reason
    if phase == "submitted" and observation is not Observation.FAILED:
        assert not isinstance(step, steps.Submit)
