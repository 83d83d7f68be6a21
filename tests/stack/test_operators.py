# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The operators on a real Airflow, whose workers and supervisors are killed; each service's own log counts.

The node that runs pods is a stand-in. All points and deaths, without a scheduler, are in
`tests/conformance/test_crash_matrix.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.spark_connect import SparkConnectServer
from tests import systems
from tests.connect_service import ConnectService
from tests.kubernetes_job_attempts import JobService
from tests.kubernetes_service import KubernetesService
from tests.stack.runs import Lab, Laboratory, Run

pytestmark = pytest.mark.stack

SOURCE = """
from datetime import timedelta

from airflow.sdk import DAG

from airflow_resumable.operators.kubernetes import (
    ResumableKubernetesJobOperator,
    ResumableKubernetesPodOperator,
)
from airflow_resumable.operators.spark_connect import ResumableSparkConnectOperator

ARGUMENTS = {"retries": 2, "retry_delay": timedelta(seconds=1)}
POD = {
    "task_id": "job",
    "name": "work",
    "image": "any",
    "namespace": "{{ dag_run.conf['namespace'] }}",
    "config_file": "{{ dag_run.conf['kubeconfig'] }}",
    "kubernetes_conn_id": None,
    "cmds": ["sh", "-c", "while [ ! -e {{ dag_run.conf['gate'] }} ]; do sleep 0.2; done"],
    "get_logs": False,
    "on_finish_action": "keep_pod",
    "startup_check_interval_seconds": 1,
}

with DAG("op_pod", schedule=None, default_args=ARGUMENTS):
    ResumableKubernetesPodOperator(**POD)
with DAG("op_job", schedule=None, default_args=ARGUMENTS):
    ResumableKubernetesJobOperator(**POD, wait_until_job_complete=True, job_poll_interval=1)
with DAG("op_connect", schedule=None, default_args=ARGUMENTS):
    ResumableSparkConnectOperator(
        task_id="job", sql="{{ dag_run.conf['sql'] }}", status_poll_interval=1
    )
"""
DAGS = ("op_pod", "op_job", "op_connect")

DEATHS = {
    "the worker is killed after the submit": ("after_accept", "kill_task"),
    "the supervisor is killed while it polls": ("mid_poll", "kill_supervisor"),
    "the worker is evicted while it polls": ("mid_poll", "term_supervisor"),
}


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Lab:
    """An Airflow with the Dags."""
    return Laboratory(request, "operators.py", SOURCE, DAGS)()


@dataclass
class Place:
    """Where a run's job goes: what its conf says, and who counts."""

    service: Any
    conf: dict[str, Any]
    release: Callable[[], None]


@pytest.fixture(scope="module")
def proxy(kubernetes: KubernetesCluster) -> FaultProxy:
    """Start a proxy in front of the API server."""
    return kubernetes.proxy()


@pytest.fixture
def pods(kubernetes: KubernetesCluster, proxy: FaultProxy) -> Callable[[Run, str], Place]:
    """Make a namespace for a run."""

    def make(run: Run, resource: str) -> Place:
        kind = JobService if resource == "jobs" else KubernetesService
        service = kind(kubernetes, proxy, run.gate)
        conf = {"namespace": service.namespace, "kubeconfig": service.kubeconfig()}
        return Place(service, conf, run.gate.touch)

    return make


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, lab: Lab) -> Iterator[SparkConnectServer]:
    """A Spark Connect server, with a connection to it in the Airflow."""
    for one in ("java", "pyspark"):
        systems.require(one)
    with SparkConnectServer(tmp_path_factory.mktemp("connect")) as running:
        body = {
            "connection_id": "spark_connect_default",
            "conn_type": "spark_connect",
            "host": "127.0.0.1",
            "port": running.port,
            "extra": json.dumps({"ui-url": running.ui_url}),
        }
        lab.stack.request("POST", "/connections", json=body)
        yield running


def _play(run: Run, place: Place, point: str, action: str) -> dict[str, Any]:
    """Let the first try die, and the job end once the second one watches it."""
    run.on(point, action)
    run.trigger(**place.conf)
    run.reaches(point)
    run.reaches("mid_poll", try_number=2)
    path = f"/dags/{run.dag}/dagRuns/{run.run}/taskInstances/{run.task}/links"
    links: dict[str, Any] = run.api.request("GET", path)["extra_links"]
    place.release()
    assert run.ends()["try_number"] == 2
    return links


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("dag", ["op_pod", "op_job"])
def test_one_job_on_kubernetes(lab: Lab, pods: Callable[[Run, str], Place], dag: str, death: str) -> None:
    """The API server has created one and was asked to delete none, whatever dies."""
    with lab.run(dag) as run:
        place = pods(run, "jobs" if dag == "op_job" else "pods")
        _play(run, place, *DEATHS[death])

    assert len(place.service.jobs()) == 1
    assert place.service.cancels() == 0


@pytest.mark.parametrize("death", DEATHS)
def test_one_operation_on_spark_connect(lab: Lab, server: SparkConnectServer, death: str) -> None:
    """The server lists one, and the task's link leads to it while it runs."""
    with ConnectProxy(server.port) as proxy, lab.run("op_connect") as run:
        service = ConnectService(server, proxy)
        place = Place(service, {"sql": service.gate.closed}, service.release)
        links = _play(run, place, *DEATHS[death])

    assert len(service.jobs()) == 1
    assert str(links["Job"]).startswith(server.ui_url)
