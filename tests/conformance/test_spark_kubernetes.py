# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableSparkSubmitOperator` on Kubernetes: real spark-submit, real API server, whose audit log counts.

The node that runs the driver is a stand-in: it starts a real Spark driver, whose executors are threads of it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_resumable.jobs.errors import JobMissing
from airflow_resumable.operators._kubernetes_api import FAMILY_LABEL, TOKEN_LABEL
from airflow_resumable.operators._spark_kubernetes import KubernetesTarget
from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator
from airflow_resumable.testing.conformance import JobConformance, SeenJob
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.spark_app import build_sleep_jar
from airflow_resumable.testing.spark_host import find_java, find_spark
from airflow_resumable.testing.task_tries import TaskTries
from tests.kubernetes_service import KubernetesService
from tests.spark_attempts import processes_with

pytestmark = pytest.mark.spark


class DriverPods(KubernetesService):
    """The driver pods of a namespace."""

    container = "spark-kubernetes-driver"
    jar: Path
    marker: Path

    def arguments(self, outcome: str) -> dict[str, Any]:
        """Return what makes an operator run the test application there."""
        words = {"runs": [str(self.gate)], "succeeds": ["0"], "fails": ["0"]}[outcome]
        words += [str(self.marker), *(["fail"] if outcome == "fails" else [])]
        certificate = str(self.cluster.certificate)
        return {
            "task_id": "task",
            "conn_id": "spark_on_kubernetes",
            "application": f"local://{self.jar}",
            "java_class": "SleepApp",
            "application_args": words,
            "name": "work",
            "conf": {
                "spark.kubernetes.container.image": "any",
                "spark.kubernetes.authenticate.submission.oauthToken": self.cluster.token(),
                "spark.kubernetes.authenticate.submission.caCertFile": certificate,
                "spark.kubernetes.namespace": self.namespace,
            },
        }

    def runs(self) -> int:
        """Return how many drivers have started, by what the application itself has written."""
        return len(self.marker.read_text().splitlines()) if self.marker.exists() else 0


@pytest.fixture(scope="module")
def proxy(kubernetes: KubernetesCluster) -> FaultProxy:
    """Start a proxy in front of the API server."""
    return kubernetes.proxy()


def build(folder: Path) -> Path:
    """Compile the test application, or skip."""
    javac = shutil.which("javac", path=f"{find_java() / 'bin'}{os.pathsep}{os.environ['PATH']}")
    if javac is None:
        pytest.skip("javac is not here: install a JDK (Debian: apt-get install openjdk-17-jdk-headless)")
    return build_sleep_jar(folder, find_spark(), javac)


