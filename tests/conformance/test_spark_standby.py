# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableSparkSubmitOperator` with two real masters that ZooKeeper elects, standby first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_resumable.testing.spark_pair import SparkPair
from tests.spark_attempts import SparkTask, until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkPair]:
    """Start both masters, a worker and ZooKeeper."""
    with SparkPair(tmp_path_factory.mktemp("pair")) as running:
        yield running


@pytest.fixture
def pair(masters: SparkPair) -> SparkPair:
    """The cluster with one master that leads and one that stands by."""
    masters.revive()
    return masters


@pytest.fixture
def make(pair: SparkPair, tmp_path: Path) -> Callable[..., SparkTask]:
    """Make a task whose master URL names the standby first."""
    rpc = pair.ports["rpc"]
    connection = {
        "conn_type": "spark",
        "host": f"spark://{pair.standby}:{rpc},{pair.leader}",
        "port": rpc,
        "extra": {
            "deploy-mode": "cluster",
            "rest-port": pair.ports["rest"],
            "webui-port": pair.ports["master_ui"],
        },
    }

    def task(seconds: float = 0, **options: Any) -> SparkTask:
        app = pair.sleep_app(seconds, tmp_path / "starts")
        return SparkTask(
            pair.environment, json.dumps(connection), store_dir=tmp_path / "store", app=app, **options
        )

    return task


@pytest.fixture
def started(pair: SparkPair) -> Callable[[], list[str]]:
    """The ids of the drivers that the leader took since the test began."""
    before = {one.id for one in pair.drivers()}
    return lambda: sorted(one.id for one in pair.drivers() if one.id not in before)


def test_a_driver_is_found_again_behind_a_standby(
    make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """SIGKILL between "accepted" and "on record": the leader's list counts, the standby has none."""
    task = make()
    attempt = task.start(1, "after_accept")
    attempt.wait_at_point()
    attempt.kill()

    assert task.attempt(2) is None
    assert started() == [task.driver]
    assert (task.record["phase"], task.record["adoptions"]) == ("succeeded", 1)


def test_a_leader_that_dies_in_mid_poll_is_followed_by_the_standby(
    pair: SparkPair, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """The same attempt watches the same driver on the master that takes over, and sees its end."""
    task = make(10)
    attempt = task.start(1, "mid_poll")
    attempt.wait_at_point()
    until(lambda: any(app.active and app.state == "RUNNING" for app in pair.apps()))
    successor = pair.standby
    pair.kill_master(pair.leader)
    pair.wait_for_leader(successor)

    assert attempt.end() == ("returned", "None")
    assert task.record["phase"] == "succeeded"
    assert started() == [task.driver]


def test_a_user_who_stops_the_task_reaches_the_leader_behind_a_standby(
    pair: SparkPair, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """Every master gets the kill request, the one that leads takes it."""
    task = make(60, server_state="failed")
    attempt = task.start(1, "mid_poll")
    attempt.wait_at_point()
    attempt.stop()

    assert pair.wait_for_driver(task.driver).state == "KILLED"
    assert started() == [task.driver]


@pytest.mark.slow
def test_a_master_that_is_down_hinders_the_stock_operator_and_not_ours(
    pair: SparkPair, make: Callable[..., SparkTask], started: Callable[[], list[str]]
) -> None:
    """spark-submit wants a connection to every master over RPC: it is given those that are up."""
    task = make(operator_class=SparkSubmitOperator)
    pair.kill_master(pair.standby)
    name, text = task.start().end()
    assert (name, started()) == ("AirflowException", [])
    assert "Error code is: 1" in text

    task.operator_class = make().operator_class
    assert task.attempt(2) is None
    assert started() == [task.driver]
