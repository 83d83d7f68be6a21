# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The decision's table: what is known, and the one thing that follows from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_resumable.jobs import decision as d
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
        ({"record": record(owner=owner(3))}, d.Stand),
        ({"record": record(owner=owner(3)), "foreign_id": "j9"}, d.Stand),
        # Foreign id
        ({"foreign_id": "j9"}, d.Import),
        ({"foreign_id": 0}, d.Import),
        ({"record": record(), "foreign_id": "j9"}, d.Import),
        ({"record": record(), "foreign_id": "j1"}, d.AskStatus),
        ({"record": intent().with_(ids=("j1",)), "foreign_id": "j1"}, d.Import),
        # Cleared
        ({"record": record(), "max_tries": 3}, d.Sweep),
        ({"record": record(reported=True)}, d.Sweep),
        ({"record": record(phase="succeeded"), "max_tries": 3, "swept": ()}, d.Submit),
        ({"record": record(), "max_tries": 3, "swept": ("j1",)}, d.Fail),
        ({"record": record(), "max_tries": 3, "policy": policy(on_clear="reconnect")}, d.AskStatus),
        # No record
        ({"owner": owner(1)}, d.Submit),
        ({}, d.LookUpFamily),
        ({"owner": owner(1), "max_tries": 3}, d.LookUpFamily),
        ({"can": OPEN}, d.Submit),
        ({"by_family": ()}, d.Submit),
        ({"by_family": (found(Observation.ACTIVE),)}, d.Adopt),
        ({"by_family": (found(Observation.ACTIVE), found(Observation.ACTIVE, "j2"))}, d.Fail),
        ({"by_family": (found(Observation.SUCCEEDED),)}, d.Adopt),
        ({"by_family": (found(Observation.SUCCEEDED, token=MINT.token(1, 1)),)}, d.Submit),
        # Intent without id
        ({"record": intent()}, d.LookUpToken),
        ({"record": intent(), "can": OPEN}, d.Submit),
        ({"record": intent(), "by_token": ()}, d.Submit),
        ({"record": intent(), "by_token": (found(Observation.FAILED),)}, d.Adopt),
        (
            {"record": intent(), "by_token": (found(Observation.ACTIVE), found(Observation.ACTIVE, "j2"))},
            d.Fail,
        ),
        # Id on record
        ({"record": record()}, d.AskStatus),
        ({"record": record(external_id=0, ids=(0,))}, d.AskStatus),
        ({"record": record(phase="succeeded")}, d.Finish),
        ({"record": record(phase="failed")}, d.Submit),
        ({"record": record(phase="cancelled")}, d.Submit),
        ({"record": record(), "observed": seen(Observation.ACTIVE)}, d.Watch),
        ({"record": record(), "observed": seen(Observation.UNKNOWN)}, d.Watch),
        ({"record": record(), "observed": seen(Observation.SUCCEEDED)}, d.Finish),
        ({"record": record(), "observed": seen(Observation.FAILED)}, d.Submit),
        ({"record": record(), "observed": seen(Observation.STOPPING)}, d.Settle),
        ({"record": record(), "observed": seen(Observation.MISSING)}, d.Fail),
        (
            {
                "record": record(),
                "observed": seen(Observation.MISSING),
                "policy": policy(on_missing="resubmit"),
            },
            d.Submit,
        ),
        # A changed job
        ({"record": record(), "observed": seen(Observation.ACTIVE), "spec": "other"}, d.Watch),
        (
            {
                "record": record(),
                "observed": seen(Observation.ACTIVE),
                "spec": "other",
                "policy": policy(on_change="resubmit"),
            },
            d.Sweep,
        ),
    ],
)
def test_first_match_wins(known: dict[str, Any], step: type[d.Step]) -> None:
    """Section 5 of the protocol, row by row."""
    assert type(d.decide(facts(**known))) is step


