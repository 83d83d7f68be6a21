# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's table, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from airflow_resumable.cli.demo.cases import SIDES, Case, Outcome, Side, breaches

_COLUMNS = ("jobs", "submits", "cancels", "end state")


def print_cases(console: Console, cases: Sequence[Case]) -> None:
    """Print what is going to happen, a line for each case."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for case in cases:
        table.add_row(case.name, case.title)
    _print(console, Padding(table, (1, 0, 1, 2)))


def print_outcomes(
    console: Console, cases: Sequence[Case], outcomes: Mapping[tuple[str, Side], Outcome]
) -> None:
    """Print the table: what each side of each case came to."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("\ncase", no_wrap=True)
    for side in SIDES:
        # Empty, to keep the sides apart.
        table.add_column(width=1)
        for name in _COLUMNS:
            header = f"{side if name == 'jobs' else ''}\n{name}"
            table.add_column(header, justify="left" if name == "end state" else "right", no_wrap=True)
    for case in cases:
        cells = [Text(case.name)]
        for side in SIDES:
            cells += [Text(), *_cells(case, side, outcomes[case.name, side])]
        table.add_row(*cells)
    _print(console, table)


def _cells(case: Case, side: Side, outcome: Outcome) -> list[Text]:
    style = ""
    if side == "ours":
        style = "bold red" if breaches(case, outcome) else "green"
    jobs = f"{outcome.jobs}{'*' if case.window and side == 'ours' else ''}"
    words = (jobs, str(outcome.submits), str(outcome.cancels), outcome.state)
    return [Text(word, style=style) for word in words]


def _print(console: Console, what: RenderableType) -> None:
    if console.is_terminal:
        console.print(what)
        return
    # A log has no use for the spaces that fill up a terminal's lines.
    with console.capture() as captured:
        console.print(what)
    for line in captured.get().splitlines():
        console.out(line.rstrip(), highlight=False)
