# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The cases of the demo, what one of them came to, and what it must come to for us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Side = Literal["stock", "ours"]
SIDES: Final[tuple[Side, ...]] = ("stock", "ours")


@dataclass(frozen=True, slots=True)
class Case:
    """Something that happens to a running job.

    Attributes:
        name: As on the command line and in the table.
        title: What happens, in words.
        point: The crash point at which `action` is taken or the service is spoiled; None: from the start.
        action: A kill, as `airflow_resumable.testing.crash.CrashController.on` names it; empty: the service
            is spoiled instead.
        fault: How the service is spoiled, in a few words.
        recorded: Whether the job's id is on record when it happens, so that nothing may be submitted any
            more.
        window: Whether the service leaves a window here that our operator states and can't always close.
    """

    name: str
    title: str
    point: str | None = None
    action: str = ""
    fault: str = ""
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

    The rules are the laws of the job protocol: one job and success; once its id was on record no further
    submit; no cancel, since none of the cases is a user's wish.
    """
    most_jobs = 2 if case.window else 1
    found = []
    if not 1 <= ours.jobs <= most_jobs:
        found.append(f"{_many(ours.jobs, 'job')} started, {most_jobs} is right")
    if case.recorded and ours.submits != 1:
        found.append(f"{_many(ours.submits, 'submit request')}, 1 is right once the job's id is on record")
    if ours.cancels:
        found.append(f"{_many(ours.cancels, 'cancel request')}, none is right")
    if ours.state != "success":
        found.append(f"the task's end state is {ours.state!r}, 'success' is right")
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
