# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes operators on whatever cluster there is: the tests' own, or the one that the user names.

With AIRFLOW_RESUMABLE_KUBECONFIG these run on real nodes, with a real image. They need no audit log: each
makes a namespace, in which it counts what is there, and deletes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.config import new_client_from_config

from airflow_resumable.operators.kubernetes import (
    ResumableKubernetesJobOperator,
    ResumableKubernetesPodOperator,
)
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.task_tries import TaskTries
from tests import systems

SCRIPT = "echo at-work; sleep 1; echo '{\"rows\": 7}' > /airflow/xcom/return.json"


@pytest.fixture(scope="module")
def kubeconfig(request: pytest.FixtureRequest) -> str:
    """The kubeconfig file of a user who may make namespaces."""
    place = systems.require("kubernetes")
    if place.name == "kube-apiserver":
        return str(request.getfixturevalue("kubernetes").kubeconfig())
    return str(place)


@pytest.fixture(scope="module")
def core(kubeconfig: str) -> Iterator[Any]:
    """The official client."""
    with new_client_from_config(kubeconfig) as api:
        yield client.CoreV1Api(api)


@pytest.fixture
def namespace(core: Any) -> Iterator[str]:
    """A namespace of the test's own."""
    name = core.create_namespace({"metadata": {"generateName": "airflow-resumable-"}}).metadata.name
    yield name
    core.delete_namespace(name)


@pytest.fixture
def arguments(kubeconfig: str, namespace: str) -> dict[str, Any]:
    """What both operators are given."""
    return {
        "task_id": "task",
        "name": "work",
        "namespace": namespace,
        "image": os.environ.get("AIRFLOW_RESUMABLE_KUBERNETES_IMAGE", "busybox:1.36"),
        "cmds": ["sh", "-c", SCRIPT],
        "config_file": kubeconfig,
        "kubernetes_conn_id": None,
        "do_xcom_push": True,
        "poll_interval": 0.5,
        "retries": 2,
    }


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"))


def test_a_pod_outlives_its_worker(
    core: Any, arguments: dict[str, Any], namespace: str, tries: TaskTries
) -> None:
    """The worker is killed while the pod runs; the next try returns that pod's result, and made none."""
    more = {**arguments, "on_finish_action": "keep_pod"}
    assert tries.crash(lambda: ResumableKubernetesPodOperator(**more), "mid_poll", by="sigkill")
    (running,) = core.list_namespaced_pod(namespace).items
    subject = ResumableKubernetesPodOperator(**more)
    assert tries.run(subject) == {"rows": 7}
    (ended,) = core.list_namespaced_pod(namespace).items
    assert running.metadata.uid == ended.metadata.uid == tries.record(subject)["external_id"]["uid"]
    assert ended.status.phase == "Succeeded"


def test_a_job_outlives_its_worker(
    kubeconfig: str, arguments: dict[str, Any], namespace: str, tries: TaskTries
) -> None:
    """Likewise for a Job, whose pod the cluster's own controller makes."""
    more = {
        **arguments,
        "do_xcom_push": False,
        "cmds": ["sleep", "1"],
        "wait_until_job_complete": True,
        "job_poll_interval": 0.5,
    }
    assert tries.crash(lambda: ResumableKubernetesJobOperator(**more), "mid_poll", by="sigkill")
    with new_client_from_config(kubeconfig) as api:
        jobs = client.BatchV1Api(api)
        (running,) = jobs.list_namespaced_job(namespace).items
        tries.run(ResumableKubernetesJobOperator(**more))
        (ended,) = jobs.list_namespaced_job(namespace).items
    assert running.metadata.uid == ended.metadata.uid
    assert ended.status.succeeded == 1
