# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a task returns and says of an operation of a real Spark Connect server."""

from __future__ import annotations

import runpy
import uuid
from typing import Any

import pytest

from airflow_resumable.integration.examples import example_dags_folder
from airflow_resumable.operators.spark_connect import ResumableSparkConnectOperator
from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.spark_connect import SparkConnectServer
from airflow_resumable.testing.task_tries import TaskTries
from tests.connect_attempts import FAILS, SUCCEEDS, operator
from tests.connect_service import ConnectService


def test_a_statement_that_does_something_is_run_once(connect: ConnectService) -> None:
    """CREATE TABLE AS, INSERT and a query of what they left: rows are there once."""
    table = f"t{uuid.uuid4().hex}"

    def run(sql: str) -> Any:
        return TaskTries().run(operator(sql))

    assert run(f"CREATE TABLE {table} USING parquet AS SELECT id FROM range(0, 10, 1, 1)") == []
    assert run(f"INSERT INTO {table} SELECT id FROM range(0, 7, 1, 1)") == []
    assert len(connect.jobs()) == 2
    assert run(f"SELECT count(*) AS n FROM {table}") == [{"n": 17}]
    run(f"DROP TABLE {table}")


def test_a_stream_that_breaks_is_not_a_failure_of_spark(
    connect: ConnectService, connect_proxy: ConnectProxy, tries: TaskTries
) -> None:
    """While the end of an INSERT that succeeded is read: it is read once more, and nothing runs again."""
    table = f"t{uuid.uuid4().hex}"
    TaskTries().run(operator(f"CREATE TABLE {table} (id BIGINT) USING parquet"))
    connect_proxy.fail(("ReattachExecute",), "broken", 2)
    subject = operator(f"INSERT INTO {table} SELECT id FROM range(0, 7, 1, 1)")
    assert tries.run(subject) == []
    assert tries.record(subject)["generation"] == 1
    assert TaskTries().run(operator(f"SELECT count(*) AS n FROM {table}")) == [{"n": 7}]


def test_rows_are_what_json_can_hold(connect: ConnectService, tries: TaskTries) -> None:
    """No digit of a decimal is lost, columns of one name are told apart, and a limit is kept."""
    sql = (
        "SELECT id, CAST(id AS DECIMAL(10, 2)) AS d, DATE'2026-11-29' AS day, X'00ff' AS b, "
        "map('k', 1) AS m, named_struct('x', 1) AS s, double('NaN') AS nan, id "
        "FROM range(0, 5, 1, 1) ORDER BY id"
    )
    rows = tries.run(operator(sql, result_rows_limit=2))
    assert [row["id"] for row in rows] == [0, 1]
    assert rows[1] == {
        "id": 1, "d": "1.00", "day": "2026-11-29", "b": "AP8=", "m": [["k", 1]], "s": {"x": 1}, "nan": "nan",
        "id_2": 1,
    }  # fmt: skip


def test_the_example_does_what_it_says(connect: ConnectService) -> None:
    """Both of its tasks, the one that a worker watches and the one that is deferred."""
    made = runpy.run_path(str(example_dags_folder() / "resumable_spark_connect.py"))
    total, counts = made["total"], made["counts"]
    total.sql = total.sql.replace("{{ params.size }}", "1000")
    counts.op_kwargs = {"size": "1000"}

    assert TaskTries().run(total) == [{"total": 499_500}]
    deferred = TaskTries().defer(counts)
    assert len(deferred.resume(counts, deferred.event(60))) == 7
    assert len({job.external_id for job in connect.jobs()}) == 2


def test_a_failure_says_what_spark_says(connect: ConnectService, tries: TaskTries) -> None:
    """The exception has Spark's own words, for a failed job and for a statement that can't be parsed."""
    with pytest.raises(Exception, match="broken 0"):
        tries.run(operator(FAILS))
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        TaskTries().run(operator("SELEC 1"))


def test_the_link_leads_to_the_sessions_page(
    connect: ConnectService, connect_server: SparkConnectServer, tries: TaskTries
) -> None:
    """The page of the server's web UI exists and names the operation."""
    import httpx

    subject = operator(SUCCEEDS)
    tries.run(subject)
    url = dict(tries.xcoms)["_link_JobLink"]
    page = httpx.get(url, trust_env=False)
    assert page.status_code == 200
    assert tries.record(subject)["external_id"] in page.text


def test_settings_reach_the_session(connect: ConnectService, tries: TaskTries) -> None:
    """`conf` holds for the operation and for no other."""
    conf = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    assert tries.run(operator("SELECT current_timezone() AS z", conf=conf)) == [{"z": "Asia/Tokyo"}]


def test_a_result_too_large_for_the_record_is_found_in_the_server(
    connect: ConnectService, tries: TaskTries
) -> None:
    """A try dies after the outcome was recorded: the next one reads the rows from the server."""

    def make() -> ResumableSparkConnectOperator:
        return operator("SELECT id, repeat('x', 100) AS x FROM range(0, 300, 1, 1)")

    assert tries.crash(make, "after_outcome")
    assert tries.crash(make, "before_return")
    assert len(tries.run(make())) == 300
    assert len({job.external_id for job in connect.jobs()}) == 1


def test_a_refused_user_is_told_what_to_check(
    connect: ConnectService, connect_proxy: ConnectProxy, tries: TaskTries
) -> None:
    """Not retried, and the error names the connection."""
    connect_proxy.fail(("GetStatus",), "denied", 1)
    with pytest.raises(PermissionError, match="login and password of connection 'spark_connect_default'"):
        tries.run(operator(SUCCEEDS))
    assert connect.jobs() == []


def test_a_server_that_tells_no_status_is_asked_by_stream(
    connect: ConnectService, connect_proxy: ConnectProxy, tries: TaskTries
) -> None:
    """As servers before 4.2: one Spark job over a crash, and its rows."""
    connect_proxy.fail(("GetStatus",), "unimplemented", 10_000)

    def make() -> ResumableSparkConnectOperator:
        return operator(connect.gate.closed)

    assert tries.crash(make, "after_accept")
    connect.release()
    assert tries.run(make()) == [{"n": 2000}]
    assert len(connect.jobs()) == 1
