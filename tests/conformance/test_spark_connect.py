# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableSparkConnectOperator` on a real server; the server's own list of Spark jobs counts."""

from __future__ import annotations

import runpy
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.integration.examples import example_dags_folder
from airflow_resumable.jobs.errors import JobMissing, JobNotFound
from airflow_resumable.operators.spark_connect import ResumableSparkConnectOperator
from airflow_resumable.testing.conformance import JobConformance, SeenJob, ServiceUnderTest
from airflow_resumable.testing.connect_gate import Gate, asking
from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.spark_connect import SparkConnectServer
from airflow_resumable.testing.task_tries import TaskTries
from tests import systems
from tests.connect_attempts import (
    CONNECTION,
    FAILS,
    SUCCEEDS,
    USER,
    ConnectTask,
    connection,
    operator,
)
from tests.spark_attempts import until

_CALLS = {
    "submit": ("ExecutePlan",),
    "status": ("GetStatus", "ReattachExecute"),
    "find": ("GetStatus", "ReattachExecute"),
    "cancel": ("Interrupt",),
}


_IMPATIENT = {
    "spark.connect.execute.manager.detachedTimeout": "3s",
    "spark.connect.execute.manager.maintenanceInterval": "1s",
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "2s",
}


# What pyspark says of each pandas that is newer than itself, where a function or data of the user's own makes
# it load pandas.
_PANDAS = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnectServer]:
    """One server for all tests of this module."""
    systems.require("java")
    systems.require("pyspark")
    with SparkConnectServer(tmp_path_factory.mktemp("connect")) as running:
        yield running


@pytest.fixture
def proxy(server: SparkConnectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConnectProxy]:
    """A gateway before the server, which the connection of this process names."""
    with ConnectProxy(server.port) as running:
        monkeypatch.setenv(CONNECTION, connection(running.port, ui_url=server.ui_url))
        yield running


class ConnectService(ServiceUnderTest):
    """The server, as the conformance suite sees it."""

    def __init__(self, server: SparkConnectServer, proxy: ConnectProxy) -> None:
        self.server, self.proxy, self.gate = server, proxy, Gate(server.port)
        self._before = len(server.operations(USER))

    def jobs(self) -> list[SeenJob]:
        """Read the server's own log; an operation that ran more than one Spark job counts more than once."""
        operations = self.server.operations(USER)[self._before :]
        ran = Counter(job.operation for job in self.server.jobs())
        return [SeenJob(one, self._is_live(one)) for one in operations for _ in range(max(1, ran[one]))]

    def _is_live(self, operation: str) -> bool:
        with asking(self.server.port, USER) as client:
            try:
                return str(client.state(operation)) == "RUNNING"
            except JobNotFound:
                # Dropped; what it had started may take a moment longer.
                return any(
                    job.operation == operation and job.state == "RUNNING" for job in self.server.jobs()
                )

    def release(self) -> None:
        """Open the gate that running statements wait for."""
        self.gate.open()

    def forget(self, external_id: Any) -> None:
        """Have the server drop the session."""
        with asking(self.server.port, USER) as client:
            client.release(external_id)

    def cancels(self) -> int:
        """Count at the gateway."""
        return self.proxy.requests["Interrupt"]

    def fail(self, call: Any, fault: Any, times: int) -> None:
        """Have the gateway break requests."""
        self.proxy.fail(_CALLS[call], fault, times)


@pytest.fixture
def service(server: SparkConnectServer, proxy: ConnectProxy) -> Iterator[ConnectService]:
    """A view of the server with no job in it yet; in the end nothing waits any more."""
    view = ConnectService(server, proxy)
    yield view
    view.release()


class TestConformance(JobConformance):
    """The suite that every operator passes."""

    short = 0.5

    @pytest.fixture
    def service(self, server: SparkConnectServer, proxy: ConnectProxy) -> Iterator[ConnectService]:
        """Give a test its own view of the server."""
        view = ConnectService(server, proxy)
        yield view
        view.release()

    def make(self, service: Any, outcome: Any) -> Any:
        """Make an operator."""
        return operator({"runs": service.gate.closed, "succeeds": SUCCEEDS, "fails": FAILS}[outcome])


@pytest.fixture
def task(service: ConnectService, server: SparkConnectServer, tmp_path: Path) -> ConnectTask:
    """A task whose statement waits at the gate, and whose attempts talk to the server itself."""
    return ConnectTask(connection(server.port), tmp_path / "store", service.gate.closed)


