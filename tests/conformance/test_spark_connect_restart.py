# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A Spark Connect server that ends, or that drops an operation: each test has its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_resumable.jobs.errors import JobMissing
from airflow_resumable.operators.spark_connect import ResumableSparkConnectOperator
from airflow_resumable.testing.connect_gate import Gate
from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.spark_connect import SparkConnectServer
from airflow_resumable.testing.task_tries import TaskTries
from tests import systems
from tests.connect_attempts import CONNECTION, SUCCEEDS, USER, ConnectTask, connection, operator
from tests.connect_service import Pause
from tests.spark_attempts import until

pytestmark = pytest.mark.slow

_IMPATIENT = {
    "spark.connect.execute.manager.detachedTimeout": "3s",
    "spark.connect.execute.manager.maintenanceInterval": "1s",
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "2s",
}


@pytest.fixture
def own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[SparkConnectServer]:
    """A server that the test may kill."""
    systems.require("java")
    systems.require("pyspark")
    with SparkConnectServer(tmp_path / "own", getattr(request, "param", None)) as running:
        monkeypatch.setenv(CONNECTION, connection(running.port))
        yield running


def test_a_restarted_server_has_lost_the_operation(own: SparkConnectServer, tries: TaskTries) -> None:
    """The task fails with a clear error by default, and nothing is started."""
    gate = Gate(own.port)
    assert tries.crash(lambda: operator(gate.closed), "mid_poll")
    own.kill()
    own.start()
    with pytest.raises(JobMissing):
        tries.run(operator(gate.closed))
    assert own.jobs() == []


def test_a_server_that_is_restarted_under_a_worker_fails_its_try(
    own: SparkConnectServer, tmp_path: Path
) -> None:
    """The worker outlives the outage, is told that the operation is gone, and starts no other one."""
    with ConnectProxy(own.port) as proxy:
        pause = proxy.held = Pause("GetStatus", 3)
        task = ConnectTask(connection(proxy.port), tmp_path / "store", Gate(own.port).closed)
        attempt = task.start()
        pause.wait()
        own.kill()
        own.start()
        pause.end()
        assert attempt.end(120.0) == "JobMissing"
        with pytest.raises(JobMissing):
            task.run(2)
    assert own.operations(USER) == [task.record["external_id"]]


def test_a_server_that_is_restarted_in_a_submit_is_asked_again(
    own: SparkConnectServer, tmp_path: Path
) -> None:
    """It took the operation along when it ended, and its answer never came: the new one starts it anew."""
    gate = Gate(own.port)
    with ConnectProxy(own.port) as proxy:
        proxy.fail(("ExecutePlan",), "lost_reply", 1)
        # The first asks before the submit, the second whether it has arrived.
        pause = proxy.asked = Pause("GetStatus", 2)
        task = ConnectTask(connection(proxy.port), tmp_path / "store", gate.closed)
        attempt = task.start()
        pause.wait()
        own.kill()
        own.start()
        pause.end()
        until(lambda: len(own.operations(USER)) == 2)
        gate.open()
        assert attempt.end(120.0) == "returned"
    assert own.operations(USER) == [task.record["external_id"]] * 2
    assert task.record["generation"] == 1


@pytest.mark.parametrize("own", [_IMPATIENT], indirect=True)
@pytest.mark.parametrize("deferred", [False, True], ids=["by the worker", "by the triggerer"])
def test_an_operation_that_is_watched_is_kept(
    own: SparkConnectServer, tries: TaskTries, deferred: bool
) -> None:
    """Looks attach often enough: it runs for three times as long as the server keeps a detached one."""
    gate, keeps = Gate(own.port), timedelta(seconds=3)
    opening = threading.Timer(3 * keeps.total_seconds(), gate.open)
    opening.start()

    def make() -> ResumableSparkConnectOperator:
        return operator(gate.closed, detached_timeout=keeps)

    if deferred:
        watched = tries.defer(make())
        result = watched.resume(make(), watched.event(60))
    else:
        result = tries.run(make())
    opening.join()
    assert result == [{"n": 2000}]
    assert tries.record(make())["generation"] == 1


@pytest.mark.parametrize("own", [_IMPATIENT], indirect=True)
def test_an_operation_that_nobody_attaches_to_is_cancelled_by_the_server(
    own: SparkConnectServer, tries: TaskTries
) -> None:
    """What happens to a retry that comes too late: it knows, and starts the next generation."""
    gate = Gate(own.port)
    assert tries.crash(lambda: operator(gate.closed), "mid_poll")
    until(lambda: [job.state for job in own.jobs()] == ["FAILED"])
    assert tries.run(operator(SUCCEEDS)) == [{"n": 2000}]
    assert tries.record(operator(SUCCEEDS))["generation"] == 2


@pytest.mark.parametrize("own", [_IMPATIENT], indirect=True)
def test_an_operation_that_ended_unwatched_is_a_success_where_its_rows_are_not_wanted(
    own: SparkConnectServer, tries: TaskTries
) -> None:
    """The server dropped it, and still tells that it has done its work: it is not run again."""
    assert tries.crash(lambda: operator(SUCCEEDS), "after_id")
    (operation,) = own.operations(USER)
    log = own.work_dir / "processes" / "connect.log"
    until(lambda: f"{operation}) is removed" in log.read_text(encoding="utf-8", errors="replace"))
    with pytest.raises(JobMissing, match="its result was not kept"):
        tries.run(operator(SUCCEEDS))
    assert tries.run(operator(SUCCEEDS, do_xcom_push=False)) is None
    assert own.operations(USER) == [operation]


@pytest.mark.parametrize("own", [_IMPATIENT], indirect=True)
def test_a_statement_without_rows_that_ended_unwatched_is_not_run_again(
    own: SparkConnectServer, tries: TaskTries
) -> None:
    """It has done its work, and there is nothing to return."""
    sql = "CREATE TABLE once USING parquet AS SELECT id FROM range(0, 3, 1, 1)"
    assert tries.crash(lambda: operator(sql), "after_id")
    log = own.work_dir / "processes" / "connect.log"
    until(lambda: " is removed" in log.read_text(encoding="utf-8", errors="replace"))
    assert tries.run(operator(sql)) == []
    assert len(own.operations(USER)) == 1
