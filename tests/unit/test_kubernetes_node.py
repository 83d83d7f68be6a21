# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the stand-in for the node does with pods: it is ours, so each thing it claims is tried here."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.stream import stream

from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.mounts import Mounts
from tests.kubernetes_objects import container, pod

WAIT = "exec sleep 600"
ENDED = {"Succeeded", "Failed"}

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def namespace(kubernetes: KubernetesCluster) -> str:
    """A namespace of the test's own."""
    return kubernetes.namespace()


@pytest.fixture(scope="module")
def core(kubernetes: KubernetesCluster) -> Iterator[Any]:
    """The official client, as admin."""
    with kubernetes.api() as api:
        yield client.CoreV1Api(api)


@pytest.fixture
def run(kubernetes: KubernetesCluster, namespace: str) -> Run:
    """Make a pod, wait until it has ended (or for other phases), return it."""

    def run(
        name: str, *containers: Any, until: set[str] = ENDED, path: str | None = None, **spec: Any
    ) -> dict[str, Any]:
        kubernetes.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod(name, *containers, **spec))
        found = kubernetes.wait_for_pod(namespace, name, until)
        assert found is not None
        return found

    return run


def _state(found: dict[str, Any], index: int = 0, key: str = "containerStatuses") -> dict[str, Any]:
    state: dict[str, Any] = found["status"][key][index]["state"]
    return state


@pytest.mark.parametrize(
    ("script", "phase", "code", "reason"),
    [
        ("true", "Succeeded", 0, "Completed"),
        ("exit 3", "Failed", 3, "Error"),
        ("kill -9 $$", "Failed", 137, "Error"),
    ],
)
def test_a_pod_ends_as_its_process(run: Run, script: str, phase: str, code: int, reason: str) -> None:
    """Phase, exit code and reason follow from the process's end, a signal's as 128 and its number."""
    found = run("one", script)
    ended = _state(found)["terminated"]
    assert (found["status"]["phase"], ended["exitCode"], ended["reason"]) == (phase, code, reason)


def test_a_program_that_is_not_there_cannot_run(run: Run) -> None:
    """A command that no host has ends the container as a kubelet's runtime would."""
    found = run("one", {"name": "base", "image": "any", "command": ["/no/such/program"]})
    assert _state(found)["terminated"]["reason"] == "ContainerCannotRun"


def test_an_image_that_is_not_there_keeps_the_pod_pending(kubernetes: KubernetesCluster, run: Run) -> None:
    """A pod whose image can't be had waits, and says for what."""
    found = run("one", {**container("true"), "image": "registry/does-not-exist:1"}, until={"Pending"})
    while "waiting" not in _state_or_empty(found) or _state(found)["waiting"]["reason"] != "ErrImagePull":
        again = kubernetes.pod(found["metadata"]["namespace"], "one")
        assert again is not None
        found = again
    assert found["status"]["phase"] == "Pending"


def _state_or_empty(found: dict[str, Any]) -> dict[str, Any]:
    return _state(found) if found["status"].get("containerStatuses") else {}


def test_words_variables_and_the_working_directory(
    run: Run, core: Any, namespace: str, tmp_path: Path
) -> None:
    """Arguments follow the command, variables are set and put into words, fields of the pod too."""
    run(
        "one",
        {
            "name": "base",
            "image": "any",
            "command": ["sh", "-c", 'echo "$1 $2 $NAMESPACE $COLOUR $(pwd)"', "sh"],
            "args": ["$(NAME)", "plain"],
            "env": [
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                {"name": "COLOUR", "value": "blue"},
            ],
            "workingDir": str(tmp_path),
        },
    )
    assert _log(core, namespace) == f"one plain {namespace} blue {tmp_path}\n"


def test_variables_and_files_from_maps_and_secrets(
    kubernetes: KubernetesCluster, run: Run, core: Any, namespace: str
) -> None:
    """ConfigMaps and Secrets reach a container as variables, one or all, and as files."""
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "plain"}, "data": {"KEY": "of-a-map"}})
    secret = {"metadata": {"name": "hidden"}, "stringData": {"WORD": "of-a-secret"}}
    core.create_namespaced_secret(namespace, secret)
    base = container(
        'echo "$ONE $TWO $KEY $WORD $(cat /etc/plain/KEY) $(cat /etc/hidden/WORD)"',
        env=[
            {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "plain", "key": "KEY"}}},
            {"name": "TWO", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "WORD"}}},
        ],
        envFrom=[{"configMapRef": {"name": "plain"}}, {"secretRef": {"name": "hidden"}}],
        volumeMounts=[
            {"name": "plain", "mountPath": "/etc/plain"},
            {"name": "hidden", "mountPath": "/etc/hidden"},
        ],
    )
    volumes = [
        {"name": "plain", "configMap": {"name": "plain"}},
        {"name": "hidden", "secret": {"secretName": "hidden"}},
    ]
    run("one", base, volumes=volumes)
    assert _log(core, namespace).split() == ["of-a-map", "of-a-secret"] * 3


