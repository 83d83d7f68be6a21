# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Workers of a Spark Connect operation that die: real processes, and the server's own list."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from pathlib import Path

import pytest

from airflow_resumable.operators import _connect_errors as errors
from airflow_resumable.operators._connect_errors import grpc
from airflow_resumable.operators._connect_plan import of_sql
from airflow_resumable.testing.connect_gate import asking
from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.spark_connect import SparkConnectServer
from airflow_resumable.testing.task_tries import TaskTries
from tests.connect_attempts import SUCCEEDS, USER, ConnectAttempt, ConnectTask, connection, operator
from tests.connect_service import ConnectService, Pause
from tests.spark_attempts import until

TOUCHES = {"Interrupt", "ReleaseExecute", "ReleaseSession"}
"""The requests that an operation doesn't outlive unchanged."""
MANY = "SELECT id, repeat('x', 10) AS x FROM range(0, 200, 1, 1)"
FEW_PER_BATCH = {"spark.sql.execution.arrow.maxRecordsPerBatch": "5"}


@pytest.fixture
def table(connect: ConnectService) -> str:
    """An empty table of one number."""
    name = f"t{uuid.uuid4().hex}"
    TaskTries().run(operator(f"CREATE TABLE {name} (n BIGINT) USING parquet"))
    return name


def _die(attempt: ConnectAttempt, death: str) -> None:
    if death == "SIGTERM":
        assert attempt.stop() == "JobKept"
    else:
        attempt.kill()


@pytest.mark.parametrize("death", ["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("answer", [("ExecutePlan", 1), ("GetStatus", 3)], ids=["in submit", "in mid-poll"])
def test_a_statement_outlives_its_worker(
    connect: ConnectService,
    connect_proxy: ConnectProxy,
    tmp_path: Path,
    table: str,
    answer: tuple[str, int],
    death: str,
) -> None:
    """The worker dies while it waits for an answer: one operation, not touched, and its row is there once."""
    before, pause = connect.operations, Pause(*answer)
    task = ConnectTask(
        connection(connect_proxy.port), tmp_path / "store", f"INSERT INTO {table} {connect.gate.closed}"
    )
    connect_proxy.held, connect_proxy.requests = pause, Counter()
    attempt = task.start()
    pause.wait()
    _die(attempt, death)
    pause.end()
    assert not TOUCHES & set(connect_proxy.requests)
    (operation,) = connect.operations[len(before) :]
    with asking(connect.server.port, USER) as client:
        assert client.state(operation) == "RUNNING"
    connect.release()

    assert task.run(2) == []
    assert connect.operations[len(before) :] == [operation] == [task.record["external_id"]]
    assert task.record["generation"] == 1
    assert TaskTries().run(operator(f"SELECT count(*) AS n FROM {table}")) == [{"n": 1}]


@pytest.mark.parametrize("death", ["SIGKILL", "SIGTERM"])
def test_a_result_that_was_half_read_is_read_by_the_next_try(
    connect: ConnectService, connect_proxy: ConnectProxy, tmp_path: Path, death: str
) -> None:
    """It is sent in 40 parts, of which the worker has got two; the next one has all of them."""
    task = ConnectTask(
        connection(connect_proxy.port), tmp_path / "store", MANY, arguments={"conf": FEW_PER_BATCH}
    )
    pause = connect_proxy.held = Pause("ReattachExecute", 4)
    attempt = task.start()
    pause.wait()
    _die(attempt, death)
    pause.end()
    assert not TOUCHES & set(connect_proxy.requests)

    assert [row["id"] for row in task.run(2)] == list(range(200))
    assert connect.operations == [task.record["external_id"]]
    assert task.record["generation"] == 1


def test_a_request_that_arrives_after_its_worker_has_died_starts_nothing(
    connect: ConnectService, connect_proxy: ConnectProxy, tmp_path: Path, table: str
) -> None:
    """The next try has started the operation by then, under the same id."""
    task = ConnectTask(connection(connect_proxy.port), tmp_path / "store", f"INSERT INTO {table} VALUES (1)")
    before = connect.operations
    pause = connect_proxy.asked = Pause("ExecutePlan")
    attempt = task.start()
    pause.wait()
    attempt.kill()
    assert connect.operations == before
    assert task.run(2) == []

    with grpc.insecure_channel(f"127.0.0.1:{connect.server.port}") as channel:
        late = channel.unary_stream("/spark.connect.SparkConnectService/ExecutePlan")(connect_proxy.plans[0])
        with pytest.raises(grpc.RpcError) as refused:
            list(late)
    pause.end()
    assert errors.error_class(refused.value) in errors.TAKEN
    assert connect.operations[len(before) :] == [task.record["external_id"]]
    assert TaskTries().run(operator(f"SELECT count(*) AS n FROM {table}")) == [{"n": 1}]


def test_two_attempts_at_once_run_one_operation(
    connect: ConnectService, connect_server: SparkConnectServer
) -> None:
    """Both send the same token at the same moment; the server has one operation."""
    operation, both, started = str(uuid.uuid4()), threading.Barrier(2), []

    def run() -> None:
        with asking(connect_server.port, USER) as client:
            both.wait()
            started.append(client.start(operation, of_sql(SUCCEEDS, 1), {}))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(started) == [False, True]
    with asking(connect_server.port, USER) as client:
        until(lambda: client.state(operation) != "RUNNING")
        assert client.ending(operation).state == "FINISHED"
    assert [job.external_id for job in connect.jobs()] == [operation]


def test_a_task_that_is_not_durable_takes_its_operation_along(
    connect: ConnectService, connect_proxy: ConnectProxy, connect_server: SparkConnectServer, tmp_path: Path
) -> None:
    """As the parent of any operator that runs something does when it is stopped."""
    task = ConnectTask(
        connection(connect_proxy.port), tmp_path / "store", connect.gate.closed, arguments={"durable": False}
    )
    attempt = task.start()
    until(lambda: any(job.live for job in connect.jobs()))
    attempt.stop()
    assert connect_proxy.requests["Interrupt"] == 1
    until(lambda: not any(job.live for job in connect.jobs()))
