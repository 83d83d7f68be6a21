# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `ResumableKubernetesPodOperator` does beyond the conformance suite, at a real API server.

The API server's audit log counts. The node that runs the pods is a stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from airflow_resumable.operators.kubernetes import ResumableKubernetesPodOperator
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests.kubernetes_pod_attempts import ours, stock
from tests.kubernetes_service import KubernetesService, until
from tests.stack.kills import until as wait_until

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


def test_the_pod_is_deleted_after_the_outcome_as_the_parent_would(
    service: KubernetesService, tries: TaskTries
) -> None:
    """`on_finish_action` applies, with the pod's uid in the request."""
    subject = ours(service, ["true"])
    tries.run(subject)

    (created,) = service.cluster.audit.created("pods", service.namespace)
    (deleted,) = service.cluster.audit.deleted("pods", service.namespace)
    assert deleted.sent["preconditions"] == {"uid": created.uid}


def test_a_finished_pod_that_another_try_may_still_create_is_kept(
    service: KubernetesService, tries: TaskTries
) -> None:
    """A try that sleeps in its submit wakes up when another has done the work: its create is refused."""
    subject = ours(service, ["true"])
    submit = subject.submit_job

    def submit_job(context: Any) -> Any:
        tries.run(ours(service, ["true"]))
        return submit(context)

    subject.submit_job = submit_job  # type: ignore[method-assign]
    with pytest.raises(Exception, match="taken over"):
        tries.run(subject)

    (created,) = service.cluster.audit.created("pods", service.namespace)
    assert service.object(created.name) is not None


def test_the_main_container_decides(service: KubernetesService, tries: TaskTries) -> None:
    """A sidecar that never ends keeps its pod Running, and the task succeeds."""
    from kubernetes.client import V1Container, V1Pod, V1PodSpec

    sidecar = V1Container(name="proxy", image="any", command=["sleep", "600"])
    spec = V1Pod(spec=V1PodSpec(containers=[V1Container(name="base"), sidecar]))
    subject = ours(service, ["true"], full_pod_spec=spec, container_logs=True)
    tries.run(subject)

    assert tries.record(subject)["phase"] == "succeeded"


def test_an_evicted_pod_is_a_failed_job(service: KubernetesService, tries: TaskTries) -> None:
    """Its logs can't be read, which changes nothing; the next try runs another pod."""
    assert tries.crash(lambda: ours(service, until(service.gate)), "after_id")
    (job,) = service.jobs()
    external_id: Any = job.external_id
    service.cluster.wait_for_pod(service.namespace, external_id["name"])
    service.cluster.evict(service.namespace, external_id["name"])
    service.release()
    subject = ours(service, until(service.gate))
    tries.run(subject)

    assert len(service.jobs()) == 2
    assert tries.record(subject)["generation"] == 2


def test_a_pod_that_a_drain_deletes_is_a_failed_job(
    service: KubernetesService, tries: TaskTries, kubernetes: KubernetesCluster
) -> None:
    """Deleted under our eyes: this try fails, the next one runs another pod."""
    with at_point("mid_poll", lambda: kubernetes.drain(service.namespace)), pytest.raises(AirflowException):
        tries.run(ours(service, ["sleep", "600"], get_logs=False))
    tries.run(ours(service, ["true"]))

    assert len(service.jobs()) == 2


@pytest.mark.parametrize(
    ("more", "why"),
    [({"image": "does-not-exist"}, "can't be pulled"), ({"node_selector": {"disk": "big"}}, "not scheduled")],
    ids=["no such image", "no such node"],
)
def test_a_pod_that_never_starts_has_failed_and_is_deleted(
    service: KubernetesService, tries: TaskTries, more: dict[str, Any], why: str
) -> None:
    """It must not start later, also with ``keep_pod``."""
    arguments = {"schedule_timeout_seconds": 1, "on_finish_action": "keep_pod", **more}
    subject = ours(service, ["true"], **arguments)
    with pytest.raises(AirflowException, match=why):
        tries.run(subject)

    assert tries.record(subject)["phase"] == "failed"
    (created,) = service.cluster.audit.created("pods", service.namespace)
    service.cluster.wait_for_pod(service.namespace, created.name, set())


def test_a_failed_pod_that_could_still_start_is_gone_before_the_next_is_made(
    service: KubernetesService, tries: TaskTries
) -> None:
    """Its clean-up was cut short, so the next try deletes it, and only then starts another."""
    service.cluster.pause_node()
    try:
        subject = ours(service, ["true"], schedule_timeout_seconds=1)
        with mock.patch.object(subject, "clean_up_job"), pytest.raises(AirflowException):
            tries.run(subject)
        (first,) = service.cluster.audit.created("pods", service.namespace)
        assert service.object(first.name) is not None
        assert tries.crash(lambda: ours(service, ["true"]), "after_accept")
        assert service.object(first.name) is None
    finally:
        service.cluster.resume_node()
    tries.run(ours(service, ["true"]))

    assert len(service.cluster.audit.created("pods", service.namespace)) == 2