def test_several_containers_share_a_volume(run: Run, core: Any, namespace: str) -> None:
    """Each container is a process with a log of its own; a file in an emptyDir is there for both."""
    mounts: Any = {"volumeMounts": [{"name": "shared", "mountPath": "/data"}]}
    writer = container("echo 42 > /data/.new; mv /data/.new /data/answer; exit 1", "writer", **mounts)
    reader = container("until [ -e /data/answer ]; do sleep 0.05; done; cat /data/answer", "reader", **mounts)
    found = run("one", writer, reader, volumes=[{"name": "shared", "emptyDir": {}}])
    # One container that failed fails the pod.
    assert found["status"]["phase"] == "Failed"
    assert [_state(found, index)["terminated"]["exitCode"] for index in (0, 1)] == [1, 0]
    assert _log(core, namespace, container="reader") == "42\n"


def test_init_containers_run_first_and_in_order(run: Run, core: Any, namespace: str) -> None:
    """A container starts when every init container has succeeded, one after the other."""
    mounts: Any = {"volumeMounts": [{"name": "shared", "mountPath": "/data"}]}
    first = [container(f"sleep 0.1; echo {name} >> /data/order", name, **mounts) for name in ("one", "two")]
    base = container("cat /data/order", **mounts)
    run("one", base, initContainers=first, volumes=[{"name": "shared", "emptyDir": {}}])
    assert _log(core, namespace, container="base") == "one\ntwo\n"


def test_a_failed_init_container_fails_the_pod(run: Run) -> None:
    """The containers after it don't start."""
    found = run("one", "true", initContainers=[container("exit 2", "first"), container("true", "second")])
    assert found["status"]["phase"] == "Failed"
    assert _state(found, 0, "initContainerStatuses")["terminated"]["exitCode"] == 2
    assert "waiting" in _state(found, 1, "initContainerStatuses")
    assert "waiting" in _state(found)


def test_a_container_is_restarted_where_its_pod_says_so(run: Run) -> None:
    """With OnFailure, a container that failed runs again until it succeeds, and its status has both."""
    mounts: Any = {"volumeMounts": [{"name": "shared", "mountPath": "/data"}]}
    base = container("[ -e /data/tried ] || { touch /data/tried; exit 5; }", **mounts)
    volumes = [{"name": "shared", "emptyDir": {}}]
    found = run("one", base, restartPolicy="OnFailure", volumes=volumes)
    (status,) = found["status"]["containerStatuses"]
    assert (found["status"]["phase"], status["restartCount"]) == ("Succeeded", 1)
    assert status["lastState"]["terminated"]["exitCode"] == 5


def test_a_log_is_followed_to_the_end(run: Run, core: Any, namespace: str) -> None:
    """Lines come while the container runs, and the stream ends with it."""
    mounts: Any = {"volumeMounts": [{"name": "shared", "mountPath": "/data"}]}
    base = container("echo a; while [ ! -e /data/go ]; do sleep 0.05; done; printf 'b\\nc'", **mounts)
    found = run("one", base, until={"Running"}, volumes=[{"name": "shared", "emptyDir": {}}])
    read = core.read_namespaced_pod_log("one", namespace, follow=True, _preload_content=False)
    with closing(read):
        assert read.readline() == b"a\n"
        assert "running" in _state(found)
        _execute(core, namespace, "one", ["touch", "/data/go"])
        assert read.read() == b"b\nc"


def test_a_log_is_read_from_a_line_or_a_time(run: Run, core: Any, namespace: str) -> None:
    """Each line has the time at which it was written, on every read; what is older is left out on request."""
    run("one", "echo a; sleep 1.2; echo b; echo c")
    whole = _log(core, namespace, timestamps="true")
    assert _log(core, namespace, timestamps="true") == whole
    stamps = [datetime.fromisoformat(line.split(" ")[0]) for line in whole.splitlines()]
    assert (stamps[1] - stamps[0]).total_seconds() > 1
    assert _log(core, namespace, tailLines="2") == "b\nc\n"
    assert _log(core, namespace, sinceSeconds="3600") == "a\nb\nc\n"
    assert _log(core, namespace, sinceTime=stamps[1].strftime("%Y-%m-%dT%H:%M:%SZ")) == "b\nc\n"