@pytest.mark.parametrize("point", ["after_accept", "mid_poll"])
def test_a_killed_worker_is_followed_by_one_that_reattaches(
    service: ConnectService, task: ConnectTask, point: str
) -> None:
    """SIGKILL before the id is on record, and in mid query: one Spark job, and its rows are returned."""
    attempt = task.start(at=point)
    attempt.wait_at_point()
    attempt.kill()
    (running,) = service.jobs()
    service.release()

    assert task.run(2) == [{"n": 2000}]
    assert [job.external_id for job in service.jobs()] == [running.external_id]
    assert (task.record["phase"], task.record["generation"]) == ("succeeded", 1)


def test_an_evicted_worker_leaves_the_operation_alone(
    service: ConnectService, server: SparkConnectServer, proxy: ConnectProxy, tmp_path: Path
) -> None:
    """SIGTERM: no interrupt, no release, the process is gone at once, and the statement runs on."""
    task = ConnectTask(connection(proxy.port), tmp_path / "store", service.gate.closed)
    attempt = task.start(at="mid_poll")
    attempt.wait_at_point()

    assert attempt.stop() == "JobKept"
    assert [job.live for job in service.jobs()] == [True]
    assert not {"Interrupt", "ReleaseExecute", "ReleaseSession"} & set(proxy.requests)


def test_a_statement_that_does_something_is_run_once(service: ConnectService) -> None:
    """CREATE TABLE AS, INSERT and a query of what they left: rows are there once."""
    table = f"t{uuid.uuid4().hex}"

    def run(sql: str) -> Any:
        return TaskTries().run(operator(sql))

    assert run(f"CREATE TABLE {table} USING parquet AS SELECT id FROM range(0, 10, 1, 1)") == []
    assert run(f"INSERT INTO {table} SELECT id FROM range(0, 7, 1, 1)") == []
    assert len(service.jobs()) == 2
    assert run(f"SELECT count(*) AS n FROM {table}") == [{"n": 17}]
    run(f"DROP TABLE {table}")


def test_a_stream_that_breaks_is_not_a_failure_of_spark(
    service: ConnectService, proxy: ConnectProxy, tries: TaskTries
) -> None:
    """While the end of an INSERT that succeeded is read: it is read once more, and nothing runs again."""
    table = f"t{uuid.uuid4().hex}"
    TaskTries().run(operator(f"CREATE TABLE {table} (id BIGINT) USING parquet"))
    proxy.fail(("ReattachExecute",), "broken", 2)
    subject = operator(f"INSERT INTO {table} SELECT id FROM range(0, 7, 1, 1)")
    assert tries.run(subject) == []
    assert tries.record(subject)["generation"] == 1
    assert TaskTries().run(operator(f"SELECT count(*) AS n FROM {table}")) == [{"n": 7}]


def test_a_written_dataframe_is_written_once(service: ConnectService) -> None:
    """`build` may save; the save is the task's operation, with its id."""
    table = f"t{uuid.uuid4().hex}"

    def build(spark: Any, rows: int) -> None:
        spark.range(0, rows, 1, 1).write.saveAsTable(table)

    tries = TaskTries()
    subject = operator("", build=build, op_kwargs={"rows": 5})
    assert tries.run(subject) == []
    assert {job.external_id for job in service.jobs()} == {tries.record(subject)["external_id"]}
    assert TaskTries().run(operator(f"SELECT count(*) AS n FROM {table}")) == [{"n": 5}]


def test_a_built_dataframe_is_what_a_later_try_finds(service: ConnectService, tries: TaskTries) -> None:
    """The plan is built anew in each try, and is the same job."""

    def build(spark: Any) -> Any:
        from pyspark.sql import functions

        frame = spark.range(0, 9, 1, 1).withColumn("k", functions.col("id") % 2)
        return frame.groupBy("k").count().orderBy("k")

    def make() -> ResumableSparkConnectOperator:
        return operator("", build=build)

    assert tries.crash(make, "after_id")
    spec = tries.record(make())["spec"]
    assert tries.run(make()) == [{"k": 0, "count": 5}, {"k": 1, "count": 4}]
    assert tries.record(make())["spec"] == spec
    assert len({job.external_id for job in service.jobs()}) == 1


