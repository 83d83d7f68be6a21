# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A submit to a real Spark master that is cut short: the master's own list of drivers counts."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from typing import Literal

import pytest

from airflow_resumable.sdk import JobNotSettled
from airflow_resumable.testing.ports import free_port
from airflow_resumable.testing.spark import SparkCluster
from tests.spark_attempts import SparkTask, begin, connection, processes_with, until
from tests.spark_proxy import Answer, SparkProxy

pytestmark = pytest.mark.spark

Gateway = Literal["rpc", "rest"]


def test_the_id_is_on_record_while_the_rpc_client_still_runs(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """The RPC gateway's client lingers for seconds after the master took the driver; the record does not."""
    task = spark_task()
    attempt = begin(task, "after_id")
    client = attempt.wait_for_client(0)

    assert spark_started() == [task.record["external_id"]] == [task.driver]
    assert client.is_running()
    attempt.kill()
    spark.wait_for_driver(task.driver)


@pytest.mark.slow
def test_the_id_is_on_record_while_the_rest_client_still_runs(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    spark_proxy: SparkProxy,
) -> None:
    """The REST gateway's client asks for a status before it ends; the record doesn't wait for that."""
    released = threading.Event()

    def hold(method: str, path: str, answer: Answer) -> None:
        if "/status/" in path:
            released.wait(60)

    spark_proxy.change = hold
    task = spark_task(rest=True, connection=connection(spark, port=spark_proxy.port))
    attempt = begin(task, "after_id")
    client = attempt.wait_for_client(0)

    assert spark_started() == [task.record["external_id"]] == [task.driver]
    assert client.is_running()
    attempt.kill()
    released.set()
    spark.wait_for_driver(task.driver)


@pytest.mark.parametrize("gateway", ["rpc", "rest"])
@pytest.mark.parametrize(
    "point", ["after_accept", pytest.param("between_key_writes", marks=pytest.mark.slow)]
)
def test_a_worker_killed_before_the_id_is_on_record_starts_no_second_driver(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    gateway: Gateway,
    point: str,
) -> None:
    """SIGKILL between "accepted" and "on record": the next try finds the driver by its launch command."""
    task = spark_task(connection=connection(spark, gateway), rest=gateway == "rest")
    begin(task, point).kill()
    assert task.record["phase"] == "intent"

    assert task.attempt(2) is None
    assert spark_started() == [task.driver]
    assert task.record["adoptions"] == (1 if point == "after_accept" else 0)


def test_a_worker_killed_before_spark_submit_has_the_answer_starts_no_second_driver(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    spark_proxy: SparkProxy,
) -> None:
    """SIGKILL while the master's answer is on its way to spark-submit: the next try finds the driver."""
    accepted, killed = threading.Event(), threading.Event()

    def hold(method: str, path: str, answer: Answer) -> None:
        if path.endswith("/create"):
            accepted.set()
            killed.wait(60)

    spark_proxy.change = hold
    task = spark_task(rest=True, connection=connection(spark, port=spark_proxy.port))
    attempt = task.start()
    assert accepted.wait(60)
    attempt.kill()
    killed.set()
    ours = spark_started()

    assert task.attempt(2) is None
    assert spark_started() == ours == [task.driver]
    assert task.record["adoptions"] == 1


def test_an_answer_that_is_lost_on_its_way_to_spark_submit_starts_no_second_driver(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    spark_proxy: SparkProxy,
) -> None:
    """The connection drops after the master took the driver: spark-submit fails, the driver is found."""

    def hang_up(method: str, path: str, answer: Answer) -> None:
        if path.endswith("/create"):
            raise ConnectionError

    spark_proxy.change = hang_up
    task = spark_task(rest=True, connection=connection(spark, port=spark_proxy.port))

    assert task.attempt(1) is None
    assert spark_started() == [task.driver]


@pytest.mark.slow
def test_a_driver_of_somebody_else_is_not_adopted(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """Another's driver of the same class and name, started meanwhile, is told from ours."""
    task = spark_task()
    attempt = begin(task, "after_accept")
    ours = spark_started()
    spark.create(spark.sleep_app(0, bare=True), name="arrow-spark")
    attempt.kill()

    assert task.attempt(2) is None
    assert [task.driver] == ours
    assert len(spark_started()) == 2


def test_a_submit_that_never_happened_is_made_up_for(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """An intent without a driver, and somebody else's driver as the only new one: submit, don't adopt."""
    task = spark_task()
    begin(task, "after_intent").kill()
    others = spark.create(spark.sleep_app(0, bare=True))

    assert task.attempt(2) is None
    assert len(spark_started()) == 2
    assert task.driver != others
    assert task.record["adoptions"] == 0


def test_spark_submit_dies_with_its_task(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """SIGKILL before spark-submit reached the master: no JVM is left, the next try starts the one driver."""
    task = spark_task()
    attempt = task.start()
    attempt.wait_for_client()
    attempt.kill()
    token = task.record["token"]
    until(lambda: processes_with(token) == [], 20)

    assert spark_started() == []
    assert task.attempt(2) is None
    assert spark_started() == [task.driver]


def test_a_worker_evicted_while_spark_submit_runs_leaves_one_driver(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """SIGTERM inside the submit: spark-submit has two seconds for the id, and doesn't live on after that."""
    task = spark_task()
    attempt = task.start()
    attempt.wait_for_client()
    name, _ = attempt.stop()

    assert name == "JobKept"
    until(lambda: processes_with("org.apache.spark.deploy.SparkSubmit", task.record["token"]) == [], 20)
    assert task.attempt(2) is None
    assert spark_started() == [task.driver]


def test_a_finished_driver_whose_id_is_not_on_record_is_not_started_again(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """The driver was taken, its id not recorded, and it finished: it is told by its launch command."""
    task = spark_task()
    begin(task, "after_accept").kill()
    driver = spark_started()[0]
    spark.wait_for_driver(driver)

    assert task.attempt(2) is None
    assert spark_started() == [driver] == [task.driver]


@pytest.mark.slow
def test_a_finished_driver_that_can_not_be_told_is_not_repeated_until_the_task_is_cleared(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """Its worker has removed the driver's directory: nobody knows, so a person has to say."""
    task = spark_task(patience=0.5)
    begin(task, "after_accept").kill()
    driver = spark_started()[0]
    spark.wait_for_driver(driver)
    shutil.rmtree(spark.work_dir / "work" / driver)
    with pytest.raises(JobNotSettled, match=f"{driver} .FINISHED, .* shows no launch command"):
        task.attempt(2)
    assert spark_started() == [driver]

    task.max_tries = 4
    assert task.attempt(3) is None
    assert spark_started() == [driver, task.driver]


@pytest.mark.slow
def test_a_queued_driver_is_neither_adopted_nor_repeated_until_it_can_be_told(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    spark_state: Callable[[str], str],
) -> None:
    """No worker has the driver yet: the try fails and names it; the one after its launch adopts it."""
    filler = spark.create(spark.sleep_app(60, bare=True), conf={"spark.driver.cores": "8"})
    spark.wait_for_driver(filler, {"RUNNING"})
    task = spark_task(patience=1.0)
    begin(task, "after_accept").kill()
    (queued,) = [one for one in spark_started() if one != filler]
    with pytest.raises(JobNotSettled, match=f"{queued} .SUBMITTED, no worker has it yet.*Nothing was"):
        task.attempt(2)
    assert spark_state(queued) == "SUBMITTED"

    spark.rest("POST", f"kill/{filler}")
    task.patience = 60.0
    assert task.attempt(3) is None
    assert spark_started() == [filler, queued]
    assert task.driver == queued


def test_a_cleared_task_gets_rid_of_a_driver_whose_id_was_not_recorded(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """Cleared after a crash in the window: the driver is found, killed, and a new one started."""
    task = spark_task(60)
    begin(task, "after_accept").kill()
    (lost,) = spark_started()
    task.app = spark.sleep_app(0, bare=True)
    task.max_tries = 4

    assert task.attempt(2) is None
    assert spark.wait_for_driver(lost).state == "KILLED"
    assert len(spark_started()) == 2
    assert task.record["generation"] == 2


def test_a_cluster_that_could_not_be_watched_gets_no_driver(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """Neither REST nor web UI answer: an error before the submit names both URLs."""
    rest, webui = free_port(), free_port()
    task = spark_task(connection=connection(spark, rest_port=rest, webui_port=webui), patience=0.5)
    with pytest.raises(Exception, match=f"nothing was submitted: .*:{rest}/v1.*:{webui}/json/"):
        task.attempt(1)

    assert spark_started() == []