def test_a_paused_node_takes_no_pods(kubernetes: KubernetesCluster, core: Any, namespace: str) -> None:
    """A new pod stays Pending, with an empty log, until the node goes on."""
    kubernetes.pause_node()
    try:
        core.create_namespaced_pod(namespace, pod("one", "true"))
        assert _log(core, namespace) == ""
        assert core.read_namespaced_pod("one", namespace).status.phase == "Pending"
    finally:
        kubernetes.resume_node()
    kubernetes.wait_for_pod(namespace, "one", {"Succeeded"})


def test_a_deleted_pod_may_end_by_itself(
    kubernetes: KubernetesCluster,
    run: Run,
    core: Any,
    namespace: str,
    tmp_path: Path,
) -> None:
    """Its process gets SIGTERM and its grace; then the pod is gone."""
    script = (
        f"trap 'echo bye > {tmp_path}/bye; exit 0' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    )
    run("one", script, until={"Running"})
    _until((tmp_path / "up").exists)
    core.delete_namespaced_pod("one", namespace)
    kubernetes.wait_for_pod(namespace, "one", set())
    assert (tmp_path / "bye").read_text() == "bye\n"


def test_a_deleted_pod_that_will_not_end_is_killed(
    kubernetes: KubernetesCluster,
    run: Run,
    core: Any,
    namespace: str,
    tmp_path: Path,
) -> None:
    """It stays, with its deletion time, until its grace is over; a second delete can cut that short."""
    run("one", f"trap '' TERM; touch {tmp_path}/up; while :; do sleep 0.1; done", until={"Running"})
    _until((tmp_path / "up").exists)
    core.delete_namespaced_pod("one", namespace, grace_period_seconds=600)
    found = kubernetes.pod(namespace, "one")
    assert found is not None
    assert found["metadata"]["deletionGracePeriodSeconds"] == 600
    assert "running" in _state(found)
    core.delete_namespaced_pod("one", namespace, grace_period_seconds=1)
    kubernetes.wait_for_pod(namespace, "one", set(), timeout=30)


def test_deleting_a_pod_ends_its_restarts(
    kubernetes: KubernetesCluster, run: Run, core: Any, namespace: str
) -> None:
    """A pod in its back-off is gone soon, and its container isn't started once more."""
    run("one", "exit 1", until={"Running"}, restartPolicy="OnFailure")
    core.delete_namespaced_pod("one", namespace)
    kubernetes.wait_for_pod(namespace, "one", set(), timeout=30)


def test_a_pod_of_the_same_name_is_another(
    kubernetes: KubernetesCluster, run: Run, core: Any, namespace: str
) -> None:
    """After a forced delete a name is free at once; the old process is killed, the new pod is untouched."""
    old = run("one", WAIT, until={"Running"})
    core.delete_namespaced_pod("one", namespace, grace_period_seconds=0)
    new = run("one", "exit 7")
    assert old["metadata"]["uid"] != new["metadata"]["uid"]
    assert _state(new)["terminated"]["exitCode"] == 7
    pid = int(old["status"]["containerStatuses"][0]["containerID"].removeprefix("process://"))
    _until(lambda: pid not in {one.pid for one in kubernetes.processes()})


def test_an_evicted_pod_stays_and_has_failed(kubernetes: KubernetesCluster, run: Run, namespace: str) -> None:
    """Evicted by the node for want of memory, a pod keeps its name and says why."""
    run("one", WAIT, until={"Running"})
    kubernetes.evict(namespace, "one")
    found = kubernetes.wait_for_pod(namespace, "one", {"Failed"})
    assert found is not None
    assert found["status"]["reason"] == "Evicted"


def test_a_pod_ends_at_its_deadline(run: Run) -> None:
    """It has failed then, and says why; so has one that waits to be restarted."""
    found = run("one", WAIT, activeDeadlineSeconds=1)
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "DeadlineExceeded")
    assert _state(found)["terminated"]["exitCode"] == 128 + signal.SIGTERM
    again = run("two", "exit 1", activeDeadlineSeconds=1, restartPolicy="OnFailure")
    assert again["status"]["reason"] == "DeadlineExceeded"


