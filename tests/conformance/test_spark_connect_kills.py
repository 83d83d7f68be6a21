# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Workers of a Spark Connect operation that die: real processes, and the server's own list."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import pytest

from airflow_resumable.testing.connect_gate import asking
from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.spark_connect import SparkConnectServer
from tests.connect_attempts import SUCCEEDS, USER, ConnectTask, connection
from tests.connect_service import ConnectService
from tests.spark_attempts import until


@pytest.fixture
def task(connect: ConnectService, connect_server: SparkConnectServer, tmp_path: Path) -> ConnectTask:
    """A task whose statement waits at the gate, and whose attempts talk to the server itself."""
    return ConnectTask(connection(connect_server.port), tmp_path / "store", connect.gate.closed)


@pytest.mark.parametrize("point", ["after_accept", "mid_poll"])
def test_a_killed_worker_is_followed_by_one_that_reattaches(
    connect: ConnectService, task: ConnectTask, point: str
) -> None:
    """SIGKILL before the id is on record, and in mid query: one Spark job, and its rows are returned."""
    attempt = task.start(at=point)
    attempt.wait_at_point()
    attempt.kill()
    (running,) = connect.jobs()
    connect.release()

    assert task.run(2) == [{"n": 2000}]
    assert [job.external_id for job in connect.jobs()] == [running.external_id]
    assert (task.record["phase"], task.record["generation"]) == ("succeeded", 1)


def test_an_evicted_worker_leaves_the_operation_alone(
    connect: ConnectService, connect_server: SparkConnectServer, connect_proxy: ConnectProxy, tmp_path: Path
) -> None:
    """SIGTERM: no interrupt, no release, the process is gone at once, and the statement runs on."""
    task = ConnectTask(connection(connect_proxy.port), tmp_path / "store", connect.gate.closed)
    attempt = task.start(at="mid_poll")
    attempt.wait_at_point()

    assert attempt.stop() == "JobKept"
    assert [job.live for job in connect.jobs()] == [True]
    assert not {"Interrupt", "ReleaseExecute", "ReleaseSession"} & set(connect_proxy.requests)


def test_two_attempts_at_once_run_one_operation(
    connect: ConnectService, connect_server: SparkConnectServer
) -> None:
    """Both send the same token at the same moment; the server has one operation."""
    from airflow_resumable.operators import _connect_plan

    operation, both, started = str(uuid.uuid4()), threading.Barrier(2), []

    def run() -> None:
        with asking(connect_server.port, USER) as client:
            both.wait()
            started.append(client.start(operation, _connect_plan.of_sql(SUCCEEDS, 1), {}))

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
