# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Tries that name another namespace or another cluster than the try before, which died inside its submit.

A real API server; its audit log counts. The node that runs the pods is a stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.jobs.errors import ResumableJobFatal
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries
from tests.kubernetes_job_attempts import JobService, make_job
from tests.kubernetes_pod_attempts import make_pod
from tests.kubernetes_service import KubernetesService

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def proxy(kubernetes: KubernetesCluster) -> FaultProxy:
    """Start a proxy in front of the API server."""
    return kubernetes.proxy()


@pytest.fixture(params=["pod", "job"])
def service(
    request: pytest.FixtureRequest, kubernetes: KubernetesCluster, proxy: FaultProxy, tmp_path: Path
) -> Iterator[KubernetesService]:
    """Give a test a namespace of its own."""
    kind = KubernetesService if request.param == "pod" else JobService
    service = kind(kubernetes, proxy, tmp_path / "gate")
    yield service
    service.release()


@pytest.fixture
def make(service: KubernetesService) -> Make:
    """Return what makes the operator of that kind of object."""
    return make_pod if service.resource == "pods" else make_job


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"))


@pytest.mark.parametrize(("point", "created_by"), [("after_accept", 1), ("after_intent", 2)])
def test_another_namespace_is_not_for_the_job_that_was_begun(
    service: KubernetesService, make: Make, tries: TaskTries, point: str, created_by: int
) -> None:
    """It is looked for, and created once, where the intent says, whichever try gets to it."""
    other = service.cluster.namespace()
    assert tries.crash(lambda: make(service, "succeeds"), point)
    assert len(service.jobs()) == 2 - created_by
    tries.run(make(service, "succeeds", namespace=other))

    assert len(service.jobs()) == 1
    assert service.cluster.audit.created(service.resource, other) == []


def test_the_next_generation_goes_to_the_new_namespace(
    service: KubernetesService, make: Make, tries: TaskTries
) -> None:
    """A clear ends what runs in the old one first."""
    other = service.cluster.namespace()
    assert tries.crash(lambda: make(service, "runs"), "after_accept")
    tries.clear()
    tries.run(make(service, "succeeds", namespace=other))

    assert [job.live for job in service.jobs()] == [False]
    assert len(service.cluster.audit.created(service.resource, other)) == 1


def test_another_cluster_is_not_searched_for_it(
    service: KubernetesService, make: Make, tries: TaskTries
) -> None:
    """The task fails, naming both; nothing is created."""
    assert tries.crash(lambda: make(service, "succeeds"), "after_accept")
    elsewhere = service.cluster.proxy()
    there = service.cluster.kubeconfig("admin", namespace=service.namespace, server=elsewhere.url)

    with pytest.raises(ResumableJobFatal, match="was going to be created on cluster") as failed:
        tries.run(make(service, "succeeds", config_file=str(there)))
    assert service.proxy.url in str(failed.value)
    assert elsewhere.url in str(failed.value)
    assert len(service.jobs()) == 1
    tries.run(make(service, "succeeds"))
    assert len(service.jobs()) == 1
