# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableSparkSubmitOperator` on a real standalone cluster; the master's own list of drivers counts."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_resumable.sdk import JobFailed, JobMissing, JobNotSettled
from airflow_resumable.testing.ports import free_port
from airflow_resumable.testing.spark import SparkCluster
from tests.spark_attempts import Attempt, SparkTask, connection, processes_with, until
from tests.spark_proxy import Answer, SparkProxy

pytestmark = pytest.mark.spark

Gateway = Literal["rpc", "rest"]


@pytest.fixture
def started(spark: SparkCluster) -> Callable[[], list[str]]:
    """The ids of the drivers that the master took since the test began, oldest first."""
    before = {one.id for one in spark.drivers()}
    return lambda: sorted(one.id for one in spark.drivers() if one.id not in before)


@pytest.fixture
def make(spark: SparkCluster, tmp_path: Path) -> Callable[..., SparkTask]:
    """Make a task whose driver sleeps for some seconds."""

    def task(seconds: float = 0, *, fail: bool = False, **options: Any) -> SparkTask:
        options.setdefault("connection", connection(spark))
        app = spark.sleep_app(seconds, tmp_path / "starts", fail=fail)
        return SparkTask(spark.environment, store_dir=tmp_path / "store", app=app, **options)

    return task


@pytest.fixture
def proxy(spark: SparkCluster) -> Iterator[SparkProxy]:
    """A proxy before the cluster's REST gateway."""
    with SparkProxy(spark.rest_url) as running:
        yield running


def begin(task: SparkTask, at: str, try_number: int = 1) -> Attempt:
    """Start an attempt and wait until it is at a crash point."""
    attempt = task.start(try_number, at)
    attempt.wait_at_point()
    return attempt


def state(spark: SparkCluster, driver: str) -> str:
    """Return the state of a driver as the master lists it."""
    return next(one.state for one in spark.drivers() if one.id == driver)


def test_the_id_is_on_record_while_the_rpc_client_still_runs(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """The RPC gateway's client lingers for seconds after the master took the driver; the record does not."""
    task = make()
    attempt = begin(task, "after_id")
    client = attempt.wait_for_client(0)

    assert started() == [task.record["external_id"]] == [task.driver]
    assert client.is_running()
    attempt.kill()
    spark.wait_for_driver(task.driver)


@pytest.mark.slow
def test_the_id_is_on_record_while_the_rest_client_still_runs(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]], proxy: SparkProxy
) -> None:
    """The REST gateway's client asks for a status before it ends; the record doesn't wait for that."""
    released = threading.Event()

    def hold(method: str, path: str, answer: Answer) -> None:
        if "/status/" in path:
            released.wait(60)

    proxy.change = hold
    task = make(rest=True, connection=connection(spark, port=proxy.port))
    attempt = begin(task, "after_id")
    client = attempt.wait_for_client(0)

    assert started() == [task.record["external_id"]] == [task.driver]
    assert client.is_running()
    attempt.kill()
    released.set()
    spark.wait_for_driver(task.driver)


def test_a_worker_killed_in_mid_poll_is_followed_by_a_try_that_reconnects(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """SIGKILL while polling: the next try watches the same driver, and the master has one."""
    task = make(2)
    begin(task, "mid_poll").kill()
    driver = task.driver

    assert task.attempt(2) is None
    assert started() == [driver]
    assert (task.record["phase"], task.record["generation"]) == ("succeeded", 1)


@pytest.mark.parametrize("gateway", ["rpc", "rest"])
@pytest.mark.parametrize(
    "point", ["after_accept", pytest.param("between_key_writes", marks=pytest.mark.slow)]
)
def test_a_worker_killed_before_the_id_is_on_record_starts_no_second_driver(
    spark: SparkCluster,
    make: Callable[..., SparkTask],
    started: Callable[[], list[str]],
    gateway: Gateway,
    point: str,
) -> None:
    """SIGKILL between "accepted" and "on record": the next try finds the driver by its launch command."""
    task = make(connection=connection(spark, gateway), rest=gateway == "rest")
    begin(task, point).kill()
    assert task.record["phase"] == "intent"

    assert task.attempt(2) is None
    assert started() == [task.driver]
    assert task.record["adoptions"] == (1 if point == "after_accept" else 0)


def test_a_worker_killed_before_spark_submit_has_the_answer_starts_no_second_driver(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]], proxy: SparkProxy
) -> None:
    """SIGKILL while the master's answer is on its way to spark-submit: the next try finds the driver."""
    accepted, killed = threading.Event(), threading.Event()

    def hold(method: str, path: str, answer: Answer) -> None:
        if path.endswith("/create"):
            accepted.set()
            killed.wait(60)

    proxy.change = hold
    task = make(rest=True, connection=connection(spark, port=proxy.port))
    attempt = task.start()
    assert accepted.wait(60)
    attempt.kill()
    killed.set()
    ours = started()

    assert task.attempt(2) is None
    assert started() == ours == [task.driver]
    assert task.record["adoptions"] == 1


