# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's part for Spark Connect, as far as it needs no server."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.cli.demo import host
from airflow_resumable.cli.demo.cases import BEFORE_ID, MARK_FAILED, MID_POLL, TIME_OUT, Case
from airflow_resumable.cli.demo.connect import CASES, ConnectJobs, statements
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.errors import SystemUnavailable
from airflow_resumable.testing.spark_connect import ConnectJob, SparkConnectServer

_OURS = Lane(MID_POLL, "ours")


class _Server(SparkConnectServer):
    """A server that isn't started, with these operations in its log, by user, and Spark jobs of these."""

    def __init__(self, folder: Path, started: dict[str, list[str]], ran: Sequence[str]) -> None:
        super().__init__(folder)
        self._started, self._ran = started, ran

    def operations(self, user: str) -> list[str]:
        """Return the user's."""
        return self._started.get(user, [])

    def jobs(self) -> list[ConnectJob]:
        """Return a Spark job for each."""
        return [ConnectJob(number, one, "any", "RUNNING") for number, one in enumerate(self._ran)]


class _Jobs(ConnectJobs):
    """The system, with one lane's gateway, and no server."""

    def __init__(
        self, folder: Path, lane: Lane, started: dict[str, list[str]], ran: Sequence[str] = ()
    ) -> None:
        super().__init__(folder)
        self._server = _Server(folder, started, ran)
        self.gateway = ConnectProxy(self._server.port)
        self._proxies[lane.key] = self.gateway


def _request(operation: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import pyspark.sql.connect.proto as pb

    return pb.ExecutePlanRequest(operation_id=operation)


def _query(operation: str) -> bytes:
    request = _request(operation)
    request.plan.root.sql.query = "SELECT 1"
    return bytes(request.SerializeToString())


def _read_only(operation: str) -> bytes:
    request = _request(operation)
    request.plan.command.sql_command.input.sql.query = "SELECT 1"
    return bytes(request.SerializeToString())


def test_the_request_of_spark_sql_runs_no_statement() -> None:
    """It only has the server read the query; the one that asks for rows runs it."""
    assert statements([_read_only("a"), _query("b"), _read_only("c"), _query("d")]) == ["b", "d"]


def test_the_operations_of_the_lanes_user_are_counted(tmp_path: Path) -> None:
    """Other lanes' count for nothing, what only reads neither; a refused request is a submit and no job."""
    started = {"mid-poll-ours": ["read", "run"], "mid-poll-stock": ["other"]}
    jobs = _Jobs(tmp_path, _OURS, started, ran=["run", "other"])
    jobs.gateway.plans += [_read_only("read"), _query("run"), _query("refused")]
    jobs.gateway.requests["Interrupt"] = 1

    assert jobs.counts(_OURS) == (1, 2, 1)


def test_an_operation_that_ran_twice_counts_twice(tmp_path: Path) -> None:
    """By the server's list of Spark jobs."""
    jobs = _Jobs(tmp_path, _OURS, {"mid-poll-ours": ["run"]}, ran=["run", "run"])
    jobs.gateway.plans.append(_query("run"))

    assert jobs.counts(_OURS) == (2, 1, 0)


@pytest.mark.parametrize(
    ("case", "started", "interrupts", "said"),
    [
        (MID_POLL, ["a"], 0, "keeps job 1"),
        (BEFORE_ID, ["a"], 0, "finds job 1"),
        (MID_POLL, ["a", "b"], 0, "starts job 2"),
        (MARK_FAILED, ["a"], 1, "has cancelled job 1"),
        (BEFORE_ID, [], 0, "has no job"),
    ],
)
def test_a_decision_is_told_by_what_was_asked(
    case: Case, started: list[str], interrupts: int, said: str, tmp_path: Path
) -> None:
    """In a few words, from the server's log and the gateway."""
    lane = Lane(case, "stock")
    jobs = _Jobs(tmp_path, lane, {f"{case.name}-stock": started})
    jobs.gateway.plans += map(_query, started)
    jobs.gateway.requests["Interrupt"] = interrupts

    assert jobs.decision(lane, 2) == said


def test_no_case_has_a_window() -> None:
    """An operation's id is the token, so two jobs are never allowed where one is right."""
    assert not [case.name for case in CASES if case.window]


def test_only_the_time_out_has_a_dag_of_its_own(tmp_path: Path) -> None:
    """All other cases are runs of one Dag."""
    jobs = ConnectJobs(tmp_path)

    assert {jobs.dag_id(case) for case in CASES if case is not TIME_OUT} == {"demo_connect"}
    assert jobs.dag_id(TIME_OUT) == "demo_connect_time_out"


def test_a_lanes_connection_has_a_user_of_its_own(tmp_path: Path) -> None:
    """By which its operations are told from the others'."""
    ((name, value),) = _Jobs(tmp_path, _OURS, {}).environment.items()

    assert name == "AIRFLOW_CONN_CONNECT_MID_POLL_OURS"
    assert json.loads(value)["login"] == "mid-poll-ours"


def test_a_missing_java_is_said_with_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME names a folder without one."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(host._LEAST_MEMORY, "spark-connect", 0)

    with pytest.raises(SystemUnavailable, match="JAVA_HOME"):
        host.require("spark-connect")


def test_a_missing_package_is_said_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of those that pyspark's client imports."""
    monkeypatch.setattr(host, "_PROVIDER", "no-such-package")

    with pytest.raises(SystemUnavailable, match=r"no-such-package.*pip install 'airflow-resumable\[spark\]'"):
        host._require_package(host._PROVIDER, "spark")
