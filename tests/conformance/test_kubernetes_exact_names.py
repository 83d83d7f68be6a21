# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Pods under an exact name, which each generation uses again, at a real API server.

The API server's audit log counts. The node that runs the pods is a stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.jobs.errors import JobSuperseded
from airflow_resumable.operators.kubernetes import ResumableKubernetesPodOperator
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries
from tests.kubernetes_objects import pod
from tests.kubernetes_pod_attempts import make_pod
from tests.kubernetes_service import KubernetesService
from tests.unit.test_jobs_fencing import ReplacedStore


@pytest.fixture(scope="module")
def proxy(kubernetes: KubernetesCluster) -> FaultProxy:
    """Start a proxy in front of the API server."""
    return kubernetes.proxy()


@pytest.fixture
def service(kubernetes: KubernetesCluster, proxy: FaultProxy, tmp_path: Path) -> Iterator[KubernetesService]:
    """Give a test a namespace of its own."""
    service = KubernetesService(kubernetes, proxy, tmp_path / "gate")
    yield service
    proxy.heal()
    service.release()


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"))


def asleep_in_create(subject: ResumableKubernetesPodOperator, meanwhile: Callable[[], object]) -> None:
    """Let an operator sleep in front of its create, once, while something else happens."""
    create = subject._create

    def _create(*arguments: Any, **options: Any) -> Any:
        subject._create = create  # type: ignore[method-assign]
        meanwhile()
        return create(*arguments, **options)

    subject._create = _create  # type: ignore[method-assign]


@pytest.mark.parametrize("readable", [True, False], ids=["can read the record", "reads nothing"])
@pytest.mark.parametrize("exact", [True, False], ids=["exact name", "suffix"])
def test_a_try_that_slept_through_a_resend_and_a_clear_starts_no_pod(
    service: KubernetesService, tries: TaskTries, exact: bool, readable: bool
) -> None:
    """The name that its create would take is still held, by the pod that came after the clear."""
    more: dict[str, Any] = {"random_name_suffix": not exact, "on_finish_action": "delete_pod"}
    store = tries.store
    tries.store = replaced = ReplacedStore(store)
    sleeper = make_pod(service, **more)

    def meanwhile() -> None:
        tries.store = store
        tries.run(make_pod(service, **more))
        tries.clear()
        tries.run(make_pod(service, **more))
        replaced.replaced = not readable

    asleep_in_create(sleeper, meanwhile)
    with pytest.raises(JobSuperseded):
        tries.run(sleeper)

    assert len(service.jobs()) == 2


def test_a_pod_that_a_sleeper_creates_just_before_the_next_one_is_deleted(
    service: KubernetesService, tries: TaskTries
) -> None:
    """It takes the name in the moment in which that is free; its token says that it was overtaken."""
    more: dict[str, Any] = {"random_name_suffix": False}
    assert tries.crash(lambda: make_pod(service, **more), "after_intent")
    tries.run(make_pod(service, **more))
    overtaken = service.object("work")
    assert overtaken is not None
    tries.clear()
    late = pod("work", "sleep 600", labels=overtaken["metadata"]["labels"])
    subject = make_pod(service, **more)
    create = subject._create
    made: list[str] = []

    def _create(*arguments: Any, **options: Any) -> Any:
        if not made and service.object("work") is None:
            made.append(service.cluster.request("POST", service._path, late)["metadata"]["uid"])
        return create(*arguments, **options)

    subject._create = _create  # type: ignore[method-assign]
    tries.run(subject)

    first, last = service.cluster.audit.created("pods", service.namespace)
    assert tries.record(subject)["external_id"]["uid"] == last.uid
    deleted = service.cluster.audit.deleted("pods", service.namespace)
    assert [one.sent["preconditions"]["uid"] for one in deleted] == [first.uid, *made]