@pytest.mark.parametrize("order", [1, -1])
def test_the_running_job_is_taken_whatever_the_order_of_the_list(order: int) -> None:
    """Case 4: an older failed job and a newer running one carry the token."""
    pair = (found(Observation.FAILED, "old"), found(Observation.ACTIVE, "new"))[::order]
    step = d.decide(facts(record=intent(), by_token=pair))
    assert isinstance(step, d.Adopt)
    assert step.found.external_id == "new"


def test_two_live_jobs_are_named_and_nothing_is_chosen() -> None:
    """Case 11's kind: a person has to choose."""
    pair = (found(Observation.ACTIVE, "one"), found(Observation.ACTIVE, "two"))
    step = d.decide(facts(record=intent(), by_token=pair))
    assert isinstance(step, d.Fail)
    assert step.error == "JobAmbiguous"
    assert "'one'" in step.reason
    assert "'two'" in step.reason


def test_a_lost_intent_is_submitted_with_the_same_token() -> None:
    """The token is on record; it is never derived again."""
    step = d.decide(facts(record=intent(token="r" + "0" * 32), by_token=()))
    assert isinstance(step, d.Submit)
    assert (step.token, step.same_token, step.generation) == ("r" + "0" * 32, True, 1)


def test_an_intent_that_outlived_the_services_memory_is_missing() -> None:
    """Nobody can say whether its job was started."""
    forgetful = replace(CLOSED, token_memory=timedelta(minutes=5))
    step = d.decide(facts(record=intent(), by_token=(), can=forgetful))
    assert isinstance(step, d.Fail)
    assert step.error == "JobMissing"


def test_a_failed_generation_is_followed_by_the_next_with_a_new_token() -> None:
    """A fixed token would return the failed job for ever (case 8)."""
    step = d.decide(facts(record=record(phase="failed")))
    assert isinstance(step, d.Submit)
    assert step.generation == 2
    assert step.token == MINT.token(2, 2) != MINT.token(2, 1)
    assert not step.same_token


def test_the_parents_key_written_before_a_crash_is_the_same_generation() -> None:
    """The parent's key got through, the record's id did not."""
    step = d.decide(facts(record=intent(), foreign_id="j1"))
    assert isinstance(step, d.Import)
    assert step.generation == 1


def test_a_job_that_the_parent_started_itself_is_another_generation() -> None:
    """The run went to the stock operator and back."""
    step = d.decide(facts(record=record(), foreign_id="j9"))
    assert isinstance(step, d.Import)
    assert step.generation == 2


def test_a_clear_between_the_stock_operator_and_ours_is_seen() -> None:
    """First try of a new sequence, and only the parent's key: its job belongs to the cleared past."""
    imported = d.decide(facts(foreign_id="j9", owner=owner(2), max_tries=2, retries=1))
    assert isinstance(imported, d.Import)
    after = record(external_id="j9", ids=("j9",), max_tries=imported.max_tries)
    assert isinstance(d.decide(facts(record=after, foreign_id="j9", max_tries=2, retries=1)), d.Sweep)


def test_without_an_installation_id_a_clear_sweeps_by_id_and_token_only() -> None:
    """Nothing is ever cancelled on the strength of a family match alone."""
    anonymous = facts(record=record(), max_tries=3, mint=replace(MINT, installation=""))
    step = d.decide(anonymous)
    assert isinstance(step, d.Sweep)
    assert not step.whole_family
    named = d.decide(facts(record=record(), max_tries=3))
    assert isinstance(named, d.Sweep)
    assert named.whole_family


def test_lookups_start_a_little_before_the_run() -> None:
    """The intent is dated by a worker's clock, which may be hours ahead; the run by the server's."""
    step = d.decide(facts(record=intent()))
    assert isinstance(step, d.LookUpToken)
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
    assert isinstance(step, d.Step)
    assert step.reason
    if phase == "submitted" and observation is not Observation.FAILED:
        assert not isinstance(step, d.Submit)
