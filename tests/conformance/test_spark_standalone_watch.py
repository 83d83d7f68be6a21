# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A driver on a real Spark cluster whose worker or master dies: the master's own list of drivers counts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_resumable.sdk import JobFailed, JobMissing
from airflow_resumable.testing.ports import free_port
from airflow_resumable.testing.spark import SparkCluster
from tests.spark_attempts import SparkTask, begin, connection, until
from tests.spark_proxy import Answer, SparkProxy

pytestmark = pytest.mark.spark


def test_a_worker_killed_in_mid_poll_is_followed_by_a_try_that_reconnects(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    """SIGKILL while polling: the next try watches the same driver, and the master has one."""
    gate = tmp_path / "gate"
    task = spark_task(gate, bare=False)
    begin(task, "mid_poll").kill()
    driver = task.driver
    gate.touch()

    assert task.attempt(2) is None
    assert spark_started() == [driver]
    assert (task.record["phase"], task.record["generation"]) == ("succeeded", 1)


@pytest.mark.slow
def test_a_driver_that_finished_meanwhile_is_not_started_again(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """The driver ends while no worker is alive: the next try succeeds without a submit."""
    task = spark_task()
    begin(task, "after_id").kill()
    spark.wait_for_driver(task.driver)

    assert task.attempt(2) is None
    assert spark_started() == [task.driver]


def test_a_master_restarted_with_recovery_is_watched_on(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    """The master is killed and comes back with what it knew: the same attempt sees the driver's end."""
    gate = tmp_path / "gate"
    task = spark_task(gate)
    attempt = begin(task, "mid_poll")
    spark.wait_for_driver(task.driver, {"RUNNING"})
    spark.restart_master()
    gate.touch()

    assert attempt.end() == ("returned", "None")
    assert task.record["phase"] == "succeeded"
    assert spark_started() == [task.driver]


def test_a_master_that_forgot_the_driver_fails_the_task(
    spark: SparkCluster, spark_task: Callable[..., SparkTask]
) -> None:
    """The master comes back without recovery: the attempt says so and submits nothing."""
    task = spark_task(30)
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
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """A driver that ends with an error fails the attempt; the next try starts generation 2."""
    task = spark_task(fail=True)
    with pytest.raises(JobFailed, match="FAILED"):
        task.attempt(1)
    first = task.driver
    task.app = spark.sleep_app(0, bare=True)

    assert task.attempt(2) is None
    assert spark_started() == [first, task.driver]
    assert (task.record["generation"], task.record["ids"]) == (2, [first, task.driver])


@pytest.mark.parametrize("page", ["reachable", pytest.param("unreachable", marks=pytest.mark.slow)])
def test_three_bad_answers_while_polling_fail_nothing(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    spark_proxy: SparkProxy,
    page: str,
) -> None:
    """Three 503 in a row: read from the web UI where that is reachable, waited out where it isn't."""
    bad: list[str] = []

    def three_times(method: str, path: str, answer: Answer) -> Answer | None:
        if "/status/driver-2" not in path or len(bad) == 3:
            return None
        bad.append(path)
        return 503, {"action": "ErrorResponse", "message": "Master is not ready."}

    spark_proxy.change = three_times
    webui = None if page == "reachable" else free_port()
    task = spark_task(connection=connection(spark, rest_port=spark_proxy.port, webui_port=webui))

    assert task.attempt(1) is None
    assert spark_started() == [task.driver]
    assert len(bad) == (1 if page == "reachable" else 3)


def test_states_that_nobody_has_heard_of_lead_to_no_submit(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    spark_proxy: SparkProxy,
) -> None:
    """A state without a meaning, and an answer without a state, are waited out; the driver is kept."""
    odd: list[Any] = ["HIBERNATING", "UNKNOWN", "", None]

    def answer_oddly(method: str, path: str, answer: Answer) -> Answer | None:
        if "/status/driver-2" not in path or not odd:
            return None
        value = {**answer[1], "driverState": odd.pop(0)}
        return 200, {name: one for name, one in value.items() if one is not None}

    task = spark_task(connection=connection(spark, rest_port=spark_proxy.port))
    begin(task, "after_id").kill()
    spark_proxy.change = answer_oddly

    assert task.attempt(2) is None
    assert odd == []
    assert spark_started() == [task.driver]


def test_an_evicted_worker_keeps_its_driver(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    tmp_path: Path,
    spark_state: Callable[[str], str],
) -> None:
    """SIGTERM while the task is running: driver and sidecars are left alone, the next try ends both."""
    gate = tmp_path / "gate"
    told = tmp_path / "post-submit"
    command = f"sh -c 'echo done >> {told}'"
    task = spark_task(gate, arguments={"post_submit_commands": [command]})
    attempt = begin(task, "mid_poll")
    spark.wait_for_driver(task.driver, {"RUNNING"})
    name, text = attempt.stop()

    assert (name, "kept" in text) == ("JobKept", True)
    assert spark_state(task.driver) == "RUNNING"
    assert not told.exists()

    gate.touch()
    assert task.attempt(2) is None
    assert spark_started() == [task.driver]
    assert told.read_text().splitlines() == ["done"]


def test_a_task_that_a_user_stops_kills_its_driver_once(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_proxy: SparkProxy
) -> None:
    """SIGTERM after a user marked the task failed: one kill request, and the driver is KILLED."""
    task = spark_task(60, server_state="failed", connection=connection(spark, rest_port=spark_proxy.port))
    attempt = begin(task, "mid_poll")
    spark.wait_for_driver(task.driver, {"RUNNING"})
    attempt.stop()

    assert spark.wait_for_driver(task.driver).state == "KILLED"
    assert [path for method, path in spark_proxy.requests if method == "POST"] == [
        f"/v1/submissions/kill/{task.driver}"
    ]


def test_a_run_moves_from_the_stock_operator_to_ours(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    """The provider's own operator dies while polling; ours takes its driver over."""
    gate = tmp_path / "gate"
    task = spark_task(gate, operator_class=SparkSubmitOperator)
    attempt = task.start()
    until(lambda: task.driver is not None)
    attempt.kill()
    gate.touch()
    task.operator_class = spark_task().operator_class

    assert task.attempt(2) is None
    assert spark_started() == [task.driver]
    assert task.record["phase"] == "succeeded"


def test_a_run_moves_from_ours_to_the_stock_operator(
    spark: SparkCluster,
    spark_task: Callable[..., SparkTask],
    spark_started: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    """Ours dies while polling; the provider's own operator reconnects to its driver."""
    gate = tmp_path / "gate"
    task = spark_task(gate)
    begin(task, "mid_poll").kill()
    gate.touch()
    driver = task.driver
    task.operator_class = SparkSubmitOperator

    assert task.start(2).end() == ("returned", "None")
    assert spark_started() == [driver]


def test_a_cluster_without_a_rest_gateway_is_watched_on_its_web_ui(
    spark: SparkCluster, spark_task: Callable[..., SparkTask], spark_started: Callable[[], list[str]]
) -> None:
    """A rest-port where nothing listens: the driver is submitted over RPC and followed on the JSON page."""
    task = spark_task(connection=connection(spark, rest_port=free_port()))

    assert task.attempt(1) is None
    assert spark_started() == [task.driver]