def way_to(service: DriverPods) -> dict[str, str]:
    """Return the environment in which Airflow and spark-submit find a namespace."""
    host, _, port = service.proxy.url.rpartition(":")
    connection = {
        "conn_type": "spark",
        "host": f"k8s://{host}",
        "port": int(port),
        "extra": {"deploy-mode": "cluster", "namespace": service.namespace},
    }
    path = os.environ["PATH"].split(os.pathsep)
    here = str(Path(sys.executable).parent)
    return {
        "AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER": "False",
        "AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE": service.kubeconfig(),
        "AIRFLOW_CONN_SPARK_ON_KUBERNETES": json.dumps(connection),
        "JAVA_HOME": str(find_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": os.pathsep.join(path if here in path else [here, *path]),
        "SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }


def lead_to(service: DriverPods, patch: pytest.MonkeyPatch) -> None:
    """Give Airflow and spark-submit the way to a namespace."""
    for name, value in way_to(service).items():
        patch.setenv(name, value)
    patch.setattr(KubernetesTarget, "least_poll_interval", 0.0)


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the test application."""
    return build(tmp_path_factory.mktemp("app"))


@pytest.fixture
def service(
    kubernetes: KubernetesCluster,
    proxy: FaultProxy,
    jar: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[DriverPods]:
    """Give a test a namespace of its own."""
    service = DriverPods(kubernetes, proxy, tmp_path / "gate")
    service.jar, service.marker = jar, tmp_path / "marker"
    lead_to(service, monkeypatch)
    yield service
    proxy.heal()
    service.release()


def operator(service: DriverPods, outcome: str, **more: Any) -> ResumableSparkSubmitOperator:
    """Return an operator that runs the test application."""
    arguments = {**service.arguments(outcome), "status_poll_interval": 0.2, "retries": 2, **more}
    return ResumableSparkSubmitOperator(**arguments)


def _of(job: SeenJob) -> dict[str, Any]:
    external_id: Any = job.external_id
    return dict(external_id)


@pytest.mark.slow
class TestSparkOnKubernetes(JobConformance):
    """The whole suite: some forty runs of spark-submit."""

    short = 1.0
    patience = 60.0

    def make(self, service: DriverPods, outcome: Any) -> Any:
        """Make an operator."""
        return operator(service, outcome)


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"))


def test_a_worker_that_dies_after_the_submit_starts_one_driver(service: DriverPods, tries: TaskTries) -> None:
    """The next try finds the pod by its token; it carries token and family as labels."""
    assert tries.crash(lambda: operator(service, "succeeds"), "after_accept")
    subject = operator(service, "succeeds")
    tries.run(subject)

    (created,) = service.cluster.audit.created("pods", service.namespace)
    labels = created.answer["metadata"]["labels"]
    record = tries.record(subject)
    assert (labels[TOKEN_LABEL], labels[FAMILY_LABEL]) == (record["token"], record["token"][1:17])
    assert record["external_id"] == f"{service.namespace}:{created.name}"
    assert (record["uid"], record["phase"], service.runs()) == (created.uid, "succeeded", 1)


def test_a_submit_whose_answer_is_lost_is_refused_the_second_time(
    service: DriverPods, tries: TaskTries
) -> None:
    """spark-submit fails between the pod and its ConfigMap: that pod never starts, and one driver runs."""
    service.fail("submit", "lost_reply", 1)
    try:
        tries.run(operator(service, "succeeds"))
    except Exception:
        tries.run(operator(service, "succeeds"))

    assert service.runs() == 1
    assert len({_of(job)["name"] for job in service.jobs()}) == 1


def test_a_kept_stop_and_three_503s_leave_the_driver_untouched(service: DriverPods, tries: TaskTries) -> None:
    """No delete, no patch, no spark-submit left, no post-submit command before the end; the same uid."""
    ran = service.marker.with_name("post")
    more = {"post_submit_commands": [f"touch {ran}"]}
    assert tries.stop(operator(service, "runs", **more), "running") == "JobKept"
    left = processes_with(service.namespace, "--deploy-mode\ncluster")
    (before,) = service.jobs()
    audit = service.cluster.audit

    assert not ran.exists()
    assert not left
    assert not audit.deleted("pods", service.namespace)
    service.fail("status", "unavailable", 3)
    service.release()
    tries.run(operator(service, "runs", **more))
    assert [_of(job)["uid"] for job in service.jobs()] == [_of(before)["uid"]]
    assert not [one for one in audit.requests("patch", "pods", service.namespace)]
    assert ran.exists()


def test_stock_and_ours_take_over_from_each_other(service: DriverPods, tries: TaskTries) -> None:
    """Both keep ``namespace:pod`` under the same key, so either watches the driver of the other."""
    # The parent reads the pod's name from a line in which it takes the namespace to be "spark".
    service.namespace = "spark"
    service.cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "spark"}})
    stock = SparkSubmitOperator(**service.arguments("runs"), track_driver_via_k8s_api=True)
    stock._hook = stock._get_hook()
    started = stock.submit_job(tries.context(stock))
    # The provider leaves the pipe of its process to the garbage collector.
    client: Any = stock._hook._submit_sp
    client.stdout.close()
    tries.store.set(stock.external_id_key, started, retention=None)
    service.release()
    ours = operator(service, "runs")
    tries.run(ours)

    assert len(service.jobs()) == 1
    assert tries.record(ours)["external_id"] == started
    assert tries.store.get(SparkSubmitOperator.external_id_key) == started
    assert stock.get_job_status(started, {}) == "Succeeded"


def test_a_driver_pod_that_is_gone_after_an_unknown_end_is_not_started_again(
    service: DriverPods, tries: TaskTries
) -> None:
    """Collected while nobody watched: `on_missing`; collected after a recorded success: the success."""
    assert tries.crash(lambda: operator(service, "runs"), "after_id")
    (job,) = service.jobs()
    service.forget({"name": _of(job)["name"]})
    service.cluster.wait_for_pod(service.namespace, _of(job)["name"], set())
    with pytest.raises(JobMissing):
        tries.run(operator(service, "runs"))

    assert len(service.jobs()) == 1
