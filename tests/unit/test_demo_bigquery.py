# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's part for BigQuery, as far as it needs no emulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_resumable.cli.demo import host
from airflow_resumable.cli.demo.bigquery import CASES, BigQueryJobs
from airflow_resumable.cli.demo.cases import BEFORE_ID, LOST_REPLY, MARK_FAILED, MID_POLL, STATUS_503, Case
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.testing.bigquery import programs
from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator, Call
from airflow_resumable.testing.errors import SystemUnavailable
from airflow_resumable.testing.http_faults import HttpRequest

_OURS = Lane(MID_POLL, "ours")
_JOBS = "/bigquery/v2/projects/proj/jobs"


def _insert(job_id: str, status: int = 200) -> Call:
    return Call(1.0, "POST", _JOBS, status, job_id, "US")


def _cancel(job_id: str) -> Call:
    return Call(1.0, "POST", f"{_JOBS}/{job_id}/cancel", 200, job_id, "US")


class _Emulator(BigQueryEmulator):
    """An emulator that isn't started, with these requests in its log."""

    def __init__(self, folder: Path, calls: list[Call]) -> None:
        super().__init__(folder)
        self._calls = calls

    def calls(self) -> list[Call]:
        """Return them."""
        return self._calls


class _Jobs(BigQueryJobs):
    """The system, with a log and no emulator."""

    def __init__(self, folder: Path, *calls: Call) -> None:
        super().__init__(folder)
        self._emulator = _Emulator(folder, list(calls))


def test_the_lanes_own_requests_are_counted(tmp_path: Path) -> None:
    """By the beginning of the jobs' ids; a refused submit is a submit and no job."""
    jobs = _Jobs(
        tmp_path,
        _insert("mid-poll-ours_r1"),
        _insert("mid-poll-ours_r1", 409),
        _insert("mid-poll-stock_1"),
        _cancel("mid-poll-ours_r1"),
        Call(1.0, "GET", f"{_JOBS}/mid-poll-ours_r1", 200, "mid-poll-ours_r1", "US"),
    )
    assert jobs.counts(_OURS) == (1, 2, 1)


@pytest.mark.parametrize(
    ("case", "calls", "said"),
    [
        (MID_POLL, ["a"], "keeps job 1"),
        (BEFORE_ID, ["a"], "finds job 1"),
        (MID_POLL, ["a", "b"], "starts job 2"),
        (BEFORE_ID, [], "has no job"),
    ],
)
def test_a_decision_is_told_by_what_was_asked(
    case: Case, calls: list[str], said: str, tmp_path: Path
) -> None:
    """In a few words, from the emulator's log."""
    jobs = _Jobs(tmp_path, *(_insert(f"{case.name}-stock_{one}") for one in calls))
    assert jobs.decision(Lane(case, "stock"), 2) == said


def test_a_cancel_is_told(tmp_path: Path) -> None:
    """It comes before anything else."""
    jobs = _Jobs(tmp_path, _insert("mark-fail-ours_r1"), _cancel("mark-fail-ours_r1"))
    assert jobs.decision(Lane(MARK_FAILED, "ours"), 1) == "has cancelled job 1"


def test_only_the_lanes_requests_are_spoiled(tmp_path: Path) -> None:
    """Submits by the id in their body, looks by the id in their path."""
    jobs = _Jobs(tmp_path)
    submits = jobs._requests_of(Lane(LOST_REPLY, "ours"))
    body = json.dumps({"jobReference": {"jobId": "lost-reply-ours_r1"}}).encode()
    assert submits(HttpRequest("POST", _JOBS, {}, body))
    assert not submits(HttpRequest("POST", _JOBS, {}, body.replace(b"ours", b"stock")))
    looks = jobs._requests_of(Lane(STATUS_503, "stock"))
    assert looks(HttpRequest("GET", f"{_JOBS}/status-503-stock_1?location=US", {}, b""))
    assert not looks(HttpRequest("GET", f"{_JOBS}/status-503-ours_1?location=US", {}, b""))


def test_no_case_has_a_window() -> None:
    """A job's id is the token's, so two jobs are never allowed where one is right."""
    assert not any(case.window for case in CASES)


def test_a_host_without_the_emulator_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(host._LEAST_MEMORY, "bigquery", 0)
    with pytest.raises(SystemUnavailable, match=r"scripts/bigquery_emulator\.sh") as missing:
        host.require("bigquery")
    assert programs.REMEDY in str(missing.value)
