# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo on a stand-in for an AWS service, whose request log is what counts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from airflow_resumable.cli.demo.cases import (
    BEFORE_ID,
    CLEAR_DONE,
    CLEAR_LIVE,
    LOST_REPLY,
    MARK_FAILED,
    MID_POLL,
    SIDES,
    SIGTERM,
    STATUS_503,
    SUPERVISOR,
    TIME_OUT,
    Case,
)
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.testing.aws import AwsService, requests

if TYPE_CHECKING:
    from airflow_resumable.testing.aws.journal import Logged
    from airflow_resumable.testing.aws.requests import Call
    from airflow_resumable.testing.http_faults import HttpRequest, Match, Spoiling

CASES = (
    BEFORE_ID,
    MID_POLL,
    SUPERVISOR,
    SIGTERM,
    LOST_REPLY,
    STATUS_503,
    CLEAR_DONE,
    CLEAR_LIVE,
    MARK_FAILED,
    TIME_OUT,
)
_SPOILED = {LOST_REPLY.name: ("lost_reply", 1), STATUS_503.name: ("unavailable", 3)}


class AwsJobs:
    """A stand-in for an AWS service, with a place of its own for each lane's jobs; a subclass says which.

    Args:
        folder: Where the stand-in's log is kept.
    """

    name: str
    stock: str
    ours: str
    oracle = "the stand-in's request log"
    cases: Sequence[Case] = CASES
    dag_file: Path
    dag: str
    """The Dag whose runs are the cases."""
    owner_names: tuple[str, ...]
    """What requests call the place of a job: ``JobFlowId``, ``ClusterId``."""
    submit: str
    """The action that starts jobs."""
    cancel: str
    """The action that ends them."""
    at_once = 4
    slots = 6
    patience = 120.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "aws"
        self._running = ExitStack()
        self._aws = AwsService(self._folder)
        self._owners: dict[tuple[str, str], str] = {}
        self._hits: dict[tuple[str, str], Spoiling] = {}
        self._spoiled: dict[tuple[str, str], float] = {}

    def make_owner(self, aws: AwsService) -> str:
        """Make a place for jobs and return its id."""
        raise NotImplementedError

    def asks_how_a_job_is(self, call: Call) -> bool:
        """Say whether a request is one for a job's status."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Start the stand-in, with a place for each lane."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as starting:
            aws = starting.enter_context(self._aws)
            for case in self.cases:
                for side in SIDES:
                    self._owners[case.name, side] = self.make_owner(aws)
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, and every job with it."""
        self._running.close()

    @property
    def versions(self) -> Mapping[str, str]:
        """The provider's, and moto's, of which the stand-in is made."""
        return {
            "Amazon provider": version("apache-airflow-providers-amazon"),
            "moto": version("moto"),
        }

    @property
    def environment(self) -> Mapping[str, str]:
        """The stand-in's address, and credentials for it."""
        return self._aws.environment()

    def dag_id(self, case: Case) -> str:
        """Return the Dag whose runs are the cases; a time-out needs one of its own."""
        return f"{self.dag}_time_out" if case is TIME_OUT else self.dag

    def prepare(self, lane: Lane) -> dict[str, Any]:
        """Return the lane's place; a lost reply is due at once."""
        if lane.case.name in _SPOILED and lane.case.point is None:
            self.spoil(lane)
        return {"owner": self._owners[lane.key]}

    def spoil(self, lane: Lane) -> None:
        """Make the proxy before the stand-in spoil the lane's next requests."""
        fault, times = _SPOILED[lane.case.name]
        found: Any = fault if fault == "lost_reply" else _reply(fault)
        meant = self._match(lane, submits=lane.case is LOST_REPLY)
        self._hits[lane.key] = self._aws.proxy.fail(found, meant, times=times)

    def _match(self, lane: Lane, *, submits: bool) -> Match:
        owner = self._owners[lane.key]

        def is_meant(request: HttpRequest) -> bool:
            call = requests.decode(request.method, request.target, request.headers, request.body)
            if call is None or self._owner(call) != owner:
                return False
            return call.action == self.submit if submits else self.asks_how_a_job_is(call)

        return is_meant

    def spoiled_at(self, lane: Lane) -> float | None:
        """Return when it was seen that the proxy had spoiled as many as it should."""
        _, times = _SPOILED[lane.case.name]
        hits = self._hits.get(lane.key)
        if hits is None or hits.hits < times:
            return None
        return self._spoiled.setdefault(lane.key, time.time())

    def tell(self, lane: Lane) -> None:
        """Let the lane's jobs end well, those to come too."""
        self._aws.let_go(self._owners[lane.key])

    def decision(self, lane: Lane, try_number: int) -> str:
        """Say whether there is another job by now, or a cancel request."""
        jobs, _, cancels = self.counts(lane)
        if jobs != 1:
            return f"starts job {jobs}" if jobs else "has no job"
        if cancels:
            return "has cancelled job 1"
        return "keeps job 1" if lane.case.recorded else "finds job 1"

    def counts(self, lane: Lane) -> tuple[int, int, int]:
        """Count in the log: jobs made in the lane's place, submit and cancel requests for it."""
        owner = self._owners[lane.key]
        asked = [one for one in self._aws.requests() if self._owner(one) == owner]
        submits = [one for one in asked if one.action == self.submit]
        return (
            sum(len(one.created) for one in submits),
            len(submits),
            sum(one.action == self.cancel for one in asked),
        )

    def _owner(self, call: Call | Logged) -> str | None:
        found = (call.parameters.get(name) for name in self.owner_names)
        return next((str(one) for one in found if one is not None), None)


def _reply(fault: str) -> Any:
    from airflow_resumable.testing.aws import faults

    return faults.REPLIES[fault]
