# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What tests may build on: the control plane of the test cluster is Kubernetes' own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from airflow_resumable.testing.errors import SystemUnavailable
from airflow_resumable.testing.kubernetes import programs
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from tests.kubernetes_objects import job, pod

WAIT = "exec sleep 600"


@pytest.fixture
def namespace(kubernetes: KubernetesCluster) -> str:
    """A namespace of the test's own."""
    return kubernetes.namespace()


@pytest.fixture(scope="module")
def core(kubernetes: KubernetesCluster) -> Iterator[Any]:
    """The official client, as admin."""
    with kubernetes.api() as api:
        yield client.CoreV1Api(api)


@pytest.fixture(scope="module")
def batch(kubernetes: KubernetesCluster) -> Iterator[Any]:
    """Likewise, for Jobs."""
    with kubernetes.api() as api:
        yield client.BatchV1Api(api)


def test_a_name_is_taken_once(kubernetes: KubernetesCluster, core: Any, namespace: str) -> None:
    """A second pod of a name is refused, and the audit log has both requests but one creation."""
    first = core.create_namespaced_pod(namespace, pod("one", WAIT))
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_pod(namespace, pod("one", WAIT))
    assert (refused.value.status, "AlreadyExists" in refused.value.body) == (409, True)
    assert [(one.name, one.uid) for one in kubernetes.audit.created("pods", namespace)] == [
        ("one", first.metadata.uid)
    ]
    assert [one.code for one in kubernetes.audit.requests("create", "pods", namespace)] == [201, 409]


def test_pods_are_found_by_label(core: Any, namespace: str) -> None:
    """A selector finds the pods that carry the label, and a label can be put on later."""
    core.create_namespaced_pod(namespace, pod("marked", WAIT, labels={"token": "t1"}))
    core.create_namespaced_pod(namespace, pod("other", WAIT))

    def names(selector: str) -> list[str]:
        return [
            one.metadata.name for one in core.list_namespaced_pod(namespace, label_selector=selector).items
        ]

    assert names("token=t1") == ["marked"]
    core.patch_namespaced_pod("other", namespace, {"metadata": {"labels": {"token": "t1"}}})
    assert names("token=t1") == ["marked", "other"]


def test_a_watch_sees_every_phase(core: Any, namespace: str) -> None:
    """A watch from before the pod ends with the phase that a kubelet would write last."""
    core.create_namespaced_pod(namespace, pod("watched", "exit 3"))
    phases: list[str] = []
    watching = watch.Watch()
    for event in watching.stream(core.list_namespaced_pod, namespace, timeout_seconds=30):
        if event["object"].status.phase not in phases[-1:]:
            phases.append(event["object"].status.phase)
        if phases[-1] == "Failed":
            watching.stop()
    assert phases == ["Pending", "Running", "Failed"]


def test_the_job_controller_makes_the_pod(
    kubernetes: KubernetesCluster, core: Any, batch: Any, namespace: str
) -> None:
    """A Job gets its pod from the real controller and is complete after it; its name is taken once too."""
    batch.create_namespaced_job(namespace, job("work", "true"))
    with pytest.raises(ApiException, match="409"):
        batch.create_namespaced_job(namespace, job("work", "true"))
    watching = watch.Watch()
    for event in watching.stream(batch.list_namespaced_job, namespace, timeout_seconds=30):
        if event["object"].status.conditions:
            assert [one.type for one in event["object"].status.conditions] == ["Complete"]
            watching.stop()
    (made,) = core.list_namespaced_pod(namespace, label_selector="job-name=work").items
    assert made.status.phase == "Succeeded"
    # The controller's own requests aren't a client's.
    assert kubernetes.audit.created("pods", namespace) == []
    assert len(kubernetes.audit.created("jobs", namespace)) == 1


def test_a_failed_pod_fails_its_job(batch: Any, namespace: str) -> None:
    """Without more attempts allowed, the real controller gives up after the first pod."""
    batch.create_namespaced_job(namespace, job("work", "exit 1"))
    watching = watch.Watch()
    reasons = []
    for event in watching.stream(batch.list_namespaced_job, namespace, timeout_seconds=30):
        if event["object"].status.conditions:
            reasons = [(one.type, one.reason) for one in event["object"].status.conditions]
            watching.stop()
    assert reasons == [("Failed", "BackoffLimitExceeded")]


def test_deleting_a_job_ends_its_pod(
    kubernetes: KubernetesCluster, core: Any, batch: Any, namespace: str
) -> None:
    """The real garbage collector deletes the pod of a Job that was deleted in the foreground."""
    batch.create_namespaced_job(namespace, job("work", WAIT))
    watching = watch.Watch()
    for event in watching.stream(core.list_namespaced_pod, namespace, timeout_seconds=30):
        if event["object"].status.phase == "Running":
            name = event["object"].metadata.name
            watching.stop()
    batch.delete_namespaced_job("work", namespace, propagation_policy="Foreground")
    kubernetes.wait_for_pod(namespace, name, set())
    assert [one.name for one in kubernetes.audit.deleted("jobs", namespace)] == ["work"]
    assert kubernetes.audit.deleted("pods", namespace) == []


