# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What befalls one task instance: drawn from a seed, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any, Final, Literal

from airflow_resumable.jobs.crashpoints import POINTS

What = Literal[
    "nothing", "kill", "term", "stop", "orphan", "clear", "clear_stopped", "mark_failed", "mark_success"
]
Grade = Literal["closed", "narrowed", "open"]

GRADES: Final[tuple[Grade, ...]] = ("closed", "narrowed", "open")
BEFORE_THE_END: Final = POINTS[: POINTS.index("mid_poll") + 1]
"""The crash points that an attempt passes while its job has yet to end."""
NEEDS_A_TRY: Final = ("kill", "stop", "orphan")
"""What leaves nobody to look after the job, so it takes another try to do so."""

_WHAT: Final[dict[What, int]] = {
    "nothing": 4,
    "kill": 6,
    "term": 4,
    "stop": 4,
    "orphan": 2,
    "clear": 3,
    "clear_stopped": 2,
    "mark_failed": 1,
    "mark_success": 1,
}
_FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"verb": "submit", "kind": "lost_reply"},
    {"verb": "submit", "kind": "truncated"},
    {"verb": "submit", "kind": "unavailable"},
    {"verb": "submit", "kind": "error"},
    {"verb": "submit", "kind": "throttle"},
    {"verb": "submit", "kind": "reset"},
    {"verb": "submit", "kind": "slow_reply", "seconds": 0.3},
    {"verb": "status", "kind": "unavailable", "times": 2},
    {"verb": "status", "kind": "throttle"},
    {"verb": "status", "kind": "reset"},
    {"verb": "status", "kind": "lost_reply"},
    {"verb": "status", "kind": "unknown_status", "status": "HIBERNATING", "times": 2},
    {"verb": "status", "kind": "no_status"},
    {"verb": "find", "kind": "unavailable"},
    {"verb": "find", "kind": "reset"},
    {"verb": "cancel", "kind": "slow_stop", "seconds": 0.7},
    {"verb": "cancel", "kind": "lost_reply"},
)
# A stop that can't reach the service has two seconds and nobody after it; a clear's own cancel is repeated.
_FAULTS_OF_A_CLEAR: Final[tuple[dict[str, Any], ...]] = (
    {"verb": "cancel", "kind": "unavailable"},
    {"verb": "cancel", "kind": "reset"},
)


@dataclass(frozen=True, slots=True)
class Step:
    """One attempt, and what befalls it.

    Attributes:
        what: A SIGKILL, a SIGTERM, a SIGSTOP whose SIGCONT comes late, the death of its supervisor alone, or
            what a user does while it runs, or to one that was stopped.
        point: The crash point at which; None for a random moment.
        after: That moment, seconds after the attempt's start.
        wake: A stopped attempt goes on when the next one is at this crash point; None: after the end.
        in_turn: The next attempt waits at that point until the woken one has ended.
        fails: The job that this attempt sees to its end fails.
        ends_unseen: The job ends after the attempt, before the next one.
        forgotten: The service forgets the job when it is first polled.
        faults: What the service does wrong from the attempt's start.
        store: ("once" or "broken", n): the n-th call to the store fails once, or this and all later ones.
    """

    what: What = "nothing"
    point: str | None = None
    after: float = 0.0
    wake: str | None = None
    in_turn: bool = False
    fails: bool = False
    ends_unseen: bool = False
    forgotten: bool = False
    faults: tuple[dict[str, Any], ...] = ()
    store: tuple[str, int] | None = None

    @property
    def sleeps(self) -> bool:
        """Whether the attempt is stopped and goes on later, when another one has its place."""
        return self.what in ("stop", "clear_stopped")

    def __str__(self) -> str:
        """Name what is not as usual."""
        when = f"at {self.point}" if self.point else f"after {self.after:.2f} s"
        words = [self.what if self.what == "nothing" else f"{self.what} {when}"]
        if self.sleeps:
            words.append(f"woken at {self.wake or 'the end'}{' in turn' if self.in_turn else ''}")
        words += [name for name in ("fails", "ends_unseen", "forgotten") if getattr(self, name)]
        words += [f"{fault['verb']} {fault['kind']}" for fault in self.faults]
        words += [f"store {self.store[0]} at call {self.store[1]}"] if self.store else []
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One task instance from its first attempt to its final end.

    Attributes:
        seed: What it was drawn from.
        grade: Of the operator.
        retries: Of the task.
        steps: Its attempts in order; whatever follows is undisturbed.
        clears: How often a user clears the task after an end.
        discards: A clear drops the task's state and lets a running attempt keep its id until it has ended,
            as Airflow 3.4's does by default.
        installation: ``[resumable] installation_id``, "" for none.
    """

    seed: int
    grade: Grade
    retries: int
    steps: tuple[Step, ...] = field(repr=False)
    clears: int = 0
    discards: bool = False
    installation: str = ""

    def attempts(self) -> Iterator[Step]:
        """Return the steps, and then undisturbed attempts for ever."""
        return chain(self.steps, repeat(Step()))

    def __str__(self) -> str:
        """Tell it in a few lines."""
        words = f"seed {self.seed}: {self.grade}, retries {self.retries}, {self.clears} clears after an end"
        words += ", clears discard the record" if self.discards else ""
        lines = [words + (f", installation {self.installation}" if self.installation else "")]
        return "\n".join(lines + [f"  {number}. {step}" for number, step in enumerate(self.steps, start=1)])


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed, for attempts that this process itself starts."""
    dice = random.Random(f"file {seed}")
    steps = [_step(dice) for _ in range(dice.choice((1, 2, 2, 3, 3, 4)))]
    schedule = Schedule(
        seed, dice.choice(GRADES), dice.choice((1, 2, 2, 3)), tuple(steps), dice.choice((0, 0, 0, 1, 1, 2))
    )
    # Dice of their own: a seed keeps the steps that it has always had.
    place = random.Random(f"file {seed} place")
    return replace(
        schedule, discards=place.random() < 0.4, installation="soak" if place.random() < 0.5 else ""
    )


def draw_for_stack(seed: int) -> Schedule:
    """Return the schedule of a seed for a real Airflow: every disturbance at a crash point."""
    dice = random.Random(f"stack {seed}")
    steps = []
    for _ in range(dice.choice((1, 1, 2, 2, 3))):
        step = _step(dice)
        steps.append(replace(step, point=step.point or dice.choice(POINTS), store=None, in_turn=False))
    return Schedule(seed, dice.choice(GRADES), 2, tuple(steps), dice.choice((0, 0, 1)))


def _step(dice: random.Random) -> Step:
    what = dice.choices(list(_WHAT), list(_WHAT.values()))[0]
    point = dice.choice(POINTS) if dice.random() < 0.7 else None
    if what.startswith(("mark", "clear")):
        point = dice.choice(BEFORE_THE_END) if point else None
    faults = _FAULTS + (_FAULTS_OF_A_CLEAR * 3 if what.startswith("clear") else ())
    return Step(
        what=what,
        point=point,
        after=round(dice.uniform(0.0, 0.4), 3),
        wake=dice.choice((*BEFORE_THE_END, None)) if what in ("stop", "clear_stopped") else None,
        in_turn=dice.random() < 0.5,
        fails=dice.random() < 0.25,
        ends_unseen=dice.random() < 0.25,
        forgotten=dice.random() < 0.05,
        faults=tuple(dice.choice(faults) for _ in range(dice.choice((0, 0, 1, 1, 2)))),
        store=(dice.choice(("once", "once", "broken")), dice.randint(1, 8)) if dice.random() < 0.15 else None,
    )