def test_a_drained_pod_is_gone(kubernetes: KubernetesCluster, run: Run, namespace: str) -> None:
    """A drain deletes by the eviction API, which is no delete request of a client."""
    run("one", WAIT, until={"Running"})
    kubernetes.drain(namespace)
    kubernetes.wait_for_pod(namespace, "one", set())
    assert kubernetes.audit.deleted("pods", namespace) == []


def test_a_rebooted_node_has_lost_its_pods(kubernetes: KubernetesCluster, run: Run, namespace: str) -> None:
    """What ran has failed with 137, what had ended is as it was, and new pods run."""
    run("ended", "exit 3")
    run("ran", WAIT, until={"Running"})
    kubernetes.reboot_node()
    lost = kubernetes.wait_for_pod(namespace, "ran", {"Failed"})
    assert lost is not None
    assert _state(lost)["terminated"]["exitCode"] == 137
    ended = kubernetes.pod(namespace, "ended")
    assert ended is not None
    assert _state(ended)["terminated"]["exitCode"] == 3
    assert run("new", "true")["status"]["phase"] == "Succeeded"


def test_the_xcom_sidecar_of_the_provider_works(
    core: Any, namespace: str, kubernetes: KubernetesCluster
) -> None:
    """The Kubernetes provider's own code reads the result from its sidecar, and ends it."""
    from airflow.providers.cncf.kubernetes.utils.container import container_is_succeeded
    from airflow.providers.cncf.kubernetes.utils.pod_manager import PodManager
    from airflow.providers.cncf.kubernetes.utils.xcom_sidecar import add_xcom_sidecar

    base = client.V1Container(
        name="base",
        image="any",
        command=["sh", "-c", "echo '{\"rows\": 7}' > /airflow/xcom/return.json"],
    )
    bare = client.V1Pod(
        metadata=client.V1ObjectMeta(name="one"),
        spec=client.V1PodSpec(containers=[base], restart_policy="Never"),
    )
    made = core.create_namespaced_pod(namespace, add_xcom_sidecar(bare))
    manager = PodManager(kube_client=core)
    _until(lambda: container_is_succeeded(manager.read_pod(made), "base"))
    assert manager.extract_xcom(made).strip() == '{"rows": 7}'
    found = kubernetes.wait_for_pod(namespace, "one", {"Succeeded"})
    assert found is not None
    assert _state(found, 1)["terminated"]["exitCode"] == 0


def test_no_shell_of_the_host_is_touched_from_within() -> None:
    """The provider's two ways to end its sidecar's shell reach the container's process and no other."""
    mounts = Mounts(Path("/pod"), {}, ())
    assert mounts.typed("kill -2 $(pgrep -u $(id -u) -f 'sh')", 42) == "kill -2 42"
    assert mounts.typed("for f in /proc/[0-9]*/comm; do", 42) == "for f in /proc/42/comm; do"


def test_a_command_in_a_container_gives_its_output_and_code(run: Run, core: Any, namespace: str) -> None:
    """Output, errors and the exit code of a command come back apart."""
    run("one", WAIT, until={"Running"})
    assert _execute(core, namespace, "one", ["sh", "-c", "echo out; echo err >&2; exit 9"]) == (
        "out\n",
        "err\n",
        9,
    )


def _log(core: Any, namespace: str, **query: str) -> str:
    # The client's own method makes the text of bytes' repr, and knows no sinceTime.
    path = f"/api/v1/namespaces/{namespace}/pods/one/log"
    answer = core.api_client.call_api(
        path,
        "GET",
        query_params=list(query.items()),
        auth_settings=["BearerToken"],
        _preload_content=False,
        _return_http_data_only=True,
    )
    text: str = answer.data.decode()
    return text


def _execute(core: Any, namespace: str, name: str, command: list[str]) -> tuple[str, str, int]:
    with closing(
        stream(
            core.connect_get_namespaced_pod_exec,
            name,
            namespace,
            command=command,
            stdout=True,
            stderr=True,
            _preload_content=False,
        )
    ) as shell:
        shell.run_forever(timeout=30)
        return shell.read_stdout(timeout=0), shell.read_stderr(timeout=0), shell.returncode


def _until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_interrupt_reaches_a_container(run: Run, kubernetes: KubernetesCluster) -> None:
    """Containers start with the signals' defaults, whatever started the node."""
    found = run("one", "kill -INT $$; sleep 600")
    assert _state(found)["terminated"]["exitCode"] == 128 + signal.SIGINT
