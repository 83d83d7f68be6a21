# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo prints: on a terminal in place, in a log as plain lines, always within the width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from airflow_resumable.cli.demo.cases import SIDES, Outcome
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.cli.demo.local import CASES
from airflow_resumable.cli.demo.progress import Progress
from airflow_resumable.cli.demo.table import print_cases, print_outcomes

ESCAPE = "\x1b"


def printed(*, terminal: bool, width: int = 80) -> str:
    """Return all that a small run prints."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=width, highlight=False, _environ={})
    lanes = [Lane(case, side) for case in CASES for side in SIDES]
    print_cases(console, CASES)
    with Progress(console) as progress:
        progress.step("Running the cases")
        progress.watch(lanes)
        progress.say(lanes[0], "killed", "SIGKILL worker 1234567 after_accept")
        progress.say(lanes[0], "then", "try 2: starts job 2")
        progress.say(lanes[0], "then", "try 2: starts job 2")
        progress.say(lanes[0], "end", "success")
    outcomes = {lane.key: Outcome(12, 34, 56, "success") for lane in lanes}
    print_outcomes(console, CASES, outcomes)
    return file.getvalue()


def test_a_log_gets_one_plain_line_for_each_thing_that_happens() -> None:
    """No control codes, no spaces at the ends of lines, nothing said twice."""
    text = printed(terminal=False)
    lines = text.splitlines()

    assert ESCAPE not in text
    assert "\r" not in text
    assert [line for line in lines if line != line.rstrip()] == []
    assert [line.split(" s  ")[1] for line in lines if " s  " in line] == [
        "Running the cases",
        "before-id   stock  SIGKILL worker 1234567 after_accept",
        "before-id   stock  try 2: starts job 2",
        "before-id   stock  success",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_cut_off_at_eighty_columns(terminal: bool) -> None:
    """Every line fits, and the table has each value in full."""
    text = printed(terminal=terminal)
    assert "…" not in text
    if not terminal:
        assert max(map(len, text.splitlines())) <= 80
    plain = printed(terminal=False).splitlines()
    (head,) = [line for line in plain if "submits" in line]
    assert head.split() == ["case", *["jobs", "submits", "cancels", "end", "state"] * 2]
    for case in CASES:
        row = next(line for line in reversed(plain) if line.strip().startswith(case.name))
        assert row.split() == [case.name, *["12", "34", "56", "success"] * 2]


def test_a_lane_is_one_line_on_a_terminal_of_eighty_columns() -> None:
    """What was killed, what the next try did and the end stand side by side."""
    text = printed(terminal=True)

    assert "before-id  stock SIGKILL worker 1234567 after_accept try 2: starts job 2 success" in text