def test_an_answer_that_is_lost_on_its_way_to_spark_submit_starts_no_second_driver(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]], proxy: SparkProxy
) -> None:
    """The connection drops after the master took the driver: spark-submit fails, the driver is found."""

    def hang_up(method: str, path: str, answer: Answer) -> None:
        if path.endswith("/create"):
            raise ConnectionError

    proxy.change = hang_up
    task = make(rest=True, connection=connection(spark, port=proxy.port))

    assert task.attempt(1) is None
    assert started() == [task.driver]


@pytest.mark.slow
def test_a_driver_of_somebody_else_is_not_adopted(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """Another's driver of the same class and name, started meanwhile, is told from ours."""
    task = make()
    attempt = begin(task, "after_accept")
    ours = started()
    spark.create(spark.sleep_app(0), name="arrow-spark")
    attempt.kill()

    assert task.attempt(2) is None
    assert [task.driver] == ours
    assert len(started()) == 2


def test_a_submit_that_never_happened_is_made_up_for(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """An intent without a driver, and somebody else's driver as the only new one: submit, don't adopt."""
    task = make()
    begin(task, "after_intent").kill()
    others = spark.create(spark.sleep_app(0))

    assert task.attempt(2) is None
    assert len(started()) == 2
    assert task.driver != others
    assert task.record["adoptions"] == 0


def test_spark_submit_dies_with_its_task(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """SIGKILL before spark-submit reached the master: no JVM is left, the next try starts the one driver."""
    task = make()
    attempt = task.start()
    attempt.wait_for_client()
    attempt.kill()
    token = task.record["token"]
    until(lambda: processes_with(token) == [], 20)

    assert started() == []
    assert task.attempt(2) is None
    assert started() == [task.driver]


def test_a_worker_evicted_while_spark_submit_runs_leaves_one_driver(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """SIGTERM inside the submit: spark-submit has two seconds for the id, and doesn't live on after that."""
    task = make()
    attempt = task.start()
    attempt.wait_for_client()
    name, _ = attempt.stop()

    assert name == "JobKept"
    until(lambda: processes_with("org.apache.spark.deploy.SparkSubmit", task.record["token"]) == [], 20)
    assert task.attempt(2) is None
    assert started() == [task.driver]


@pytest.mark.slow
def test_a_driver_that_finished_meanwhile_is_not_started_again(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """The driver ends while no worker is alive: the next try succeeds without a submit."""
    task = make()
    begin(task, "after_id").kill()
    spark.wait_for_driver(task.driver)

    assert task.attempt(2) is None
    assert started() == [task.driver]


def test_a_finished_driver_whose_id_is_not_on_record_is_not_started_again(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """The driver was taken, its id not recorded, and it finished: it is told by its launch command."""
    task = make()
    begin(task, "after_accept").kill()
    driver = started()[0]
    spark.wait_for_driver(driver)

    assert task.attempt(2) is None
    assert started() == [driver] == [task.driver]


@pytest.mark.slow
def test_a_finished_driver_that_can_not_be_told_is_not_repeated_until_the_task_is_cleared(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """Its worker has removed the driver's directory: nobody knows, so a person has to say."""
    task = make(patience=0.5)
    begin(task, "after_accept").kill()
    driver = started()[0]
    spark.wait_for_driver(driver)
    shutil.rmtree(spark.work_dir / "work" / driver)
    with pytest.raises(JobNotSettled, match=f"{driver} .FINISHED, .* shows no launch command"):
        task.attempt(2)
    assert started() == [driver]

    task.max_tries = 4
    assert task.attempt(3) is None
    assert started() == [driver, task.driver]


def test_a_master_restarted_with_recovery_is_watched_on(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """The master is killed and comes back with what it knew: the same attempt sees the driver's end."""
    task = make(8)
    attempt = begin(task, "mid_poll")
    spark.wait_for_driver(task.driver, {"RUNNING"})
    spark.restart_master()

    assert attempt.end() == ("returned", "None")
    assert task.record["phase"] == "succeeded"
    assert started() == [task.driver]


def test_a_master_that_forgot_the_driver_fails_the_task(
    spark: SparkCluster, make: Callable[..., SparkTask]
) -> None:
    """The master comes back without recovery: the attempt says so and submits nothing."""
    task = make(30)
    attempt = begin(task, "mid_poll")
    spark.wait_for_driver(task.driver, {"RUNNING"})
    spark.kill("master")
    shutil.rmtree(spark.work_dir / "recovery")
    (spark.work_dir / "recovery").mkdir()
    spark.start("master")
    name, text = attempt.end()

    assert name == "JobMissing"
    assert task.driver in text
    assert "on_missing" in text
    assert spark.drivers() == []
    with pytest.raises(JobMissing):
        task.attempt(2)
    assert spark.drivers() == []


def test_a_failed_driver_is_followed_by_the_next_generation(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """A driver that ends with an error fails the attempt; the next try starts generation 2."""
    task = make(fail=True)
    with pytest.raises(JobFailed, match="FAILED"):
        task.attempt(1)
    first = task.driver
    task.app = spark.sleep_app(0)

    assert task.attempt(2) is None
    assert started() == [first, task.driver]
    assert (task.record["generation"], task.record["ids"]) == (2, [first, task.driver])


@pytest.mark.parametrize("page", ["reachable", pytest.param("unreachable", marks=pytest.mark.slow)])
def test_three_bad_answers_while_polling_fail_nothing(
    spark: SparkCluster,
    make: Callable[..., SparkTask],
    started: Callable[[], list[str]],
    proxy: SparkProxy,
    page: str,
) -> None:
    """Three 503 in a row: read from the web UI where that is reachable, waited out where it isn't."""
    bad: list[str] = []

    def three_times(method: str, path: str, answer: Answer) -> Answer | None:
        if "/status/driver-2" not in path or len(bad) == 3:
            return None
        bad.append(path)
        return 503, {"action": "ErrorResponse", "message": "Master is not ready."}

    proxy.change = three_times
    webui = None if page == "reachable" else free_port()
    task = make(connection=connection(spark, rest_port=proxy.port, webui_port=webui))

    assert task.attempt(1) is None
    assert started() == [task.driver]
    assert len(bad) == (1 if page == "reachable" else 3)


def test_states_that_nobody_has_heard_of_lead_to_no_submit(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]], proxy: SparkProxy
) -> None:
    """A state without a meaning, and an answer without a state, are waited out; the driver is kept."""
    odd: list[Any] = ["HIBERNATING", "UNKNOWN", "", None]

    def answer_oddly(method: str, path: str, answer: Answer) -> Answer | None:
        if "/status/driver-2" not in path or not odd:
            return None
        value = {**answer[1], "driverState": odd.pop(0)}
        return 200, {name: one for name, one in value.items() if one is not None}

    task = make(connection=connection(spark, rest_port=proxy.port))
    begin(task, "after_id").kill()
    proxy.change = answer_oddly

    assert task.attempt(2) is None
    assert odd == []
    assert started() == [task.driver]


def test_an_evicted_worker_keeps_its_driver(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]], tmp_path: Path
) -> None:
    """SIGTERM while the task is running: driver and sidecars are left alone, the next try ends both."""
    told = tmp_path / "post-submit"
    command = f"sh -c 'echo done >> {told}'"
    task = make(3, arguments={"post_submit_commands": [command]})
    attempt = begin(task, "mid_poll")
    spark.wait_for_driver(task.driver, {"RUNNING"})
    name, text = attempt.stop()

    assert (name, "kept" in text) == ("JobKept", True)
    assert state(spark, task.driver) == "RUNNING"
    assert not told.exists()

    assert task.attempt(2) is None
    assert started() == [task.driver]
    assert told.read_text().splitlines() == ["done"]


def test_a_task_that_a_user_stops_kills_its_driver_once(
    spark: SparkCluster, make: Callable[..., SparkTask], proxy: SparkProxy
) -> None:
    """SIGTERM after a user marked the task failed: one kill request, and the driver is KILLED."""
    task = make(60, server_state="failed", connection=connection(spark, rest_port=proxy.port))
    attempt = begin(task, "mid_poll")
    spark.wait_for_driver(task.driver, {"RUNNING"})
    attempt.stop()

    assert spark.wait_for_driver(task.driver).state == "KILLED"
    assert [path for method, path in proxy.requests if method == "POST"] == [
        f"/v1/submissions/kill/{task.driver}"
    ]


def test_a_run_moves_from_the_stock_operator_to_ours(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """The provider's own operator dies while polling; ours takes its driver over."""
    task = make(3, operator_class=SparkSubmitOperator)
    attempt = task.start()
    until(lambda: task.driver is not None)
    attempt.kill()
    task.operator_class = make().operator_class

    assert task.attempt(2) is None
    assert started() == [task.driver]
    assert task.record["phase"] == "succeeded"


def test_a_run_moves_from_ours_to_the_stock_operator(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """Ours dies while polling; the provider's own operator reconnects to its driver."""
    task = make(3)
    begin(task, "mid_poll").kill()
    driver = task.driver
    task.operator_class = SparkSubmitOperator

    assert task.start(2).end() == ("returned", "None")
    assert started() == [driver]


@pytest.mark.slow
def test_a_queued_driver_is_neither_adopted_nor_repeated_until_it_can_be_told(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """No worker has the driver yet: the try fails and names it; the one after its launch adopts it."""
    filler = spark.create(spark.sleep_app(60), conf={"spark.driver.cores": "8"})
    spark.wait_for_driver(filler, {"RUNNING"})
    task = make(patience=1.0)
    begin(task, "after_accept").kill()
    (queued,) = [one for one in started() if one != filler]
    with pytest.raises(JobNotSettled, match=f"{queued} .SUBMITTED, no worker has it yet.*Nothing was"):
        task.attempt(2)
    assert state(spark, queued) == "SUBMITTED"

    spark.rest("POST", f"kill/{filler}")
    task.patience = 60.0
    assert task.attempt(3) is None
    assert started() == [filler, queued]
    assert task.driver == queued


def test_a_cleared_task_gets_rid_of_a_driver_whose_id_was_not_recorded(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """Cleared after a crash in the window: the driver is found, killed, and a new one started."""
    task = make(60)
    begin(task, "after_accept").kill()
    (lost,) = started()
    task.app = spark.sleep_app(0)
    task.max_tries = 4

    assert task.attempt(2) is None
    assert spark.wait_for_driver(lost).state == "KILLED"
    assert len(started()) == 2
    assert task.record["generation"] == 2


def test_a_cluster_without_a_rest_gateway_is_watched_on_its_web_ui(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """A rest-port where nothing listens: the driver is submitted over RPC and followed on the JSON page."""
    task = make(connection=connection(spark, rest_port=free_port()))

    assert task.attempt(1) is None
    assert started() == [task.driver]


def test_a_cluster_that_could_not_be_watched_gets_no_driver(
    spark: SparkCluster, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """Neither REST nor web UI answer: an error before the submit names both URLs."""
    rest, webui = free_port(), free_port()
    task = make(connection=connection(spark, rest_port=rest, webui_port=webui), patience=0.5)
    with pytest.raises(Exception, match=f"nothing was submitted: .*:{rest}/v1.*:{webui}/json/"):
        task.attempt(1)

    assert started() == []
