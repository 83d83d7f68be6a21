# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Spark on Kubernetes under a real Airflow whose workers die; the API server's own log counts.

The node that runs the driver's pod is a stand-in; spark-submit and the API server are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.stack import AirflowStack
from tests.conformance.test_spark_kubernetes import DriverPods, build, way_to

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.slow]

SOURCE = """
from datetime import timedelta

from airflow.sdk import DAG

from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator

with DAG("spark_kubernetes", schedule=None):
    ResumableSparkSubmitOperator(
        **{arguments!r},
        application_args=["{{{{ dag_run.conf['gate'] }}}}", "{marker}"],
        post_submit_commands=["touch {{{{ dag_run.conf['gate'] }}}}.post"],
        status_poll_interval=1,
        retries=2,
        retry_delay=timedelta(seconds=1),
    )
"""


@pytest.fixture(scope="module")
def drivers(kubernetes: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory) -> DriverPods:
    """A namespace for the drivers of all tests here."""
    folder = tmp_path_factory.mktemp("drivers")
    service = DriverPods(kubernetes, kubernetes.proxy(), folder / "gate")
    service.jar, service.marker = build(folder), folder / "marker"
    return service


@pytest.fixture(scope="module")
def airflow(
    drivers: DriverPods,
    tmp_path_factory: pytest.TempPathFactory,
    template_db: Path,
    crash_controller: CrashController,
) -> Iterator[AirflowStack]:
    """An Airflow whose workers find spark-submit and the namespace."""
    arguments: dict[str, Any] = {
        name: value for name, value in drivers.arguments("runs").items() if name != "application_args"
    }
    home = tmp_path_factory.mktemp("spark_kubernetes")
    env = {**crash_controller.env, **way_to(drivers)}
    with AirflowStack(home, env=env, template_db=template_db) as running:
        running.add_dag(SOURCE.format(arguments=arguments, marker=drivers.marker), "spark.py")
        running.wait_for_dag("spark_kubernetes", 120)
        yield running


@pytest.mark.parametrize("action", ["kill_task", "kill_supervisor", "term_supervisor"])
@pytest.mark.parametrize("point", ["after_accept", "mid_poll"])
def test_a_worker_that_dies_leaves_one_driver(
    airflow: AirflowStack,
    drivers: DriverPods,
    crash: CrashController,
    tmp_path: Path,
    point: str,
    action: str,
) -> None:
    """The second try watches the same pod to its end; no delete, no post-submit command before it."""
    before = len(drivers.jobs())
    gate = tmp_path / "gate"
    crash.on(point, action, task_id="task")
    run = airflow.trigger("spark_kubernetes", conf={"gate": str(gate)})
    crash.wait("mid_poll", run_id=run, try_number=2, timeout=150)
    assert not gate.with_name("gate.post").exists()
    gate.touch()
    airflow.wait_for("spark_kubernetes", run, "task", {"success"}, timeout=90)

    assert len(drivers.jobs()) == before + 1
    assert drivers.cancels() == 0
    assert gate.with_name("gate.post").exists()
