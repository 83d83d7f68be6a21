# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Operators whose jobs a real triggerer watches, and survives being killed; each service's own log counts."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.spark_connect import SparkConnectServer
from airflow_resumable.testing.stack import AirflowStack
from tests import systems
from tests.connect_service import ConnectService
from tests.kubernetes_job_attempts import JobService
from tests.kubernetes_service import KubernetesService
from tests.stack.test_operators import SOURCE

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.fixture(scope="module")
def triggering(
    tmp_path_factory: pytest.TempPathFactory, template_db: Path, crash_controller: CrashController
) -> Iterator[AirflowStack]:
    """An Airflow with a triggerer, whose Dags defer."""
    home = tmp_path_factory.mktemp("triggering")
    source = SOURCE.replace('"retries": 2', '"deferrable": True, "retries": 2')
    with AirflowStack(home, env=crash_controller.env, template_db=template_db, triggerer=True) as running:
        running.add_dag(source, "operators.py")
        for dag in ("op_pod", "op_job", "op_connect"):
            running.wait_for_dag(dag, 120)
        yield running


def _watched(triggering: AirflowStack, crash: CrashController, dag: str, run: str) -> None:
    """Let the triggerer be killed while it watches, and the one that comes back watch on."""
    crash.wait("in_trigger", run_id=run, task_id="job", timeout=60)
    triggering.restart("triggerer", signal.SIGKILL)
    crash.reset()
    crash.wait("in_trigger", run_id=run, task_id="job", timeout=90)


@pytest.mark.parametrize("resource", ["pods", "jobs"])
def test_one_job_on_kubernetes_is_watched_by_the_triggerer(
    triggering: AirflowStack,
    crash: CrashController,
    kubernetes: KubernetesCluster,
    tmp_path: Path,
    resource: str,
) -> None:
    """No delete, no second one, and the task goes on when it has ended."""
    kind = JobService if resource == "jobs" else KubernetesService
    service = kind(kubernetes, kubernetes.proxy(), tmp_path / "gate")
    dag = {"pods": "op_pod", "jobs": "op_job"}[resource]
    conf = {
        "namespace": service.namespace,
        "kubeconfig": service.kubeconfig(),
        "gate": str(service.gate),
    }
    run = triggering.trigger(dag, conf=conf)
    _watched(triggering, crash, dag, run)
    service.release()
    ended = triggering.wait_for(dag, run, "job", {"success"}, timeout=90)

    assert ended["try_number"] == 1
    assert len(service.jobs()) == 1
    assert service.cancels() == 0


def test_one_operation_on_spark_connect_is_watched_by_the_triggerer(
    triggering: AirflowStack, crash: CrashController, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The server lists one, which was not interrupted."""
    for one in ("java", "pyspark"):
        systems.require(one)
    with (
        SparkConnectServer(tmp_path_factory.mktemp("connect")) as server,
        ConnectProxy(server.port) as proxy,
    ):
        body = {
            "connection_id": "spark_connect_default",
            "conn_type": "spark_connect",
            "host": "127.0.0.1",
            "port": proxy.port,
            "extra": json.dumps({}),
        }
        triggering.request("POST", "/connections", json=body)
        service = ConnectService(server, proxy)
        run = triggering.trigger("op_connect", conf={"sql": service.gate.closed})
        _watched(triggering, crash, "op_connect", run)
        service.release()
        ended = triggering.wait_for("op_connect", run, "job", {"success"}, timeout=90)

        assert ended["try_number"] == 1
        assert len(service.jobs()) == 1
        assert service.cancels() == 0
