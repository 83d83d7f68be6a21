# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of a job as time goes by: moto's jobs stand still, or are done before they began."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The states of one kind of job.

    Attributes:
        starting: Before it runs, in this order.
        running: While it runs.
        succeeded: After a good end.
        failed: After a bad one.
        stopping: Cancelled, but alive.
        stopped: Cancelled.
        ended: Every state that a job stays in.
    """

    starting: tuple[str, ...]
    running: str
    succeeded: str
    failed: str
    stopping: str
    stopped: str
    ended: tuple[str, ...]


STEP = Lifecycle(
    ("PENDING",),
    "RUNNING",
    "COMPLETED",
    "FAILED",
    "CANCEL_PENDING",
    "CANCELLED",
    ("COMPLETED", "FAILED", "CANCELLED", "INTERRUPTED"),
)
"""An EMR step: https://docs.aws.amazon.com/emr/latest/APIReference/API_StepStatus.html."""

SERVERLESS_RUN = Lifecycle(
    ("SUBMITTED", "PENDING", "SCHEDULED"),
    "RUNNING",
    "SUCCESS",
    "FAILED",
    "CANCELLING",
    "CANCELLED",
    ("SUCCESS", "FAILED", "CANCELLED"),
)
"""An EMR Serverless job run: https://docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/job-states.html."""

CONTAINER_RUN = Lifecycle(
    ("PENDING", "SUBMITTED"),
    "RUNNING",
    "COMPLETED",
    "FAILED",
    "CANCEL_PENDING",
    "CANCELLED",
    ("COMPLETED", "FAILED", "CANCELLED"),
)
"""An EMR on EKS job run:
https://docs.aws.amazon.com/emr/latest/EMR-on-EKS-DevelopmentGuide/emr-eks-jobs-states.html."""


class HasState(Protocol):
    """moto's own object of a job."""

    id: str
    state: Any


@dataclass(slots=True)
class Pace:
    """How fast jobs pass through the states around their run.

    Attributes:
        startup_looks: How many replies show each state before the run; 0: a job runs when first looked at.
        cancel_looks: How many replies show a cancelled job that still stops.
        held: Whether new jobs are held from their first state on.
    """

    startup_looks: int = 0
    cancel_looks: int = 1
    held: bool = False


@dataclass(slots=True)
class Job:
    """A job and its clock.

    Attributes:
        record: moto's object; its state is what the service tells.
        lifecycle: Its states.
        seconds: How long it runs by its own words; None when only a test ends it.
        good: Whether it ends well by its own words.
        held: Nothing moves by itself.
        deaf: Cancelled, it goes on as if nothing were.
        looks: Replies that have shown the present state.
        since: When the run began, monotonic.
        reason: Why it ended.
        began: When the run began, for people.
        over: When it ended.
    """

    record: HasState
    lifecycle: Lifecycle
    seconds: float | None = None
    good: bool = True
    held: bool = False
    deaf: bool = False
    looks: int = 0
    since: float = field(default_factory=time.monotonic)
    reason: str | None = None
    began: datetime | None = None
    over: datetime | None = None

    @property
    def state(self) -> str:
        """What the service says about it."""
        return str(self.record.state)

    @property
    def ended(self) -> bool:
        """Whether it stays as it is."""
        return self.state in self.lifecycle.ended

    def become(self, state: str, reason: str | None = None) -> None:
        """Enter a state."""
        self.record.state = state
        self.looks = 0
        self.reason = reason or self.reason
        if state == self.lifecycle.running:
            self.since, self.began = time.monotonic(), datetime.now(UTC)
        elif self.ended:
            self.over = datetime.now(UTC)

    def begin(self) -> None:
        """Enter the first state."""
        self.become(self.lifecycle.starting[0])

    def cancel(self) -> None:
        """Begin to stop; a deaf one doesn't."""
        if not self.deaf:
            self.become(self.lifecycle.stopping, "cancelled by request")

    def advance(self) -> None:
        """Enter the next state on the way, ``succeeded`` after the run."""
        way = (*self.lifecycle.starting, self.lifecycle.running, self.lifecycle.succeeded)
        if self.state == self.lifecycle.stopping:
            self.become(self.lifecycle.stopped)
        elif self.state in way[:-1]:
            self.become(way[way.index(self.state) + 1])

    def tick(self, pace: Pace, looked_at: bool, may_run: bool = True) -> None:
        """Let time pass.

        Args:
            pace: How fast.
            looked_at: Whether the reply to come shows this job.
            may_run: Whether there is room for it; the last state before the run is kept without.
        """
        self._pass(pace, looked_at, may_run)
        if looked_at:
            self.looks += 1

    def _pass(self, pace: Pace, looked_at: bool, may_run: bool) -> None:
        cycle = self.lifecycle
        if self.held or self.ended:
            return
        if self.state == cycle.stopping and looked_at and self.looks >= pace.cancel_looks:
            self.become(cycle.stopped)
        while self.state in cycle.starting:
            last = self.state == cycle.starting[-1]
            if (last and not may_run) or (pace.startup_looks and not looked_at):
                break
            if self.looks < pace.startup_looks:
                break
            self.advance()
        over = self.seconds is not None and time.monotonic() - self.since >= self.seconds
        if self.state == cycle.running and over:
            self.become(cycle.succeeded if self.good else cycle.failed)


def own_words(arguments: Any) -> tuple[float | None, bool]:
    """Read from a job's arguments how it ends.

    ``sleep SECONDS`` makes it run that long, ``exit CODE`` makes it end with that code; a job that says
    neither runs until a test ends it.

    Args:
        arguments: A step's Args, or a job driver.

    Returns:
        Seconds, None for no end, and whether it ends well.
    """
    text = " ".join(_strings(arguments))
    slept = re.search(r"\bsleep (\d+(?:\.\d+)?)", text)
    code = re.search(r"\bexit (\d+)", text)
    if slept is None and code is None:
        return None, True
    return float(slept[1]) if slept else 0.0, code is None or int(code[1]) == 0


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif value is not None:
        yield str(value)
