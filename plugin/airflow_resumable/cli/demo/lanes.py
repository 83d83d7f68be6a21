# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One side of one case while it runs, and what the demo asks of the system that runs the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from airflow_resumable.cli.demo.cases import Case, Side
from airflow_resumable.testing.crash_rules import SIGNALS, Event

_ENDED = frozenset({"success", "failed"})


@dataclass(eq=False)
class Lane:
    """One side of one case: a task instance of its own, with a job that ends when it is told.

    Attributes:
        case: The case.
        side: ``stock`` or ``ours``; the task's id.
        began: When it was triggered, by the monotonic clock; None while it waits for its turn.
        state: The task's state by Airflow's API, None before it has one.
        trouble_at: When that happened which the case is about, seconds since the epoch.
        told: Whether the job was told to end.
        decided: Whether it was said what was done after the trouble.
        stopped: Where its worker was stopped, until that goes on.
        woken_at: When it went on, by the monotonic clock.
    """

    case: Case
    side: Side
    began: float | None = None
    state: str | None = None
    trouble_at: float | None = None
    told: bool = False
    decided: bool = False
    stopped: Event | None = None
    woken_at: float | None = None

    @property
    def key(self) -> tuple[str, Side]:
        """The run's id, which is the case's name, and the task's id."""
        return self.case.name, self.side

    @property
    def ended(self) -> bool:
        """Whether Airflow is done with the task."""
        return self.state in _ENDED and not (self.case.deed == "clear_done" and self.trouble_at is None)

    def is_past_trouble(self, event: Event) -> bool:
        """Say whether a worker that polls shows that the task got over what the case is about."""
        if event.point != "mid_poll" or self.trouble_at is None:
            return False
        if not self.case.action and not self.case.deed:
            return event.at > self.trouble_at
        # A killed supervisor's worker polls on in the first try.
        return (event.try_number or 0) > 1


def killed(event: Event) -> str | None:
    """Return in words who was killed at a crash point, None when nobody was."""
    signals = SIGNALS.get(event.action, [])
    if not signals:
        return None
    who, number = signals[-1]
    target = f"worker {event.pid}" if who == "task" else f"supervisor {event.ppid}"
    return f"{number.name} {target} {event.point}"


class System(Protocol):
    """Where the jobs run."""

    name: str
    """What it is, with an article."""
    stock: str
    """What runs a job on Airflow's side."""
    ours: str
    """What runs it on ours."""
    oracle: str
    """What the counts are read from."""
    cases: Sequence[Case]
    """Every case there is on this system."""
    dag_file: Path
    at_once: int
    """How many cases may run at once."""
    slots: int
    """How many tasks may run at once."""
    patience: float
    """Seconds after which a lane's job is told to end whatever has happened; at twice that it is given up."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that the tasks need."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of what is compared besides Airflow and this package, by name."""

    def __enter__(self) -> Self:
        """Start it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it and every job."""

    def dag_id(self, case: Case) -> str:
        """Return the Dag of which the case is a run."""

    def prepare(self, lane: Lane) -> dict[str, Any]:
        """Return the lane's part of the run's conf; spoil the service now where the case has no point."""

    def spoil(self, lane: Lane) -> None:
        """Make the service misbehave towards a lane that is at the case's point."""

    def spoiled_at(self, lane: Lane) -> float | None:
        """Return when the service had misbehaved as often as it should, seconds since the epoch."""

    def tell(self, lane: Lane) -> None:
        """Tell the lane's jobs to end."""

    def decision(self, lane: Lane, try_number: int) -> str:
        """Return in a few words what a try did after the trouble, by what it asked of the service."""

    def counts(self, lane: Lane) -> tuple[int, int, int]:
        """Return how many jobs were started, and how many submit and cancel requests there were."""
