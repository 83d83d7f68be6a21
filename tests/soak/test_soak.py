# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A slice of `make soak`: random schedules with real processes, judged by section 1 of the protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_resumable.testing.soak import report
from airflow_resumable.testing.soak.file_run import FileRun
from airflow_resumable.testing.soak.laws import Verdict, judge
from airflow_resumable.testing.soak.schedule import Schedule, Step, draw, draw_for_stack

SLICE = range(1, 41)

KILLED_WITH_ITS_JOB_AT_WORK = Schedule(0, "closed", 2, (Step("kill", "mid_poll"),))
KILLED_BEFORE_THE_ID = Schedule(0, "narrowed", 2, (Step("kill", "after_accept"),))
EVICTED = Schedule(0, "closed", 2, (Step("term", "mid_poll"),))
FORGOTTEN = Schedule(0, "closed", 2, (Step(forgotten=True),))
FAILED = Schedule(0, "closed", 2, (Step(fails=True),))


def run(schedule: Schedule, folder: Path, variant: str | None = None) -> Verdict:
    with FileRun(schedule, folder, variant) as one:
        return judge(one.run())


@pytest.mark.parametrize("seed", SLICE)
def test_the_laws_hold_over_a_random_schedule(seed: int, tmp_path: Path) -> None:
    """No schedule breaks section 1; what the protocol names as an exception is counted apart."""
    schedule = draw(seed)
    verdict = run(schedule, tmp_path)
    assert verdict.violations == [], schedule


@pytest.mark.parametrize(
    ("variant", "schedule", "law"),
    [
        ("generation + 1 on every attempt", KILLED_WITH_ITS_JOB_AT_WORK, "law 1"),
        ("no intent", KILLED_BEFORE_THE_ID, "law 1"),
        ("no lookup before a second submit", KILLED_BEFORE_THE_ID, "law 1"),
        ("cancel on SIGTERM", EVICTED, "law 5"),
        ("a token that never rotates", FAILED, "law 5"),
    ],
)
def test_a_broken_protocol_breaks_the_laws(
    variant: str, schedule: Schedule, law: str, tmp_path: Path
) -> None:
    """The same schedule passes unbroken and is reported broken, so the soak can fail."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    assert run(schedule, whole).violations == []
    assert any(one.startswith(law) for one in run(schedule, broken, variant).violations)


@pytest.mark.parametrize("draws", [draw, draw_for_stack])
def test_a_seed_is_always_the_same_schedule(draws: object) -> None:
    """And another seed is another one."""
    assert callable(draws)
    assert draws(7) == draws(7)
    assert len({str(draws(seed)) for seed in range(50)}) == 50


def test_the_report_counts_the_forgotten_apart(tmp_path: Path) -> None:
    """A run on one part keeps what the other came to, and the sentence quotes both."""
    tally = report.Tally()
    with FileRun(FORGOTTEN, tmp_path) as one:
        history = one.run()
    tally.add(history, judge(history))
    file = tmp_path / "soak.json"
    report.write(file, {"file": tally.as_dict({"Airflow": "3.3.2"})})
    report.write(file, {"stack": tally.as_dict({"Airflow": "3.3.2"})})

    assert history.state == "failed"
    assert report.read(file)["file"]["allowed"] == {"jobs that the service forgot": 1}
    assert "1 with the job service and a file store and 1 on a real Airflow" in report.sentence(file)
    assert "0 jobs inside a named window and 2 other exceptions" in report.sentence(file)
    assert "Schedules that break section 1: **0**" in report.markdown(file)
