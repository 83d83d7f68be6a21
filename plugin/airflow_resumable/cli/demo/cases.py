# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The cases of the demo, what one of them came to, and what it must come to for us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Side = Literal["stock", "ours"]
Deed = Literal["", "clear", "clear_done", "mark_failed", "time_out", "forget"]
SIDES: Final[tuple[Side, ...]] = ("stock", "ours")


@dataclass(frozen=True, slots=True)
class Case:
    """Something that happens to a running job.

    Attributes:
        name: As on the command line and in the table.
        title: What happens, in words.
        point: The crash point at which `action` is taken or the service is spoiled; None: from the start.
        action: A kill or ``hold``, as `airflow_resumable.testing.crash.CrashController.on` names it; empty:
            the service is spoiled instead.
        deed: What a user or time does: ``clear``, ``mark_failed`` and ``forget`` to a task that is held at
            the point, ``clear_done`` to one that has succeeded, ``time_out`` to one that polls.
        fault: What is done, if that isn't a kill, in a few words.
        jobs: How many jobs are right.
        cancels: How many cancel requests are right.
        state: The end state that is right.
        recorded: Whether the job's id is on record when it happens, so that nothing may be submitted any
            more.
        window: Whether the service leaves a window here that our operator states and can't always close.
    """

    name: str
    title: str
    point: str | None = None
    action: str = ""
    deed: Deed = ""
    fault: str = ""
    jobs: int = 1
    cancels: int = 0
    state: str = "success"
    recorded: bool = True
    window: bool = False


BEFORE_ID: Final = Case(
    "before-id",
    "SIGKILL of the worker after the service accepted the job, before its id was stored",
    "after_accept",
    "kill_task",
    recorded=False,
)
MID_POLL: Final = Case("mid-poll", "SIGKILL of the worker while it polls the job", "mid_poll", "kill_task")
SUPERVISOR: Final = Case(
    "supervisor", "SIGKILL of the worker's supervisor while the job is polled", "mid_poll", "kill_supervisor"
)
SIGTERM: Final = Case(
    "sigterm",
    "SIGTERM while the job is polled, as pod eviction and redeploy send it",
    "mid_poll",
    "term_supervisor",
)
LOST_REPLY: Final = Case(
    "lost-reply",
    "the reply to the submit request is lost after the service accepted the job",
    fault="reply to submit lost",
    recorded=False,
)
STATUS_503: Final = Case(
    "status-503",
    "three status requests in a row are answered with 503",
    "mid_poll",
    fault="3 status requests: 503",
)
CLEAR_DONE: Final = Case(
    "clear-done",
    "a user clears the task after it has succeeded: the job is to run again, once",
    deed="clear_done",
    fault="cleared after success",
    jobs=2,
)
CLEAR_LIVE: Final = Case(
    "clear-live",
    "a user clears the task while it polls its job: that one is to be cancelled, a new one to run",
    "mid_poll",
    "hold",
    deed="clear",
    fault="cleared while running",
    jobs=2,
    cancels=1,
)
MARK_FAILED: Final = Case(
    "mark-fail",
    "a user marks the task failed while it polls its job: the job is to be cancelled",
    "mid_poll",
    "hold",
    deed="mark_failed",
    fault="marked failed",
    cancels=1,
    state="failed",
)
TIME_OUT: Final = Case(
    "time-out",
    "`execution_timeout` strikes while the job runs, and tries are left",
    deed="time_out",
    fault="execution_timeout",
)
SPLIT: Final = Case(
    "split",
    "SIGSTOP of worker and supervisor; both wake up when the next try is at work",
    "mid_poll",
    "stop_both",
)
FORGOTTEN: Final = Case(
    "forgotten",
    "the service forgets the running job: nobody can say how it ended, so none is to be started",
    "mid_poll",
    "hold",
    deed="forget",
    fault="job forgotten",
    state="failed",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one side of a case came to.

    Attributes:
        jobs: How many jobs the service started.
        submits: How many times it was asked to start one.
        cancels: How many times it was asked to cancel one.
        state: The task's state in the end, by Airflow's API.
        befell: Whether what the case is about has happened at all.
    """

    jobs: int
    submits: int
    cancels: int
    state: str
    befell: bool = True

    def as_dict(self) -> dict[str, int | str]:
        """Return what is told of it: the first four values, by name."""
        return {"jobs": self.jobs, "submits": self.submits, "cancels": self.cancels, "state": self.state}


def choose(cases: Sequence[Case], names: Sequence[str] | None) -> list[Case]:
    """Return the cases with these names in the order of `cases`, all of them for None.

    Args:
        cases: The cases there are.
        names: Names, also several in one word with commas between.

    Raises:
        ValueError: Naming what isn't a case, and all cases.
    """
    if names is None:
        return list(cases)
    wanted = [name for word in names for name in word.split(",") if name]
    known = [case.name for case in cases]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        what = f"no case is called {', '.join(map(repr, unknown))}" if unknown else "no case is named"
        raise ValueError(f"--cases {' '.join(names)}: {what}; the cases are {', '.join(known)}")
    return [case for case in cases if case.name in wanted]


def breaches(case: Case, ours: Outcome) -> list[str]:
    """Return what our side of a case did that it must never do; empty when all is well.

    The rules are the laws of the job protocol, and what the case says is right: so many jobs, so many
    cancels, that end state; and once an id was on record, no further submit for its job.
    """
    most_jobs = case.jobs + case.window
    found = []
    if not case.jobs <= ours.jobs <= most_jobs:
        found.append(f"{_many(ours.jobs, 'job')} started, {most_jobs} is right")
    if case.recorded and ours.submits != case.jobs:
        right = f"{case.jobs} is right once the job's id is on record"
        found.append(f"{_many(ours.submits, 'submit request')}, {right}")
    if ours.cancels != case.cancels:
        found.append(f"{_many(ours.cancels, 'cancel request')}, {case.cancels or 'none'} is right")
    if ours.state != case.state:
        found.append(f"the task's end state is {ours.state!r}, {case.state!r} is right")
    return [f"{case.name}: {one}" for one in found]


def breaches_of_all(cases: Sequence[Case], outcomes: Mapping[tuple[str, Side], Outcome]) -> list[str]:
    """Return the breaches of every case; what did not happen to a side proves nothing and is one too."""
    found = []
    for case in cases:
        found += breaches(case, outcomes[case.name, "ours"])
        idle = [side for side in SIDES if not outcomes[case.name, side].befell]
        found += [f"{case.name}: it did not happen to {side}, so nothing is shown" for side in idle]
    return found


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
