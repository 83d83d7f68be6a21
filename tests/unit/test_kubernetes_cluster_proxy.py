# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The proxy in front of the test cluster: it passes everything on, and spoils what a test chooses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config
from kubernetes.stream import stream
from urllib3.exceptions import HTTPError

from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from tests.kubernetes_objects import pod

CREATE = r"/pods(\?|$)"


@pytest.fixture(scope="module")
def proxy(kubernetes: KubernetesCluster) -> FaultProxy:
    """A proxy that ends with the cluster."""
    return kubernetes.proxy()


@pytest.fixture
def namespace(kubernetes: KubernetesCluster, proxy: FaultProxy) -> Iterator[str]:
    """A namespace of the test's own; nothing is spoiled after it."""
    yield kubernetes.namespace()
    proxy.heal()


@pytest.fixture
def core(kubernetes: KubernetesCluster, proxy: FaultProxy) -> Iterator[Any]:
    """The official client, by way of the proxy."""
    with new_client_from_config(str(kubernetes.kubeconfig(server=proxy.url))) as api:
        api.configuration.retries = False
        yield client.CoreV1Api(api)


def test_everything_passes(kubernetes: KubernetesCluster, core: Any, namespace: str) -> None:
    """Requests, a watch, a followed log and a command in a container go through, as the same user."""
    core.create_namespaced_pod(namespace, pod("one", "echo a; exec sleep 600"))
    watching = watch.Watch()
    for event in watching.stream(core.list_namespaced_pod, namespace, timeout_seconds=30):
        if event["object"].status.phase == "Running":
            watching.stop()
    read = core.read_namespaced_pod_log("one", namespace, follow=True, _preload_content=False)
    assert read.readline() == b"a\n"
    read.close()
    with closing(
        stream(
            core.connect_get_namespaced_pod_exec,
            "one",
            namespace,
            command=["echo", "b"],
            _preload_content=False,
        )
    ) as shell:
        shell.run_forever(timeout=30)
        assert shell.read_all() == "b\n"
    assert [one.user for one in kubernetes.audit.created("pods", namespace)] == ["admin"]


@pytest.mark.parametrize(
    ("fault", "status"), [("unavailable", 503), ("busy", 429), ("denied", 403), ("unauthorized", 401)]
)
def test_a_refused_request_never_arrives(
    kubernetes: KubernetesCluster, proxy: FaultProxy, core: Any, namespace: str, fault: Any, status: int
) -> None:
    """As many requests as were ordered get the error, of the chosen kind only; then all is well again."""
    spoiled = proxy.fail(fault, "POST", CREATE, times=2)
    assert core.list_namespaced_pod(namespace).items == []
    for _ in range(2):
        with pytest.raises(ApiException) as refused:
            core.create_namespaced_pod(namespace, pod("one", "true"))
        assert refused.value.status == status
    assert spoiled() == 2
    assert kubernetes.audit.requests("create", "pods", namespace) == []
    core.create_namespaced_pod(namespace, pod("one", "true"))
    assert (spoiled(), kubernetes.audit.count("create", "pods", namespace)) == (2, 1)


def test_a_lost_reply_is_of_a_served_request(
    kubernetes: KubernetesCluster, proxy: FaultProxy, core: Any, namespace: str
) -> None:
    """The client sees its connection break; the pod is there."""
    proxy.fail("lost_reply", "POST", CREATE)
    with pytest.raises(HTTPError):
        core.create_namespaced_pod(namespace, pod("one", "true"))
    assert [one.name for one in kubernetes.audit.created("pods", namespace)] == ["one"]
    assert kubernetes.pod(namespace, "one") is not None


def test_a_held_request_waits(
    kubernetes: KubernetesCluster, proxy: FaultProxy, core: Any, namespace: str
) -> None:
    """It has left the client and isn't at the API server, until it is released; others pass."""
    held = proxy.hold("POST", CREATE)
    creating = threading.Thread(target=core.create_namespaced_pod, args=(namespace, pod("one", "true")))
    creating.start()
    held.wait()
    assert core.list_namespaced_pod(namespace).items == []
    held.release()
    creating.join(30)
    assert [one.metadata.name for one in core.list_namespaced_pod(namespace).items] == ["one"]


def test_healing_forgets_what_was_ordered(
    kubernetes: KubernetesCluster, proxy: FaultProxy, core: Any, namespace: str
) -> None:
    """A fault that didn't come to pass does not reach into the next test."""
    spoiled = proxy.fail("unavailable", "GET", "/pods", times=5)
    proxy.heal()
    assert core.list_namespaced_pod(namespace).items == []
    assert spoiled() == 0


def test_a_request_that_never_comes_is_told(proxy: FaultProxy) -> None:
    """Waiting for a held request ends."""
    with pytest.raises(TimeoutError, match=r"no such request within 0\.01 s"):
        proxy.hold("POST", "/nowhere").wait(0.01)
    proxy.heal()


def test_a_closed_proxy_takes_nothing(kubernetes: KubernetesCluster) -> None:
    """After its end the port is closed and its thread is gone."""
    before = threading.active_count()
    proxy = FaultProxy(kubernetes.ports["api"], kubernetes.certificate, kubernetes.key)
    assert threading.active_count() == before + 1
    url = proxy.url
    proxy.close()
    assert threading.active_count() == before
    with new_client_from_config(str(kubernetes.kubeconfig(server=url))) as api:
        api.configuration.retries = False
        with pytest.raises(HTTPError):
            client.CoreV1Api(api).list_namespace()
