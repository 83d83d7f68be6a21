# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""An API server that can't be reached, won't let anybody in, or loses a namespace, while a task watches.

A real API server; its audit log counts. The node that runs the pods is a stand-in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from kubernetes.client import ApiException

from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests.kubernetes_job_attempts import JobService, make_job
from tests.kubernetes_pod_attempts import make_pod
from tests.kubernetes_service import KubernetesService
from tests.stack.kills import until

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
    proxy.heal()
    service.release()


@pytest.fixture
def make(service: KubernetesService) -> Make:
    """Return what makes the operator of that kind of object."""
    return make_job if isinstance(service, JobService) else make_pod


def once(act: Callable[[], object]) -> Callable[[], None]:
    """Return what does something the first time that it is called."""
    done: list[object] = []
    return lambda: None if done else done.append(act())


def is_up(service: KubernetesService) -> bool:
    """Say whether the program runs, and is deaf to SIGTERM."""
    return service.gate.with_name(f"{service.gate.name}.up").exists()


@pytest.mark.parametrize(("fault", "times"), [("lost_reply", 4), ("unauthorized", 2)])
def test_a_server_that_is_away_or_refuses_for_a_while_costs_no_try(
    service: KubernetesService, make: Make, fault: str, times: int
) -> None:
    """The client gives up after four lost connections; the operator asks again, with fresh credentials."""
    tries, disturb = TaskTries(), once(lambda: service.fail("status", fault, times))
    finish = threading.Timer(0.5, service.release)

    def disturbed() -> None:
        disturb()
        finish.start() if not finish.ident else None

    with at_point("mid_poll", disturbed):
        tries.run(make(service, "runs"))
    assert [one.live for one in service.jobs()] == [False]
    assert (tries.try_number, service.cancels()) == (1, 0)


@pytest.mark.parametrize("service", ["pod"], indirect=True)
def test_a_namespace_that_is_deleted_while_its_pod_is_watched_is_a_failure_that_says_so(
    service: KubernetesService, make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing can be started there any more; the next try says it in the API server's words."""
    tries = TaskTries()
    path = f"/api/v1/namespaces/{service.namespace}"

    def delete() -> None:
        until("the program runs", lambda: is_up(service))
        service.cluster.request("DELETE", path)

    # A look may still meet the pod as it was killed.
    ended = "deleted while running|exit code 137"
    with at_point("mid_poll", once(delete)), pytest.raises(AirflowException, match=ended):
        tries.run(make(service, "runs"))
    # It is being terminated, 403, or gone, 404.
    with pytest.raises(ApiException, match=rf"message.*namespaces? .*{service.namespace}"):
        tries.run(make(service))
    assert f"hasn't created the pod {service.namespace}/work-" in capfd.readouterr().out
    assert len(service.jobs()) == 1


def test_a_clear_while_the_job_is_being_deleted_starts_the_next_one_when_it_is_gone(
    service: KubernetesService, make: Make
) -> None:
    """It is waited for, needs no second request, and never has company."""
    tries = TaskTries()
    assert tries.crash(lambda: make(service, "runs"), "after_id")
    (first,) = service.jobs()
    external_id: Any = first.external_id
    service.stop_slowly(external_id)
    tries.clear()
    let_go = service.let_go if isinstance(service, JobService) else lambda _: service.release()
    subject = make(service)
    create = subject._create

    def _create(*arguments: Any, **options: Any) -> Any:
        assert service.object(external_id["name"]) is None
        return create(*arguments, **options)

    subject._create = _create
    threading.Timer(0.5, let_go, [external_id]).start()
    tries.run(subject)
    assert [one.live for one in service.jobs()] == [False, False]
    assert service.cancels() == 0
