# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo's exit status hangs on, and which cases it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_resumable.cli.demo.cases import (
    BEFORE_ID,
    CLEAR_DONE,
    CLEAR_LIVE,
    FORGOTTEN,
    MARK_FAILED,
    MID_POLL,
    SPLIT,
    TIME_OUT,
    Case,
    Outcome,
    Side,
    breaches,
    breaches_of_all,
    choose,
)
from airflow_resumable.cli.demo.local import CASES
from airflow_resumable.cli.demo.spark import CASES as SPARK_CASES

RIGHT = Outcome(jobs=1, submits=1, cancels=0, state="success")
WINDOW = replace(BEFORE_ID, window=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_case_states_is_right(case: Case) -> None:
    """What the case itself states breaches nothing."""
    right = Outcome(jobs=case.jobs, submits=case.jobs, cancels=case.cancels, state=case.state)
    assert breaches(case, right) == []


@pytest.mark.parametrize(
    ("case", "ours", "complaint"),
    [
        (CLEAR_DONE, RIGHT, "clear-done: 1 job started, 2 is right"),
        (CLEAR_LIVE, Outcome(2, 2, 0, "success"), "clear-live: 0 cancel requests, 1 is right"),
        (MARK_FAILED, Outcome(1, 1, 1, "success"), "mark-fail: the task's end state is 'success', 'failed'"),
        (TIME_OUT, Outcome(1, 1, 1, "success"), "time-out: 1 cancel request, none is right"),
        (SPLIT, Outcome(1, 2, 0, "success"), "split: 2 submit requests, 1 is right once"),
        (FORGOTTEN, Outcome(2, 2, 0, "failed"), "forgotten: 2 jobs started, 1 is right"),
    ],
)
def test_each_case_states_what_is_right(case: Case, ours: Outcome, complaint: str) -> None:
    """A job too few is as wrong as one too many, and a missing cancel as one that nobody wanted."""
    assert breaches(case, ours)[0].startswith(complaint)


@pytest.mark.parametrize(
    ("case", "ours", "complaint"),
    [
        (MID_POLL, replace(RIGHT, jobs=2), "mid-poll: 2 jobs started, 1 is right"),
        (MID_POLL, replace(RIGHT, jobs=0), "mid-poll: 0 jobs started, 1 is right"),
        (MID_POLL, replace(RIGHT, state="failed"), "mid-poll: the task's end state is 'failed'"),
        (MID_POLL, replace(RIGHT, state="running"), "mid-poll: the task's end state is 'running'"),
        (MID_POLL, replace(RIGHT, cancels=1), "mid-poll: 1 cancel request, none is right"),
        (MID_POLL, replace(RIGHT, submits=2), "mid-poll: 2 submit requests, 1 is right once"),
        (BEFORE_ID, replace(RIGHT, jobs=2), "before-id: 2 jobs started, 1 is right"),
        (WINDOW, replace(RIGHT, jobs=3), "before-id: 3 jobs started, 2 is right"),
        (WINDOW, replace(RIGHT, state="failed"), "before-id: the task's end state is 'failed'"),
    ],
)
def test_anything_else_is_a_breach_that_names_the_case(case: Case, ours: Outcome, complaint: str) -> None:
    """A second job, a lost one, a further submit, a cancel or another end state than success."""
    (found,) = breaches(case, ours)

    assert found.startswith(complaint)


@pytest.mark.parametrize(
    ("case", "ours"), [(BEFORE_ID, replace(RIGHT, submits=2)), (WINDOW, replace(RIGHT, jobs=2, submits=2))]
)
def test_what_the_law_allows_is_no_breach(case: Case, ours: Outcome) -> None:
    """With a token another request before the id is on record is harmless; in the window there may be two."""
    assert breaches(case, ours) == []


def test_the_stock_side_is_reported_and_never_judged() -> None:
    """Two stock jobs, a cancel and a failed task change nothing."""
    bad = Outcome(jobs=2, submits=2, cancels=1, state="failed")
    outcomes: dict[tuple[str, Side], Outcome] = {("mid-poll", "stock"): bad, ("mid-poll", "ours"): RIGHT}

    assert breaches_of_all([MID_POLL], outcomes) == []


@pytest.mark.parametrize("side", ["stock", "ours"])
def test_what_did_not_happen_shows_nothing(side: Side) -> None:
    """A side that was never killed looks right, so it is a breach whichever side it is."""
    outcomes: dict[tuple[str, Side], Outcome] = {("mid-poll", "stock"): RIGHT, ("mid-poll", "ours"): RIGHT}
    outcomes["mid-poll", side] = replace(RIGHT, befell=False)

    assert breaches_of_all([MID_POLL], outcomes) == [
        f"mid-poll: it did not happen to {side}, so nothing is shown"
    ]


def test_both_systems_have_the_first_six_cases() -> None:
    """Spark leaves a window, which a service with tokens closes; the other six run on one system."""
    assert [case.name for case in CASES][:6] == [case.name for case in SPARK_CASES]
    assert len(CASES) == 12
    assert [case.name for case in CASES if case.window] == []
    assert [case.name for case in SPARK_CASES if case.window] == ["before-id", "lost-reply"]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (None, [case.name for case in CASES]),
        (["sigterm"], ["sigterm"]),
        (["sigterm,before-id"], ["before-id", "sigterm"]),
        (["sigterm", "before-id,", "sigterm"], ["before-id", "sigterm"]),
    ],
)
def test_cases_are_chosen_by_name(names: list[str] | None, chosen: list[str]) -> None:
    """All of them by default; spaces and commas may stand between names, and the order is the table's."""
    assert [case.name for case in choose(CASES, names)] == chosen


@pytest.mark.parametrize(
    ("names", "complaint"), [(["mid-pole"], "no case is called 'mid-pole'"), ([","], "no case")]
)
def test_an_unknown_case_is_refused_with_all_names(names: list[str], complaint: str) -> None:
    """The message names the word and every case there is."""
    with pytest.raises(ValueError, match=complaint) as refused:
        choose(CASES, names)

    assert str(refused.value).endswith(
        "the cases are before-id, mid-poll, supervisor, sigterm, lost-reply, status-503, clear-done, "
        "clear-live, mark-fail, time-out, split, forgotten"
    )
