# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo says while it runs: a line for each lane that changes in place, or plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from airflow_resumable.cli.demo.lanes import Lane

Column = Literal["killed", "then", "end"]
_COLUMNS: tuple[Column, ...] = ("killed", "then", "end")


class Progress:
    """Tells what happens; on a terminal in place, else one line for each thing that happens.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._lanes: list[Lane] = []
        self._cells: dict[Lane, dict[Column, str]] = {}
        self._step = ""
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(
                console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )

    def __enter__(self) -> Self:
        """Begin."""
        self._began = time.monotonic()
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state of things on the terminal."""
        if self._live:
            self._step = ""
            self._live.update(self._render())
            self._live.stop()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def step(self, what: str) -> None:
        """Say what is being done now, for all lanes."""
        self._step = what
        if self._live:
            self.refresh()
        else:
            self._line(what)

    def watch(self, lanes: Sequence[Lane]) -> None:
        """Show these lanes from now on."""
        self._lanes = list(lanes)
        self._cells = {lane: {} for lane in lanes}
        self.refresh()

    def say(self, lane: Lane, column: Column, what: str) -> None:
        """Say what happened to a lane."""
        if self._cells[lane].get(column) == what:
            return
        self._cells[lane][column] = what
        if self._live:
            self.refresh()
        else:
            self._line(f"{lane.case.name:<10}  {lane.side:<5}  {what}")

    def refresh(self) -> None:
        """Show the passing of time."""
        if self._live:
            self._live.update(self._render(), refresh=True)

    def _line(self, what: str) -> None:
        self._console.print(f"{self.seconds:6.1f} s  {what}", markup=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False)
        for name in ("case", "side", *_COLUMNS):
            table.add_column(name, no_wrap=name in ("case", "side", "end"))
        for lane in self._lanes:
            cells = self._cells[lane]
            table.add_row(lane.case.name, lane.side, *(cells.get(name, "") for name in _COLUMNS))
        now = [Text(f"{self.seconds:6.1f} s  {self._step}", style="dim")] if self._step else []
        return Group(*([table] if self._lanes else []), *now)
