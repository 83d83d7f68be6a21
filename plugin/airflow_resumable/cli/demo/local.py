# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo on the local job service, whose request log is what counts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_resumable.cli.demo.cases import (
    BEFORE_ID,
    CLEAR_DONE,
    CLEAR_LIVE,
    FORGOTTEN,
    LOST_REPLY,
    MARK_FAILED,
    MID_POLL,
    SIGTERM,
    SPLIT,
    STATUS_503,
    SUPERVISOR,
    TIME_OUT,
    Case,
)
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.testing.demo import LOCAL_JOBS
from airflow_resumable.testing.jobservice.process import JobService

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
    SPLIT,
    FORGOTTEN,
)
_SPOILED = {LOST_REPLY.name: ("submit", "lost_reply", 1), STATUS_503.name: ("status", "unavailable", 3)}

# Ends when its gate is there; without one it fails after about three minutes instead of staying for ever.
_JOB = """\
n=0
while [ ! -e {gate} ]; do
    n=$((n + 1)); [ $n -lt 600 ] || exit 1
    sleep 0.3
done
echo '{{"rows": 42}}'
"""


class LocalJobs:
    """The local job service.

    Args:
        folder: Where its data and the jobs' gates are kept.
    """

    name = "the local job service"
    stock = "Airflow's own ResumableJobMixin"
    ours = "the one of airflow-resumable"
    oracle = "the job service's request log"
    cases: Sequence[Case] = CASES
    dag_file = LOCAL_JOBS
    at_once = len(CASES)
    slots = 8
    patience = 90.0
    environment: Mapping[str, str] = {}
    versions: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self._services: dict[str, JobService] = {}

    def __enter__(self) -> Self:
        """Start the service."""
        self._start("jobs")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the service and every job."""
        self._running.close()

    def dag_id(self, case: Case) -> str:
        """Return the Dag whose runs are the cases; a time-out needs one of its own."""
        return "demo_local_time_out" if case is TIME_OUT else "demo_local"

    def prepare(self, lane: Lane) -> dict[str, Any]:
        """Return service and script; a lost reply is due at once."""
        if lane.case is LOST_REPLY:
            # Without a token nothing tells one lane's submit from another's, so each has a service.
            verb, kind, times = _SPOILED[lane.case.name]
            self._start(_name(lane)).client().add_fault(verb, kind, times=times)
        return {
            "service_url": self._service(lane).url,
            "script": _JOB.format(gate=shlex.quote(self._gate(lane))),
        }

    def spoil(self, lane: Lane) -> None:
        """Make the service forget the lane's job, or answer the next status requests about it with 503."""
        if lane.case is FORGOTTEN:
            self._service(lane).client().forget(self._jobs(lane)[0])
            return
        verb, kind, times = _SPOILED[lane.case.name]
        service = self._service(lane)
        service.client().add_fault(verb, kind, times=times, job=self._jobs(lane)[0])

    def spoiled_at(self, lane: Lane) -> float | None:
        """Return when the last fault hit a request of the lane."""
        verb, kind, times = _SPOILED[lane.case.name]
        hit = self._requests(lane, verb, fault=kind)
        return float(hit[times - 1]["at"]) if len(hit) >= times else None

    def tell(self, lane: Lane) -> None:
        """Open the gate that the lane's jobs wait for."""
        Path(self._gate(lane)).touch()

    def decision(self, lane: Lane, try_number: int) -> str:
        """Say what a try asked of the service: another job, its old one by token, or only how that one is."""
        jobs = self._jobs(lane)
        since = lane.trouble_at or 0.0
        asked = [one for one in self._requests(lane, try_number=try_number) if one["at"] > since]
        mine = [one for one in asked if one["job"] in jobs]
        job = f"job {jobs.index(mine[-1]['job']) + 1}" if mine else "no job"
        if any(one["verb"] == "submit" and one["created"] for one in asked):
            return f"starts {job}"
        if any(one["verb"] in ("submit", "find") for one in asked):
            return f"finds {job}"
        return f"keeps {job}"

    def counts(self, lane: Lane) -> tuple[int, int, int]:
        """Count in the request log."""
        return len(self._jobs(lane)), len(self._requests(lane, "submit")), len(self._requests(lane, "cancel"))

    def _jobs(self, lane: Lane) -> list[Any]:
        return [one["job"] for one in self._requests(lane, "submit", created=True)]

    def _requests(
        self, lane: Lane, verb: str | None = None, *, try_number: int | None = None, **filters: Any
    ) -> list[dict[str, Any]]:
        # Both operators name themselves dag/run/task/map index/try.
        client = f"{self.dag_id(lane.case)}/{lane.case.name}/{lane.side}/-1/{try_number or ''}"
        return self._service(lane).requests(verb, client_contains=client, **filters)

    def _service(self, lane: Lane) -> JobService:
        return self._services.get(_name(lane)) or self._services["jobs"]

    def _start(self, name: str) -> JobService:
        service = self._running.enter_context(JobService(self._folder / name))
        self._services[name] = service
        return service

    def _gate(self, lane: Lane) -> str:
        return str(self._folder / f"{_name(lane)}.gate")


def _name(lane: Lane) -> str:
    return f"{lane.case.name}-{lane.side}"
