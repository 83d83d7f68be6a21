# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Each decision is told: to the log, to Airflow's metrics, to registered hooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.sdk import JobFailed, JobSuperseded, ResumeDecision, add_decision_hook
from airflow_resumable.testing.jobservice.process import JobService
from tests.attempts import FAIL, SUCCEED, TaskInstance, until_released


@pytest.fixture
def told() -> Iterator[list[ResumeDecision]]:
    """The decisions of the attempts that are made in this process."""
    decisions: list[ResumeDecision] = []
    remove = add_decision_hook(decisions.append)
    yield decisions
    remove()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What reaches Airflow's own counters."""
    counts: list[tuple[str, dict[str, Any]]] = []

    def incr(name: str, *, tags: dict[str, Any]) -> None:
        counts.append((name, tags))

    monkeypatch.setattr("airflow.sdk.observability.stats.incr", incr)
    return counts


def metrics(told: list[ResumeDecision]) -> list[str | None]:
    return [decision.metric for decision in told if decision.metric]


def test_a_first_submit_and_a_later_return(
    instance: TaskInstance, told: list[ResumeDecision], counted: list[tuple[str, dict[str, Any]]]
) -> None:
    """Under Airflow's own names, tagged with the operator alone."""
    instance.attempt()
    instance.attempt(try_number=2)
    assert metrics(told) == ["fresh_submit", "already_succeeded"]
    assert counted == [
        ("resumable_job.fresh_submit", {"operator": "LocalJobOperator"}),
        ("resumable_job.already_succeeded", {"operator": "LocalJobOperator"}),
    ]


def test_a_reconnect_is_an_attempt_and_a_success(
    instance: TaskInstance, tmp_path: Path, told: list[ResumeDecision]
) -> None:
    """The decision carries the job, its generation and token, and the attempt."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("mid_poll")
    gate.touch()
    instance.attempt(try_number=2)
    assert metrics(told)[0] == "reconnect_attempt"
    first = told[0]
    assert (first.dag_id, first.run_id, first.task_id, first.try_number) == ("dag", "run", "task", 2)
    assert (first.external_id, first.generation, first.token) == (
        instance.record["external_id"],
        1,
        instance.record["token"],
    )


def test_a_failed_job_is_followed_by_a_terminal_resubmit(
    instance: TaskInstance, told: list[ResumeDecision]
) -> None:
    """The second generation is no first submit."""
    instance.command = FAIL
    with pytest.raises(JobFailed):
        instance.attempt()
    instance.command = SUCCEED
    instance.attempt(try_number=2)
    assert metrics(told) == ["fresh_submit", "terminal_resubmit"]


def test_a_dangling_intent_and_an_adoption_are_counted(
    instance: TaskInstance, told: list[ResumeDecision]
) -> None:
    """Two of the four names that Airflow doesn't have."""
    instance.attempt_killed("after_accept")
    instance.attempt(try_number=2)
    assert metrics(told)[:2] == ["intent_dangling", "adopted"]


def test_a_superseded_attempt_is_counted_once(
    instance: TaskInstance, tmp_path: Path, told: list[ResumeDecision]
) -> None:
    """Whether it finds out at the start or at a write."""
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed("mid_poll", try_number=2)
    with pytest.raises(JobSuperseded):
        instance.attempt(try_number=1)
    assert metrics(told) == ["superseded"]


def test_a_hook_that_fails_is_logged_and_the_task_goes_on(
    service: JobService, instance: TaskInstance, caplog: pytest.LogCaptureFixture
) -> None:
    """A broken Slack hook is no reason to lose a job."""

    def breaks(decision: ResumeDecision) -> None:
        raise RuntimeError("no such channel")

    remove = add_decision_hook(breaks)
    try:
        assert instance.attempt() == {"rows": 7}
    finally:
        remove()
    assert "no such channel" in caplog.text