def test_a_user_may_do_what_is_granted(kubernetes: KubernetesCluster, namespace: str) -> None:
    """RBAC is on: a verb that was not granted is refused, and the audit log says to whom."""
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    kubernetes.grant("ann", namespace, [rule])
    with kubernetes.api("ann") as api:
        ann = client.CoreV1Api(api)
        ann.create_namespaced_pod(namespace, pod("hers", "true"))
        with pytest.raises(ApiException, match='User \\\\"ann\\\\" cannot get resource \\\\"pods\\\\"'):
            ann.read_namespaced_pod("hers", namespace)
        kubernetes.grant("ann", namespace, [{**rule, "verbs": ["create", "get"]}])
        # What was granted holds a moment later: the API server's own watch brings it.
        assert _until_allowed(lambda: ann.read_namespaced_pod("hers", namespace)).metadata.name == "hers"
    denied = kubernetes.audit.requests(None, "pods", namespace, code=403)
    assert {(one.user, one.verb) for one in denied} == {("ann", "get")}


def _until_allowed(call: Any) -> Any:
    for _ in range(200):
        try:
            return call()
        except ApiException as error:
            if error.status != 403:
                raise
    return call()


def test_an_unknown_token_is_refused(kubernetes: KubernetesCluster) -> None:
    """Only the users of the cluster are let in."""
    with httpx.Client(verify=False) as someone:
        answer = someone.get(f"{kubernetes.url}/api/v1/pods", headers={"Authorization": "Bearer stolen"})
    assert answer.status_code == 401


def test_the_audit_log_keeps_what_was_asked(kubernetes: KubernetesCluster, core: Any, namespace: str) -> None:
    """A request is in the log with its body, its answer, and the client's name for itself."""
    core.api_client.user_agent = "tester/1.0"
    core.create_namespaced_pod(namespace, pod("one", "true", labels={"a": "b"}))
    core.read_namespaced_pod("one", namespace)
    core.delete_namespaced_pod("one", namespace, grace_period_seconds=0)
    made, read, gone = kubernetes.audit.requests(None, "pods", namespace, user="admin")
    assert (made.verb, read.verb, gone.verb) == ("create", "get", "delete")
    assert made.sent["metadata"]["labels"] == {"a": "b"}
    assert made.agent == "tester/1.0"
    assert gone.sent["gracePeriodSeconds"] == 0 if gone.sent else "gracePeriodSeconds=0" in gone.uri
    assert kubernetes.audit.count("get", "pods", namespace) == 1


def test_a_killed_api_server_forgets_nothing(
    kubernetes: KubernetesCluster, core: Any, namespace: str, tmp_path: Path
) -> None:
    """Objects are in etcd, the node goes on with what it runs, and tells later what ended meanwhile."""
    made = core.create_namespaced_pod(namespace, pod("kept", WAIT))
    gate = tmp_path / "gate"
    script = f"until [ -e {gate} ]; do sleep 0.05; done; touch {gate}.passed; exit 3"
    core.create_namespaced_pod(namespace, pod("ends", script))
    for name in ("kept", "ends"):
        kubernetes.wait_for_pod(namespace, name)
    kubernetes.kill("kube-apiserver")
    gate.touch()
    while not Path(f"{gate}.passed").exists():
        time.sleep(0.02)
    kubernetes.restart_api_server()
    found = kubernetes.pod(namespace, "kept")
    assert found is not None
    assert (found["metadata"]["uid"], found["status"]["phase"]) == (made.metadata.uid, "Running")
    kubernetes.wait_for_pod(namespace, "ends", {"Failed"})
    core.create_namespaced_pod(namespace, pod("later", "exit 4"))
    kubernetes.wait_for_pod(namespace, "later", {"Failed"})


def test_missing_programs_are_told_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the programs, the error says how to get them, and nothing was started."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SystemUnavailable, match=r"scripts/kubernetes_control_plane\.sh"):
        KubernetesCluster(tmp_path / "work").__enter__()
    assert programs.folder() == tmp_path / "airflow-resumable" / "kubernetes"
    assert not (tmp_path / "work").exists()


def test_nothing_outlives_the_cluster(tmp_path: Path, kubernetes: KubernetesCluster) -> None:
    """The processes of the control plane, the node and the pods end with the cluster."""
    with KubernetesCluster(tmp_path / "second") as second:
        second.request("POST", "/api/v1/namespaces/default/pods", pod("one", "trap '' TERM; sleep 600"))
        second.wait_for_pod("default", "one")
        processes = second.processes()
        assert len(processes) >= 5
    assert not [one for one in processes if one.is_running()]
    # Another cluster of the same host goes on.
    assert kubernetes.request("GET", "/api/v1/nodes")["items"]