@_PANDAS
def test_functions_of_ones_own_are_part_of_the_plan(service: ConnectService, tries: TaskTries) -> None:
    """A Python function is sent with the plan and runs where Spark runs."""

    def build(spark: Any) -> Any:
        from pyspark.sql import functions

        twice = functions.udf(lambda number: 2 * number, "long")
        return spark.createDataFrame([(1, "a"), (2, "b")], ["n", "s"]).select(twice("n").alias("m"), "s")

    assert tries.run(operator("", build=build)) == [{"m": 2, "s": "a"}, {"m": 4, "s": "b"}]


@_PANDAS
def test_more_local_data_than_a_plan_holds_is_refused(service: ConnectService, tries: TaskTries) -> None:
    """It would be uploaded into a session that is not the operation's."""

    def build(spark: Any) -> Any:
        return spark.createDataFrame([(number, "x" * 100) for number in range(20_000)], ["n", "s"])

    with pytest.raises(ValueError, match="so much local data"):
        tries.run(operator("", build=build))
    assert service.jobs() == []


@pytest.fixture
def tries() -> TaskTries:
    """One task instance."""
    return TaskTries()


def test_rows_are_what_json_can_hold(service: ConnectService, tries: TaskTries) -> None:
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


def test_the_example_does_what_it_says(service: ConnectService) -> None:
    """Both of its tasks, the one that a worker watches and the one that is deferred."""
    made = runpy.run_path(str(example_dags_folder() / "resumable_spark_connect.py"))
    total, counts = made["total"], made["counts"]
    total.sql = total.sql.replace("{{ params.size }}", "1000")
    counts.op_kwargs = {"size": "1000"}

    assert TaskTries().run(total) == [{"total": 499_500}]
    deferred = TaskTries().defer(counts)
    assert len(deferred.resume(counts, deferred.event(60))) == 7
    assert len({job.external_id for job in service.jobs()}) == 2


def test_a_failure_says_what_spark_says(service: ConnectService, tries: TaskTries) -> None:
    """The exception has Spark's own words, for a failed job and for a statement that can't be parsed."""
    with pytest.raises(Exception, match="broken 0"):
        tries.run(operator(FAILS))
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        TaskTries().run(operator("SELEC 1"))


def test_a_server_that_tells_no_status_is_asked_by_stream(
    service: ConnectService, proxy: ConnectProxy, tries: TaskTries
) -> None:
    """As servers before 4.2: one Spark job over a crash, and its rows."""
    proxy.fail(("GetStatus",), "unimplemented", 10_000)

    def make() -> ResumableSparkConnectOperator:
        return operator(service.gate.closed)

    assert tries.crash(make, "after_accept")
    service.release()
    assert tries.run(make()) == [{"n": 2000}]
    assert len(service.jobs()) == 1


def test_the_link_leads_to_the_sessions_page(
    service: ConnectService, server: SparkConnectServer, tries: TaskTries
) -> None:
    """The page of the server's web UI exists and names the operation."""
    import httpx

    subject = operator(SUCCEEDS)
    tries.run(subject)
    url = dict(tries.xcoms)["_link_JobLink"]
    page = httpx.get(url, trust_env=False)
    assert page.status_code == 200
    assert tries.record(subject)["external_id"] in page.text


def test_settings_reach_the_session(service: ConnectService, tries: TaskTries) -> None:
    """`conf` holds for the operation and for no other."""
    conf = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    assert tries.run(operator("SELECT current_timezone() AS z", conf=conf)) == [{"z": "Asia/Tokyo"}]


def test_a_result_too_large_for_the_record_is_found_in_the_server(
    service: ConnectService, tries: TaskTries
) -> None:
    """A try dies after the outcome was recorded: the next one reads the rows from the server."""

    def make() -> ResumableSparkConnectOperator:
        return operator("SELECT id, repeat('x', 100) AS x FROM range(0, 300, 1, 1)")

    assert tries.crash(make, "after_outcome")
    assert tries.crash(make, "before_return")
    assert len(tries.run(make())) == 300
    assert len({job.external_id for job in service.jobs()}) == 1


def test_a_refused_user_is_told_what_to_check(
    service: ConnectService, proxy: ConnectProxy, tries: TaskTries
) -> None:
    """Not retried, and the error names the connection."""
    proxy.fail(("GetStatus",), "denied", 1)
    with pytest.raises(PermissionError, match="login and password of connection 'spark_connect_default'"):
        tries.run(operator(SUCCEEDS))
    assert service.jobs() == []


