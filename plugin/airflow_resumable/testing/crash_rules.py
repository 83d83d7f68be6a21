# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the crash controller knows of a process at a crash point, and what its rules say to do with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

import psutil

from airflow_resumable.testing.processes import is_keeper

# The processes an action signals, in order, and the signal: "parent" is the task's supervisor.
# The supervisor goes first, or it would report the death of its task to the API server.
SIGNALS: dict[str, list[tuple[str, signal.Signals]]] = {
    "go": [],
    "hold": [],
    "exit": [],
    "kill_task": [("task", signal.SIGKILL)],
    "kill_supervisor": [("parent", signal.SIGKILL)],
    "kill_both": [("parent", signal.SIGKILL), ("task", signal.SIGKILL)],
    "term_task": [("task", signal.SIGTERM)],
    "term_supervisor": [("parent", signal.SIGTERM)],
    "stop_task": [("task", signal.SIGSTOP)],
    "stop_both": [("parent", signal.SIGSTOP), ("task", signal.SIGSTOP)],
}

_SETTLES_WITHIN = 10.0

Action = str | Callable[["Event"], str | None]


class CrashError(RuntimeError):
    """A rule could not be carried out: the process was not ours to kill, or a callable raised."""


@dataclass(frozen=True, eq=False)
class Event:
    """A process that reached a crash point.

    Attributes:
        at: Seconds since the epoch.
        point: The crash point.
        pid: The process, as the kernel tells it.
        ppid: Its parent at that moment: the supervisor of a task.
        dag_id: The task's Dag, None when not told; likewise `run_id` and `task_id`.
        map_index: The task's map index, None when not told.
        try_number: The task's try number, None when not told.
        action: What was done: the rule's action, ``go`` without a rule, a callable's name.
        facts: Everything the process told.
        started: When `pid` and `ppid` were started, seconds since the epoch by pid.
    """

    at: float
    point: str
    pid: int
    ppid: int
    dag_id: str | None
    run_id: str | None
    task_id: str | None
    map_index: int | None
    try_number: int | None
    action: str
    facts: Mapping[str, Any] = field(repr=False)
    started: Mapping[int, float] = field(repr=False)

    @classmethod
    def of(cls, pid: int, report: Mapping[str, Any]) -> Event:
        """Read what a process told.

        Args:
            pid: The process.
            report: The JSON object that `airflow_resumable.jobs.crashpoints.reach` sent.
        """
        facts, process = report["facts"], psutil.Process(pid)
        ppid, started = process.ppid(), {pid: process.create_time()}
        with suppress(psutil.NoSuchProcess):
            started[ppid] = psutil.Process(ppid).create_time()
        return cls(
            at=time.time(),
            point=report["point"],
            pid=pid,
            ppid=ppid,
            dag_id=facts.get("dag_id"),
            run_id=facts.get("run_id"),
            task_id=facts.get("task_id"),
            map_index=_number(facts.get("map_index")),
            try_number=_number(facts.get("try_number")),
            action="go",
            facts=facts,
            started=started,
        )

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to the process or its parent, if it is still the one that was seen.

        Returns when a SIGKILL has killed and a SIGSTOP has stopped it.

        Args:
            pid: `pid` or `ppid`.
            number: The signal.

        Raises:
            CrashError: When it was not started under this harness; nothing is sent.
        """
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.create_time() != self.started.get(pid):
                return
            # Orphans stay below the harness: its keepers adopt them. A keeper is never a supervisor.
            if is_keeper(pid) or os.getpid() not in {parent.pid for parent in process.parents()}:
                raise CrashError(
                    f"pid {pid} at {self.point} is no task or supervisor that was started under this harness "
                    f"(pid {os.getpid()}); it got no {number.name}"
                )
            process.send_signal(number)
            _settle(process, number)


@dataclass(frozen=True)
class Which:
    """Which events are meant; None stands for any.

    Attributes:
        point: The crash point.
        dag_id: The Dag, likewise `task_id`, `run_id`, `map_index` and `try_number`.
    """

    point: str | None
    dag_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None

    def matches(self, event: Event) -> bool:
        """Tell whether the event is one of those meant."""
        wanted = ((one.name, getattr(self, one.name)) for one in fields(self))
        return all(value is None or value == getattr(event, name) for name, value in wanted)

    def __str__(self) -> str:
        """Name what is not None."""
        told = ((one.name, getattr(self, one.name)) for one in fields(self))
        return ", ".join(f"{name}={value}" for name, value in told if value is not None) or "anything"


@dataclass
class Rule:
    """What to do with the processes at a point.

    Attributes:
        which: The processes.
        action: One of `SIGNALS`, ``raise:<text>`` or a callable.
        left: How often it still applies.
        hold: Keep the process at the point afterwards.
    """

    which: Which
    action: Action
    left: int
    hold: bool

    @property
    def name(self) -> str:
        """The action, or the callable's name."""
        return self.action if isinstance(self.action, str) else getattr(self.action, "__name__", "callable")


def _settle(process: psutil.Process, number: signal.Signals) -> None:
    """Wait until a signal that can't be handled has taken effect; the kernel delivers it a moment later."""
    settled = {
        signal.SIGKILL: {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD},
        signal.SIGSTOP: {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD},
    }.get(number)
    until = time.monotonic() + _SETTLES_WITHIN
    while settled and process.status() not in settled:
        if time.monotonic() > until:
            raise CrashError(
                f"pid {process.pid} is {process.status()} {_SETTLES_WITHIN} s after {number.name}"
            )
        time.sleep(0.001)


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
