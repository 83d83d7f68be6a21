# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the soak found: attempts that are overtaken, or stopped, at odd moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from airflow_resumable.jobs import kill
from airflow_resumable.jobs.adapter import Capabilities
from airflow_resumable.jobs.host import Host
from airflow_resumable.jobs.policies import ResumePolicy
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.soak.file_run import FileRun
from airflow_resumable.testing.soak.history import History
from airflow_resumable.testing.soak.laws import judge
from airflow_resumable.testing.soak.schedule import Schedule, Step
from tests.attempts import TaskInstance, requests, until_released

LOST_CANCEL = ({"verb": "cancel", "kind": "lost_reply"},)
RESET_CANCEL = ({"verb": "cancel", "kind": "reset"},)


def run(folder: Path, *steps: Step) -> History:
    with FileRun(Schedule(0, "closed", 2, steps), folder) as one:
        history = one.run()
    assert judge(history).violations == []
    return history


def test_a_submit_that_comes_after_the_sweep_of_a_clear_is_found(tmp_path: Path) -> None:
    """The attempt was stopped between intent and submit; its job is cancelled by the one that took over."""
    stopped = Step("clear_stopped", "after_intent", wake="after_intent", in_turn=True)
    history = run(tmp_path, stopped)
    assert [job.status for job in history.jobs] == ["CANCELLED", "SUCCEEDED"]


def test_a_cancel_whose_reply_was_lost_is_not_a_refused_one(tmp_path: Path) -> None:
    """Asked again the service says that the job has ended: the clear goes on in the same try."""
    stopped = Step("clear_stopped", "mid_poll", wake=None)
    history = run(tmp_path, stopped, Step(faults=LOST_CANCEL))
    assert [attempt.how for attempt in history.attempts.values()][1:] == ["returned"]


def test_a_reset_does_not_lose_a_clear(tmp_path: Path) -> None:
    """The dying attempt asks for the cancel again: nobody after it would know of the clear."""
    history = run(tmp_path, Step("clear", "mid_poll", faults=RESET_CANCEL))
    assert [job.status for job in history.jobs] == ["CANCELLED", "SUCCEEDED"]


def test_a_stop_while_the_attempt_is_prepared_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job of the try before is known a moment later; ending at once would leave it to nobody."""
    again: list[bool] = []
    monkeypatch.setattr(kill, "deliver_again", lambda: again.append(True))
    monkeypatch.setattr(kill, "inside_handler", lambda: True)

    class Stopped(Host):
        def _prepare(self, context: Any, *more: Any) -> None:
            self.on_kill(lambda: again.append(False))

    Stopped(cast(Any, None), Capabilities(), ResumePolicy()).prepare(cast(Any, {}))
    assert again == [True]


def test_a_later_attempts_end_is_no_users_word(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """A superseded attempt that is stopped when the server says success cancels nothing."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("mid_poll")
    instance.server_state = "success"
    operator = instance.operator()
    host = Host(operator, operator.get_capabilities(), ResumePolicy())
    attempt = host.prepare(instance.context(operator, 1))
    assert attempt is not None
    attempt.record = attempt.ledger.read()
    attempt._begun = True
    gate.touch()
    instance.attempt(try_number=2)
    assert attempt.ending.cancel() is False
    assert requests(service, "cancel") == []