def test_a_program_that_an_eviction_ends_well_has_failed(
    service: KubernetesService, tries: TaskTries
) -> None:
    """It traps SIGTERM and exits with 0, and has not done its work."""
    cmds = ["sh", "-c", f"trap 'exit 0' TERM; : > {service.gate}.up; while true; do sleep 0.05; done"]
    assert tries.crash(lambda: ours(service, cmds), "after_id")
    (job,) = service.jobs()
    external_id: Any = job.external_id
    wait_until("the program is ready", service.gate.with_name(f"{service.gate.name}.up").exists)
    service.cluster.evict(service.namespace, external_id["name"])
    subject = ours(service, ["true"])
    tries.run(subject)

    assert tries.record(subject)["generation"] == 2


def test_a_program_that_a_drain_ends_well_has_failed(
    service: KubernetesService, tries: TaskTries, kubernetes: KubernetesCluster
) -> None:
    """Its pod is being deleted, and it exits with 0 for that: not because its work is done."""
    ready = service.gate.with_name(f"{service.gate.name}.up")
    cmds = ["sh", "-c", f"trap 'sleep 1; exit 0' TERM; : > {ready}; while true; do sleep 0.05; done"]

    def drain() -> None:
        wait_until("the program is ready", ready.exists)
        kubernetes.drain(service.namespace)

    more: dict[str, Any] = {"get_logs": False, "termination_grace_period": 30}
    with at_point("mid_poll", drain), pytest.raises(AirflowException):
        tries.run(ours(service, cmds, **more))
    subject = ours(service, ["true"])
    tries.run(subject)

    assert tries.record(subject)["generation"] == 2


def test_an_exit_code_may_skip_the_task(service: KubernetesService, tries: TaskTries) -> None:
    """It is an outcome on record: a try that comes after runs nothing and skips too."""
    for _ in range(2):
        with pytest.raises(AirflowSkipException, match="exit code 99"):
            tries.run(ours(service, ["sh", "-c", "exit 99"], skip_on_exit_code=99))

    assert len(service.jobs()) == 1


@pytest.mark.parametrize("adopt", [False, True], ids=["by default", "adopt_stock_pod"])
def test_a_pod_of_the_parents_that_is_not_on_record_is_taken_over_only_when_asked(
    service: KubernetesService, tries: TaskTries, adopt: bool
) -> None:
    """Its labels name Dag, run and task, and nothing of the installation: it may be another's."""
    theirs = stock(service, until(service.gate), get_logs=False)
    elsewhere = TaskTries()
    context = elsewhere.context(theirs)
    theirs.pod_request_obj = theirs.build_pod_request_obj(context)
    theirs.get_or_create_pod(theirs.pod_request_obj, context)
    subject = ours(service, until(service.gate), get_logs=False, adopt_stock_pod=adopt)
    with at_point("mid_poll", service.release):
        tries.run(subject, try_number=2)

    assert len(service.jobs()) == (1 if adopt else 2)


# --- permissions ---


def _rules(but: tuple[str, str] = ("", "")) -> list[dict[str, list[str]]]:
    (facts,) = ResumableKubernetesPodOperator.service_facts
    return [
        {
            "apiGroups": [one.group],
            "resources": [one.resource],
            "verbs": [verb for verb in one.verbs if (one.resource, verb) != but],
        }
        for one in facts.permissions
    ]


def test_the_documented_permissions_are_enough(service: KubernetesService, tries: TaskTries) -> None:
    """A user who may do just that runs, crashes, finds, reads, tidies up."""
    service.cluster.grant("ann", service.namespace, _rules())
    make: Callable[[], Any] = lambda: ours(service, XCOM, "ann", do_xcom_push=True)  # noqa: E731
    assert tries.crash(make, "after_accept")

    assert tries.run(make()) == {"rows": 7}
    refused = service.cluster.audit.requests(None, None, service.namespace, user="ann", code=403)
    assert not refused


@pytest.mark.parametrize("verb", ["create", "get", "list"])
def test_a_missing_permission_is_loud(service: KubernetesService, tries: TaskTries, verb: str) -> None:
    """No pod is started on the strength of a question that was refused."""
    service.cluster.grant("ben", service.namespace, _rules(but=("pods", verb)))
    make: Callable[[], Any] = lambda: ours(service, ["true"], "ben", get_logs=False)  # noqa: E731
    # Without `create` nothing comes to be accepted.
    assert tries.crash(make, "after_accept") is (verb != "create")
    with pytest.raises(Exception, match="Forbidden"):
        tries.run(make())
    assert len(service.jobs()) <= 1
