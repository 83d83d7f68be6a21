# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the Pod operator returns, logs and asks for, side by side with the parent, at a real API server.

The API server's audit log counts. The node that runs the pods is a stand-in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries
from tests.kubernetes_pod_attempts import ours, stock
from tests.kubernetes_service import KubernetesService

XCOM = ["sh", "-c", "echo '{\"rows\": 7}' > /airflow/xcom/return.json"]


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


def test_a_sidecar_that_is_yet_to_start_is_waited_for(service: KubernetesService, tries: TaskTries) -> None:
    """The main container may be faster than the sidecar that holds its result."""
    subject = ours(service, XCOM, do_xcom_push=True)
    waiting = mock.patch.object(subject, "_sidecar_is_yet_to_start", side_effect=[True, False])
    awaited = mock.Mock(wraps=subject.pod_manager.await_xcom_sidecar_container_start)
    with waiting, mock.patch.object(subject.pod_manager, "await_xcom_sidecar_container_start", awaited):
        assert tries.run(subject) == {"rows": 7}

    assert awaited.call_count == 1


def test_results_and_xcoms_are_the_parents(service: KubernetesService, tries: TaskTries) -> None:
    """Undisturbed, after a reconnect and by the parent: the same value and the same keys."""
    theirs = TaskTries(run_id="stock")
    expected = theirs.run(stock(service, XCOM, do_xcom_push=True))
    assert tries.crash(lambda: ours(service, XCOM, do_xcom_push=True), "after_id")
    disturbed = tries.run(ours(service, XCOM, do_xcom_push=True))
    again = tries.run(ours(service, XCOM, do_xcom_push=True))

    assert expected == disturbed == again == {"rows": 7}
    assert dict(theirs.xcoms).keys() == dict(tries.xcoms).keys()


def test_the_sidecar_ends_once_the_result_is_on_record(service: KubernetesService, tries: TaskTries) -> None:
    """A worker that dies before leaves it running, so that the next try can still read the result."""
    make: Callable[[], Any] = lambda: ours(service, XCOM, do_xcom_push=True, on_finish_action="keep_pod")  # noqa: E731
    assert tries.crash(make, "before_outcome")
    (created,) = service.cluster.audit.created("pods", service.namespace)
    running = service.object(created.name)

    assert running is not None
    assert running["status"]["phase"] == "Running"
    assert tries.run(make()) == {"rows": 7}
    service.cluster.wait_for_pod(service.namespace, created.name, {"Succeeded"})


def test_a_result_that_is_no_json_fails_the_try_and_leaves_nothing_running(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The pod is on record as failed and tidied up, as the parent does it."""
    cmds = ["sh", "-c", "echo oops > /airflow/xcom/return.json"]
    with pytest.raises(AirflowException, match="result can't be read"):
        tries.run(ours(service, cmds, do_xcom_push=True))
    (created,) = service.cluster.audit.created("pods", service.namespace)

    service.cluster.wait_for_pod(service.namespace, created.name, set())


def test_logs_are_written_as_the_parent_writes_them(
    service: KubernetesService, tries: TaskTries, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each line once, also of an init container that is asked for."""
    from kubernetes.client import V1Container

    init = V1Container(name="first", image="any", command=["echo", "made ready"])
    cmds = ["sh", "-c", "echo one; sleep 0.3; echo two"]
    tries.run(ours(service, cmds, init_containers=[init], init_container_logs=True))
    shown = capfd.readouterr().out

    assert [shown.count(line) for line in ("[base] one", "[base] two", "[first] made ready")] == [1, 1, 1]


def test_a_lost_log_stream_ends_nothing(
    service: KubernetesService, tries: TaskTries, caplog: pytest.LogCaptureFixture
) -> None:
    """The log can't be had for a while; the pod is watched on to its end."""
    caplog.set_level(logging.WARNING)
    service.proxy.fail("denied", "GET", rf"/namespaces/{service.namespace}/pods/[^/]+/log", 2)
    subject = ours(service, ["sh", "-c", "sleep 0.5; true"])
    tries.run(subject)

    assert tries.record(subject)["phase"] == "succeeded"
    assert not [one for one in psutil.Process().children() if one.status() == psutil.STATUS_ZOMBIE]


def test_status_is_asked_for_no_more_often_than_by_the_parent(
    service: KubernetesService, tries: TaskTries
) -> None:
    """Counted side by side over the same pod's life, with and without logs."""
    counts: dict[tuple[str, bool], int] = {}
    for logs in (False, True):
        for kind, make in (("stock", stock), ("ours", ours)):
            before = service.cluster.audit.count("get", "pods", service.namespace)
            more: dict[str, Any] = {"get_logs": logs, "base_container_status_polling_interval": 0.25}
            TaskTries(run_id=f"{kind}-{logs}").run(make(service, ["sleep", "1.5"], **more))
            counts[kind, logs] = service.cluster.audit.count("get", "pods", service.namespace) - before

    # Each asks a few times before and after the pod's life, which lasts a second and a half.
    assert counts["ours", False] <= counts["stock", False] + 2
    assert counts["ours", True] <= counts["stock", True] + 2
