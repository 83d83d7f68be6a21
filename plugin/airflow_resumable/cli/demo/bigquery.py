# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo on a BigQuery emulator, whose own request log is what counts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_resumable.cli.demo.cases import (
    BEFORE_ID,
    CLEAR_DONE,
    CLEAR_LIVE,
    LOST_REPLY,
    MARK_FAILED,
    MID_POLL,
    SIGTERM,
    STATUS_503,
    SUPERVISOR,
    TIME_OUT,
    Case,
)
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator, Call, until
from airflow_resumable.testing.bigquery.replies import REPLIES
from airflow_resumable.testing.demo import BIGQUERY_JOBS
from airflow_resumable.testing.http_faults import HttpFaultProxy, HttpRequest, Kind, Match, path

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
_SPOILED: dict[str, tuple[Kind, int]] = {
    LOST_REPLY.name: ("lost_reply", 1),
    STATUS_503.name: ("unavailable", 3),
}


class BigQueryJobs:
    """A BigQuery emulator, with a proxy before it.

    Args:
        folder: Where its data and the jobs' gates are kept.
    """

    name = "a BigQuery emulator"
    stock = "the Google provider's BigQueryInsertJobOperator"
    ours = "ResumableBigQueryInsertJobOperator"
    oracle = "the emulator's request log"
    cases: Sequence[Case] = CASES
    dag_file = BIGQUERY_JOBS
    # What a worker imports to talk to Google takes a core for seconds.
    at_once = 3
    slots = 6
    patience = 150.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self._emulator = BigQueryEmulator(folder / "bigquery")

    def __enter__(self) -> Self:
        """Start the emulator and the proxy."""
        with ExitStack() as starting:
            emulator = starting.enter_context(self._emulator)
            self._proxy = starting.enter_context(HttpFaultProxy(emulator.port, replies=REPLIES))
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop both, running queries included."""
        self._running.close()

    @property
    def versions(self) -> Mapping[str, str]:
        """The provider's and the one of Google's client."""
        return {
            "Google provider": version("apache-airflow-providers-google"),
            "google-cloud-bigquery": version("google-cloud-bigquery"),
        }

    @property
    def environment(self) -> Mapping[str, str]:
        """A connection without keys, and where Google's own client finds an emulator."""
        extra = {"is_anonymous": True, "project": self._emulator.project, "use_legacy_sql": False}
        return {
            "AIRFLOW_CONN_BIGQUERY_DEMO": json.dumps({"conn_type": "google_cloud_platform", "extra": extra}),
            "BIGQUERY_EMULATOR_HOST": self._proxy.url,
        }

    def dag_id(self, case: Case) -> str:
        """Return the Dag whose runs are the cases; a time-out needs one of its own."""
        return "demo_bigquery_time_out" if case is TIME_OUT else "demo_bigquery"

    def prepare(self, lane: Lane) -> dict[str, Any]:
        """Return the lane's query and the beginning of its jobs' ids; a lost reply is due at once."""
        if lane.case is LOST_REPLY:
            self.spoil(lane)
        return {"sql": until(self._gate(lane)), "job_id": _prefix(lane)}

    def spoil(self, lane: Lane) -> None:
        """Make the proxy spoil the next submits of the lane, or the next looks at its jobs."""
        fault, times = _SPOILED[lane.case.name]
        self._proxy.fail(fault, self._requests_of(lane), times=times)

    def spoiled_at(self, lane: Lane) -> float | None:
        """Return when the proxy had spoiled as many as it should."""
        fault, times = _SPOILED[lane.case.name]
        mine = self._requests_of(lane)
        hit = [one.at for one in self._proxy.seen if one.spoiled == fault and mine(one.request)]
        return hit[times - 1] if len(hit) >= times else None

    def tell(self, lane: Lane) -> None:
        """Open the gate that the lane's queries wait for."""
        self._gate(lane).touch()

    def decision(self, lane: Lane, try_number: int) -> str:
        """Say whether there is another job by now, or a cancel."""
        jobs, _, cancels = self.counts(lane)
        if jobs != 1:
            return f"starts job {jobs}" if jobs else "has no job"
        if cancels:
            return "has cancelled job 1"
        return "keeps job 1" if lane.case.recorded else "finds job 1"

    def counts(self, lane: Lane) -> tuple[int, int, int]:
        """Count in the emulator's log: submits answered 200, all submits, cancels."""
        calls = self._calls(lane)
        submits = [call for call in calls if call.is_insert]
        started = [call for call in submits if call.status == 200]
        return len(started), len(submits), sum(call.is_cancel for call in calls)

    def _calls(self, lane: Lane) -> list[Call]:
        return [call for call in self._emulator.calls() if call.job_id.startswith(f"{_prefix(lane)}_")]

    def _requests_of(self, lane: Lane) -> Match:
        if lane.case is STATUS_503:
            return path("GET", rf"/jobs/{re.escape(_prefix(lane))}_")
        job_id = f'"{_prefix(lane)}_'.encode()

        def submits(request: HttpRequest) -> bool:
            return request.method == "POST" and job_id in request.body

        return submits

    def _gate(self, lane: Lane) -> Path:
        return self._folder / f"{_prefix(lane)}.gate"


def _prefix(lane: Lane) -> str:
    return f"{lane.case.name}-{lane.side}"