def test_two_attempts_at_once_run_one_operation(service: ConnectService, server: SparkConnectServer) -> None:
    """Both send the same token at the same moment; the server has one operation."""
    from airflow_resumable.operators import _connect_plan

    operation, both, started = str(uuid.uuid4()), threading.Barrier(2), []

    def run() -> None:
        with asking(server.port, USER) as client:
            both.wait()
            started.append(client.start(operation, _connect_plan.of_sql(SUCCEEDS, 1), {}))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(started) == [False, True]
    with asking(server.port, USER) as client:
        until(lambda: client.state(operation) != "RUNNING")
        assert client.ending(operation).state == "FINISHED"
    assert [job.external_id for job in service.jobs()] == [operation]


def test_a_task_that_is_not_durable_takes_its_operation_along(
    service: ConnectService, proxy: ConnectProxy, server: SparkConnectServer, tmp_path: Path
) -> None:
    """As the parent of any operator that runs something does when it is stopped."""
    task = ConnectTask(
        connection(proxy.port), tmp_path / "store", service.gate.closed, arguments={"durable": False}
    )
    attempt = task.start()
    until(lambda: any(job.live for job in service.jobs()))
    attempt.stop()
    assert proxy.requests["Interrupt"] == 1
    until(lambda: not any(job.live for job in service.jobs()))


class TestRestart:
    """What a server's end does; it is this class's own server."""

    @pytest.fixture
    def own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> Iterator[SparkConnectServer]:
        """A server that the test may kill."""
        systems.require("java")
        systems.require("pyspark")
        with SparkConnectServer(tmp_path / "own", getattr(request, "param", None)) as running:
            monkeypatch.setenv(CONNECTION, connection(running.port))
            yield running

    @pytest.mark.slow
    def test_a_restarted_server_has_lost_the_operation(
        self, own: SparkConnectServer, tries: TaskTries
    ) -> None:
        """The task fails with a clear error by default, and nothing is started."""
        gate = Gate(own.port)
        assert tries.crash(lambda: operator(gate.closed), "mid_poll")
        own.kill()
        own.start()
        with pytest.raises(JobMissing):
            tries.run(operator(gate.closed))
        assert own.jobs() == []

    @pytest.mark.slow
    @pytest.mark.parametrize("own", [_IMPATIENT], indirect=True)
    @pytest.mark.parametrize("deferred", [False, True], ids=["by the worker", "by the triggerer"])
    def test_an_operation_that_is_watched_is_kept(
        self, own: SparkConnectServer, tries: TaskTries, deferred: bool
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

    @pytest.mark.slow
    @pytest.mark.parametrize("own", [_IMPATIENT], indirect=True)
    def test_an_operation_that_nobody_attaches_to_is_cancelled_by_the_server(
        self, own: SparkConnectServer, tries: TaskTries
    ) -> None:
        """What happens to a retry that comes too late: it knows, and starts the next generation."""
        gate = Gate(own.port)
        assert tries.crash(lambda: operator(gate.closed), "mid_poll")
        until(lambda: [job.state for job in own.jobs()] == ["FAILED"])
        assert tries.run(operator(SUCCEEDS)) == [{"n": 2000}]
        assert tries.record(operator(SUCCEEDS))["generation"] == 2

    @pytest.mark.slow
    @pytest.mark.parametrize("own", [_IMPATIENT], indirect=True)
    def test_an_operation_that_ended_unwatched_is_a_success_where_its_rows_are_not_wanted(
        self, own: SparkConnectServer, tries: TaskTries
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

    @pytest.mark.slow
    @pytest.mark.parametrize("own", [_IMPATIENT], indirect=True)
    def test_a_statement_without_rows_that_ended_unwatched_is_not_run_again(
        self, own: SparkConnectServer, tries: TaskTries
    ) -> None:
        """It has done its work, and there is nothing to return."""
        sql = "CREATE TABLE once USING parquet AS SELECT id FROM range(0, 3, 1, 1)"
        assert tries.crash(lambda: operator(sql), "after_id")
        log = own.work_dir / "processes" / "connect.log"
        until(lambda: " is removed" in log.read_text(encoding="utf-8", errors="replace"))
        assert tries.run(operator(sql)) == []
        assert len(own.operations(USER)) == 1
