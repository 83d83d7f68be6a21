# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Driver pods on a real API server that never start, aren't ours or have a successor; its audit log counts.

spark-submit is a stand-in that makes the pod, see `tests.kubernetes_spark_submit`; the node is one too.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.errors import JobMissing, ResumableJobFatal
from airflow_resumable.operators import _spark_kubernetes
from airflow_resumable.operators._kubernetes_api import (
    FAMILY_LABEL,
    TOKEN_LABEL,
    labels_for,
    name_with,
)
from airflow_resumable.operators._spark_facts import KUBERNETES
from airflow_resumable.operators._spark_kubernetes import KubernetesTarget
from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries
from tests import kubernetes_spark_submit
from tests.kubernetes_objects import container, pod
from tests.kubernetes_service import KubernetesService

Make = Callable[..., ResumableSparkSubmitOperator]


class DriverPods(KubernetesService):
    """The driver pods of a namespace."""

    container = "spark-kubernetes-driver"


@pytest.fixture(scope="module")
def proxy(kubernetes: KubernetesCluster) -> FaultProxy:
    """A proxy in front of the API server."""
    return kubernetes.proxy()


@pytest.fixture
def service(
    kubernetes: KubernetesCluster, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DriverPods]:
    """A namespace of the test's own, and Airflow's and the stand-in's way to it."""
    service = DriverPods(kubernetes, proxy, tmp_path / "gate")
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {kubernetes_spark_submit.__file__} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_SERVER", kubernetes.url)
    monkeypatch.setenv("STAND_IN_CERTIFICATE", str(kubernetes.certificate))
    connection = {
        "conn_type": "spark",
        "host": "k8s://https://any",
        "extra": {"deploy-mode": "cluster", "namespace": service.namespace},
    }
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
    monkeypatch.setattr(KubernetesTarget, "least_poll_interval", 0.0)
    act_as("admin", service, monkeypatch)
    yield service
    proxy.heal()
    service.release()


def act_as(user: str, service: DriverPods, patch: pytest.MonkeyPatch) -> None:
    """Let Airflow and the stand-in be a user."""
    patch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", service.kubeconfig(user))
    patch.setenv("STAND_IN_TOKEN", service.cluster.token(user))


def make(script: str = "true", **more: Any) -> ResumableSparkSubmitOperator:
    """Return an operator whose driver runs a shell script."""
    arguments = {
        "task_id": "task",
        "application": "local:///any.jar",
        "java_class": "Any",
        "application_args": [script],
        "name": "work",
        "status_poll_interval": 0.1,
        "retries": 3,
    }
    return ResumableSparkSubmitOperator(**{**arguments, **more})


def waits(service: DriverPods) -> str:
    """Return a script that runs until the gate is open."""
    return f"while [ ! -e '{service.gate}' ]; do sleep 0.05; done"


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"), retries=3)


def created(service: DriverPods) -> list[tuple[str, str]]:
    """Return name and uid of every pod that was ever made."""
    return [(one.name, one.uid) for one in service.cluster.audit.created("pods", service.namespace)]


