# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the soak's laws excuse, and what they don't, on histories told by hand."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_resumable.testing.soak import laws
from airflow_resumable.testing.soak.history import Attempt, History, Job
from airflow_resumable.testing.soak.laws import judge
from airflow_resumable.testing.soak.schedule import Grade, Schedule


def attempt(number: int, began: float, ended: float, how: str = "returned", **more: Any) -> Attempt:
    told = Attempt(number, last=number > 2, began=began, ended=ended, how=how, **more)
    told.lines.append("it has begun")
    return told


def job(name: str, by: int, submitted: float, finished: float | None, status: str, mark: str = "m") -> Job:
    return Job(name, mark, status, submitted, finished, forgotten=False, by=by)


def request(verb: str, by: int, at: float, name: str | None = None, **more: Any) -> dict[str, Any]:
    row = {"verb": verb, "at": at, "client": f"a/b/c/-1/{by}", "job": name, "token": None}
    return {**row, "fault": None, "created": verb == "submit", **more}


def history(
    *attempts: Attempt,
    jobs: tuple[Job, ...] = (),
    requests: tuple[dict[str, Any], ...] = (),
    on_record: tuple[tuple[float, str, str], ...] = (),
    grade: Grade = "closed",
    discards: bool = False,
    state: str = "success",
    **more: Any,
) -> History:
    record = (
        {"external_id": on_record[-1][2], "ids": [name for _, _, name in on_record]} if on_record else None
    )
    return History(
        Schedule(0, grade, 2, (), discards=discards),
        list(jobs),
        list(requests),
        {one.try_number: one for one in attempts},
        ids=list(on_record),
        state=state,
        record=record,
        **more,
    )


def laws_broken(told: History) -> list[str]:
    return sorted({one.partition(":")[0] for one in judge(told).violations})


def doubled(status: str = "CANCELLED", finished: float | None = 4.0, **more: Any) -> dict[str, Any]:
    """Two racing attempts at a narrowed service: the first was stopped between lookup and submit."""
    jobs = (job("late", 1, 3.5, finished, status), job("ours", 2, 3, 5, "SUCCEEDED"))
    return {"jobs": jobs, "on_record": ((3.1, "m", "ours"),), "grade": "narrowed", **more}


STOPPED: dict[str, Any] = {"hit": "stop", "replaced_at": 2.0}


def test_a_job_in_the_window_must_end() -> None:
    """The window excuses that it was started; law 3 is asked all the same."""
    racing = attempt(1, 1, 4, "JobSuperseded", **STOPPED), attempt(2, 2, 6)
    ended = history(*racing, **doubled("SUCCEEDED", 4.5))
    assert laws_broken(ended) == []
    assert judge(ended).allowed == {laws.IN_WINDOW: 1}
    assert laws_broken(history(*racing, **doubled("RUNNING", None))) == ["law 3"]


def test_a_second_submit_that_a_lookup_could_have_spared_is_in_no_window() -> None:
    """The late attempt has asked again, after the other's job was there."""
    racing = attempt(1, 1, 4, "JobSuperseded", **STOPPED), attempt(2, 2, 6)
    told = history(*racing, **doubled("SUCCEEDED", 4.5), requests=(request("find", 1, 3.3),))
    assert "law 1" in laws_broken(told)


@pytest.mark.parametrize("own", [True, False])
def test_only_its_own_attempt_takes_a_job_back(own: bool) -> None:
    """Section 5.0 lets a fenced attempt delete exactly what it has created; nobody else may."""
    fenced, newer = attempt(1, 1, 4, "JobSuperseded", **STOPPED), attempt(2, 2, 6)
    cancel = request("cancel", 1 if own else 2, 3.8, "late")
    told = history(fenced, newer, **{**doubled(), "grade": "closed"}, requests=(cancel,))
    assert laws_broken(told) == ([] if own else ["law 1", "law 2", "law 5"])
    assert judge(told).allowed == ({laws.TAKEN_BACK: 1} if own else {})


def test_what_a_successor_has_adopted_is_not_taken_back() -> None:
    """Once its id is on record the job is another's."""
    fenced, newer = attempt(1, 1, 4, "JobSuperseded", **STOPPED), attempt(2, 2, 6)
    told = history(
        fenced,
        newer,
        jobs=(job("late", 1, 2.5, 4, "CANCELLED"), job("ours", 2, 4.5, 5, "SUCCEEDED", "n")),
        on_record=((3.0, "m", "late"), (4.6, "n", "ours")),
        requests=(request("cancel", 1, 3.8, "late"),),
    )
    assert "law 5" in laws_broken(told)


def cleared(cancelled: str, at: float = 4.5) -> History:
    """A clear of a running task; its attempt cancels a job a little too late."""
    first = attempt(1, 1, 5, "JobKept", hit="clear", replaced_at=2.0)
    return history(
        first,
        attempt(2, 3, 6),
        jobs=(job("old", 1, 1.5, 2.5, "CANCELLED"), job("new", 2, 4, 6, "SUCCEEDED", "n")),
        on_record=((1.6, "m", "old"), (4.1, "n", "new")),
        requests=(request("cancel", 1, at, cancelled),),
        clears=[2.0],
    )


def test_a_clear_lets_cancel_only_what_came_before_it() -> None:
    """The stop of a cleared attempt that reaches the next generation's job is a violation."""
    assert laws_broken(cleared("old", 2.2)) == []
    assert laws_broken(cleared("new")) == ["law 5"]


@pytest.mark.parametrize(
    ("lines", "broken"),
    [
        ([], ["law 3"]),
        (["this attempt is being stopped (infrastructure): job is kept"], ["law 3"]),
        (
            [
                "this attempt is being stopped (infrastructure): job is kept",
                "ConnectError: x (told to stop; going on without an answer)",
            ],
            [],
        ),
        (["this attempt is being stopped (user): job was NOT cancelled (within 1.9 s)"], []),
    ],
)
def test_a_job_left_by_a_stop_needs_the_stops_own_words(lines: list[str], broken: list[str]) -> None:
    """That nothing was said excuses nothing."""
    marked = attempt(1, 1, 5, "JobKept", hit="mark_failed")
    marked.lines += lines
    told = history(
        marked,
        jobs=(job("old", 1, 1.5, None, "RUNNING"),),
        on_record=((1.6, "m", "old"),),
        marks=[(2.0, "failed")],
        by_user=True,
        state="failed",
    )
    assert laws_broken(told) == broken


@pytest.mark.parametrize(("words", "broken"), [("", ["law 2", "law 4"]), ("nothing to cancel", [])])
def test_a_success_after_a_clear_needs_a_job_after_it(words: str, broken: list[str]) -> None:
    """But for a clear that its worker, by its own words, could not answer."""
    first = attempt(1, 1, 3, "JobKept", hit="clear", replaced_at=2.0)
    first.lines.append(words)
    told = history(
        first,
        attempt(2, 3, 6),
        jobs=(job("old", 1, 1.5, 5, "SUCCEEDED"),),
        on_record=((1.6, "m", "old"),),
        clears=[2.0],
    )
    assert laws_broken(told) == broken
    told.schedule = Schedule(0, "closed", 2, (), discards=True)
    assert "law 2" in laws_broken(told)


def test_a_history_without_attempts_is_no_success() -> None:
    """A harness that starts nothing breaks no other law."""
    assert laws_broken(history(state="failed")) == ["law 2"]