def test_a_driver_pod_without_its_config_map_is_failed_and_deleted(
    service: DriverPods, tries: TaskTries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spark-submit that was killed between the two leaves a pod that would be Pending for ever."""
    ran, dies = tmp_path / "ran", tmp_path / "dies"
    assert tries.crash(lambda: make(f"echo >> {ran}"), "after_intent")
    token = tries.record(make())["token"]
    labels = labels_for(token, token[1:17]).items()
    conf = [
        f"spark.kubernetes.namespace={service.namespace}",
        f"spark.kubernetes.driver.pod.name={name_with('work', token)}",
        *(f"spark.kubernetes.driver.label.{name}={value}" for name, value in labels),
    ]
    dies.touch()
    monkeypatch.setenv("STAND_IN_DIES", str(dies))
    words = [word for one in conf for word in ("--conf", one)]
    assert kubernetes_spark_submit.main([*words, f"echo >> {ran}"]) == 1
    monkeypatch.setattr(_spark_kubernetes, "CONFIG_MAP_PATIENCE", 0.0)
    subject = make(f"echo >> {ran}")
    tries.run(subject)

    (deleted,) = service.cluster.audit.deleted("pods", service.namespace)
    assert [one[0] for one in created(service)][:-1] == [deleted.name]
    assert (tries.record(subject)["generation"], tries.record(subject)["phase"]) == (2, "succeeded")
    assert len(ran.read_text().splitlines()) == 1


def test_a_spark_submit_that_fails_between_the_two_is_made_up_for(
    service: DriverPods, tries: TaskTries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker sees it fail: the pod is deleted at once, and another has the name."""
    ran, dies = tmp_path / "ran", tmp_path / "dies"
    dies.touch()
    monkeypatch.setenv("STAND_IN_DIES", str(dies))
    subject = make(f"echo >> {ran}")
    tries.run(subject)

    assert len({one[0] for one in created(service)}) == 1
    assert tries.record(subject)["uid"] == created(service)[-1][1]
    assert len(ran.read_text().splitlines()) == 1


def test_a_pod_of_somebody_else_with_the_users_own_name_is_left_alone(
    service: DriverPods, tries: TaskTries
) -> None:
    """The error names the pod, its uid and what to do; nothing is deleted."""
    service.cluster.request("POST", f"/api/v1/namespaces/{service.namespace}/pods", pod("mine", "sleep 60"))
    with pytest.raises(ResumableJobFatal, match="'mine' and is not this task's: delete it or change"):
        tries.run(make(conf={"spark.kubernetes.driver.pod.name": "mine"}))

    assert service.cancels() == 0


def test_a_pod_of_an_earlier_generation_makes_room_for_the_next(
    service: DriverPods, tries: TaskTries
) -> None:
    """With a name of the user's own: the failed pod is deleted by its uid, the next try has its name."""
    own = {"spark.kubernetes.driver.pod.name": "mine"}
    with pytest.raises(AirflowException):
        tries.run(make("exit 1", conf=own))
    subject = make("true", conf=own)
    tries.run(subject)

    (first, second) = created(service)
    assert first[0] == second[0] == "mine"
    assert tries.record(subject)["uid"] == second[1]
    (deleted,) = service.cluster.audit.deleted("pods", service.namespace)
    assert deleted.name == "mine"


def test_another_pod_that_has_the_name_since_is_not_ours(service: DriverPods, tries: TaskTries) -> None:
    """The recorded uid decides: the driver is missing, and its namesake runs on."""
    assert tries.crash(lambda: make(waits(service)), "after_id")
    ((name, _),) = created(service)
    service.forget({"name": name})
    service.cluster.wait_for_pod(service.namespace, name, set())
    labels = {TOKEN_LABEL: "another", FAMILY_LABEL: "another"}
    service.cluster.request(
        "POST", f"/api/v1/namespaces/{service.namespace}/pods", pod(name, "sleep 60", labels=labels)
    )
    with pytest.raises(JobMissing, match=name):
        tries.run(make(waits(service)))

    assert service.cancels() == 0
    assert len(created(service)) == 1


@pytest.mark.parametrize(("point", "begun"), [("after_accept", 1), ("after_intent", 0)])
def test_another_namespace_is_not_for_the_driver_that_was_begun(
    service: DriverPods, tries: TaskTries, monkeypatch: pytest.MonkeyPatch, point: str, begun: int
) -> None:
    """A connection that was edited between two tries: the pod is looked for, and made once, where it was."""
    assert tries.crash(lambda: make("true"), point)
    assert len(created(service)) == begun
    other = service.cluster.namespace()
    connection = json.loads(os.environ["AIRFLOW_CONN_SPARK_DEFAULT"])
    connection["extra"]["namespace"] = other
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    tries.run(make("true"))

    assert len(created(service)) == 1
    assert service.cluster.audit.created("pods", other) == []
    tries.clear()
    tries.run(make("true"))
    assert len(created(service)) == 1
    assert len(service.cluster.audit.created("pods", other)) == 1


def test_another_cluster_is_not_searched_for_the_driver(
    service: DriverPods, tries: TaskTries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task fails, naming both masters; nothing is made."""
    assert tries.crash(lambda: make("true"), "after_accept")
    connection = json.loads(os.environ["AIRFLOW_CONN_SPARK_DEFAULT"])
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({**connection, "host": "k8s://https://other"})
    )
    with pytest.raises(ResumableJobFatal, match=r"on k8s://https://any.*names k8s://https://other now"):
        tries.run(make("true"))

    assert len(created(service)) == 1


def test_an_evicted_driver_is_followed_by_another(service: DriverPods, tries: TaskTries) -> None:
    """The kubelet's eviction while no worker is alive: a failure, and the next try starts the next pod."""
    assert tries.crash(lambda: make(waits(service)), "after_id")
    ((name, _),) = created(service)
    service.cluster.wait_for_pod(service.namespace, name)
    service.cluster.evict(service.namespace, name)
    service.release()
    subject = make(waits(service))
    tries.run(subject)

    assert created(service)[0][0] == name
    assert (len(created(service)), tries.record(subject)["generation"]) == (2, 2)


def test_a_sidecar_that_stays_does_not_keep_the_task(
    service: DriverPods, tries: TaskTries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's container decides, whatever the pod's phase is."""
    monkeypatch.setenv("STAND_IN_SIDECARS", json.dumps([container(waits(service), "proxy")]))
    subject = make("true")
    tries.run(subject)

    ((name, _),) = created(service)
    found = service.object(name)
    assert found is not None
    assert (found["status"]["phase"], tries.record(subject)["phase"]) == ("Running", "succeeded")


def test_a_user_who_stops_the_task_deletes_the_pod_of_that_uid(service: DriverPods, tries: TaskTries) -> None:
    """One delete, of the driver pod."""
    tries.stop(make(waits(service)), "failed")
    ((name, _),) = created(service)
    service.cluster.wait_for_pod(service.namespace, name, set())

    assert [one.name for one in service.cluster.audit.deleted("pods", service.namespace)] == [name]


def test_the_permissions_on_the_operators_page_are_enough(
    service: DriverPods, tries: TaskTries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who has just these starts, finds, watches, stops: no request of theirs is refused."""
    rules = [
        {"apiGroups": [one.group], "resources": [one.resource], "verbs": list(one.verbs)}
        for one in KUBERNETES.permissions
    ]
    service.cluster.grant("dan", service.namespace, rules)
    act_as("dan", service, monkeypatch)
    assert tries.crash(lambda: make(waits(service)), "after_accept")
    tries.stop(make(waits(service)), "failed")

    assert len(created(service)) == 1
    assert service.cluster.audit.requests("delete", "pods", service.namespace, user="dan")
    refused = [
        one
        for resource in ("pods", "configmaps", "services")
        for verb in ("create", "get", "list", "watch", "patch", "delete")
        for one in service.cluster.audit.requests(verb, resource, service.namespace, user="dan", code=403)
    ]
    assert refused == []


def test_a_cancel_is_one_request_when_nobody_answers(
    service: DriverPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dying task has no time for the client's own ten more tries."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = service.cluster.kubeconfig(
            namespace=service.namespace, server=f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(config))
        monkeypatch.setattr(_spark_kubernetes, "KILL_TIMEOUT", (0.2, 0.2))
        hook: Any = SimpleNamespace(_connection={"master": "k8s://any", "namespace": "any"}, _conf={})
        target = KubernetesTarget(make(), hook)
        target._uids["any:pod"] = "uid"
        with pytest.raises(Exception, match="timed out"):
            target.cancel("any:pod")
        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_driver_that_is_queued_costs_one_request_a_look(
    service: DriverPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the provider's operator; that its ConfigMap is there is asked once."""
    monkeypatch.setattr(_spark_kubernetes, "CONFIG_MAP_PATIENCE", 0.0)
    volume = {"name": "spark-conf-volume-driver", "configMap": {"name": "map"}}
    queued = pod("driver", "true", nodeSelector={"no": "such"}, volumes=[volume])
    path = f"/api/v1/namespaces/{service.namespace}"
    service.cluster.request("POST", f"{path}/configmaps", {"metadata": {"name": "map"}})
    service.cluster.request("POST", f"{path}/pods", queued)
    connection = {"master": "k8s://any", "namespace": service.namespace}
    hook: Any = SimpleNamespace(_connection=connection, _conf={})
    target = KubernetesTarget(make(), hook)

    assert [target.status(f"{service.namespace}:driver") for _ in range(3)] == ["Pending"] * 3
    assert service.cluster.audit.count("get", "pods", service.namespace) == 3
    assert service.cluster.audit.count("get", "configmaps", service.namespace) == 1
