# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `ResumableKubernetesPodOperator` does beyond the conformance suite, at a real API server.

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
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from airflow_resumable.jobs.errors import JobMissing, JobSuperseded, ResumableJobFatal
from airflow_resumable.jobs.host import Host
from airflow_resumable.operators._kubernetes_api import FAMILY_LABEL, TOKEN_LABEL
from airflow_resumable.operators.kubernetes import ResumableKubernetesPodOperator
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries, at_point
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


def _arguments(service: KubernetesService, cmds: list[str], user: str = "admin") -> dict[str, Any]:
    return {
        "task_id": "task",
        "name": "work",
        "namespace": service.namespace,
        "image": "any",
        "cmds": cmds,
        "config_file": service.kubeconfig(user),
        "kubernetes_conn_id": None,
        "termination_grace_period": 1,
        "startup_check_interval_seconds": 0.05,
        "base_container_status_polling_interval": 0.05,
        "poll_interval": 0.05,
        "retries": 2,
    }


def _ours(
    service: KubernetesService, cmds: list[str], user: str = "admin", **more: Any
) -> ResumableKubernetesPodOperator:
    return ResumableKubernetesPodOperator(**{**_arguments(service, cmds, user), **more})


def _stock(service: KubernetesService, cmds: list[str], **more: Any) -> KubernetesPodOperator:
    return KubernetesPodOperator(**{**_arguments(service, cmds), **more})


# --- names and marks ---


def test_the_name_ends_with_the_token_and_the_labels_say_it_too(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The stock labels are there as well, and the name is a DNS label."""
    subject = _ours(service, ["true"], name="A_long.name" * 9)
    tries.run(subject)

    (created,) = service.cluster.audit.created("pods", service.namespace)
    record, labels = tries.record(subject), created.answer["metadata"]["labels"]
    assert created.name.endswith(f"-{record['token']}")
    assert len(created.name) <= 63
    assert labels[TOKEN_LABEL] == record["token"]
    assert labels[FAMILY_LABEL] == record["token"][1:17]
    assert (labels["dag_id"], labels["task_id"], labels["try_number"]) == ("dag", "task", "1")


def test_an_exact_name_that_is_a_strangers_is_neither_taken_nor_deleted(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The error names the pod, its uid and the remedy."""
    pod = {
        "metadata": {"name": "work"},
        "spec": {"containers": [{"name": "base", "image": "any", "command": until(service.gate)}]},
    }
    theirs = service.cluster.request("POST", service._path, pod)["metadata"]["uid"]
    with pytest.raises(ResumableJobFatal, match=rf"pod .*/work, uid {theirs}.*random_name_suffix=True"):
        tries.run(_ours(service, ["true"], random_name_suffix=False))

    found = service.object("work")
    assert found is not None
    assert (found["metadata"]["uid"], service.cancels()) == (theirs, 0)


def test_an_exact_name_is_used_again_by_the_next_generation(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The pod of the generation before, which has ended, is deleted by its uid; another takes its name."""
    more: dict[str, Any] = {"random_name_suffix": False, "on_finish_action": "keep_pod"}
    with pytest.raises(AirflowException, match="Pod work returned a failure"):
        tries.run(_ours(service, ["false"], **more))
    subject = _ours(service, ["true"], **more)
    tries.run(subject)

    first, second = service.cluster.audit.created("pods", service.namespace)
    assert (first.name, second.name) == ("work", "work")
    assert tries.record(subject)["external_id"]["uid"] == second.uid
    assert tries.record(subject)["generation"] == 2


def test_another_pod_of_the_same_name_is_neither_adopted_nor_deleted(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The recorded pod was deleted while nobody watched, and somebody has made one of its name."""
    make: Callable[[], Any] = lambda: _ours(service, until(service.gate), random_name_suffix=False)  # noqa: E731
    assert tries.crash(make, "after_id")
    (job,) = service.jobs()
    service.forget(job.external_id)
    service.cluster.wait_for_pod(service.namespace, "work", set())
    pod = {"metadata": {"name": "work"}, "spec": {"containers": [{"name": "base", "image": "any"}]}}
    other = service.cluster.request("POST", service._path, pod)["metadata"]["uid"]
    with pytest.raises(JobMissing):
        tries.run(make())

    found = service.object("work")
    assert found is not None
    assert (found["metadata"]["uid"], service.cancels()) == (other, 0)


# --- nothing is touched before the outcome ---


@pytest.mark.parametrize("how", ["stopped", "failing"])
def test_a_try_that_ends_before_its_pod_leaves_it_untouched(
    service: KubernetesService, tries: TaskTries, how: str
) -> None:
    """Evicted, or broken by an error: no delete, no patch, no process left; the next try has the same pod."""
    if how == "stopped":
        assert tries.stop(_ours(service, until(service.gate), get_logs=False), "running") == "JobKept"
    else:
        assert tries.crash(lambda: _ours(service, until(service.gate), get_logs=False), "mid_poll")
    (created,) = service.cluster.audit.created("pods", service.namespace)
    found = service.object(created.name)

    assert found is not None
    assert found["metadata"]["labels"] == created.answer["metadata"]["labels"]
    assert service.cancels() == service.cluster.audit.count("patch", "pods", service.namespace) == 0
    service.fail("status", "unavailable", 3)
    service.release()
    subject = _ours(service, until(service.gate), get_logs=False)
    tries.run(subject)
    assert tries.record(subject)["external_id"]["uid"] == created.uid


def test_the_pod_is_deleted_after_the_outcome_as_the_parent_would(
    service: KubernetesService, tries: TaskTries
) -> None:
    """`on_finish_action` applies, with the pod's uid in the request."""
    subject = _ours(service, ["true"])
    tries.run(subject)

    (created,) = service.cluster.audit.created("pods", service.namespace)
    (deleted,) = service.cluster.audit.deleted("pods", service.namespace)
    assert deleted.sent["preconditions"] == {"uid": created.uid}


def test_a_finished_pod_that_another_try_may_still_create_is_kept(
    service: KubernetesService, tries: TaskTries
) -> None:
    """A try that sleeps in its submit wakes up when another has done the work: its create is refused."""
    subject = _ours(service, ["true"])
    submit = subject.submit_job

    def submit_job(context: Any) -> Any:
        tries.run(_ours(service, ["true"]))
        return submit(context)

    subject.submit_job = submit_job  # type: ignore[method-assign]
    with pytest.raises(Exception, match="taken over"):
        tries.run(subject)

    (created,) = service.cluster.audit.created("pods", service.namespace)
    assert service.object(created.name) is not None


# --- what a pod may do ---


def test_the_main_container_decides(service: KubernetesService, tries: TaskTries) -> None:
    """A sidecar that never ends keeps its pod Running, and the task succeeds."""
    from kubernetes.client import V1Container, V1Pod, V1PodSpec

    sidecar = V1Container(name="proxy", image="any", command=["sleep", "600"])
    spec = V1Pod(spec=V1PodSpec(containers=[V1Container(name="base"), sidecar]))
    subject = _ours(service, ["true"], full_pod_spec=spec, container_logs=True)
    tries.run(subject)

    assert tries.record(subject)["phase"] == "succeeded"


def test_an_evicted_pod_is_a_failed_job(service: KubernetesService, tries: TaskTries) -> None:
    """Its logs can't be read, which changes nothing; the next try runs another pod."""
    assert tries.crash(lambda: _ours(service, until(service.gate)), "after_id")
    (job,) = service.jobs()
    external_id: Any = job.external_id
    service.cluster.wait_for_pod(service.namespace, external_id["name"])
    service.cluster.evict(service.namespace, external_id["name"])
    service.release()
    subject = _ours(service, until(service.gate))
    tries.run(subject)

    assert len(service.jobs()) == 2
    assert tries.record(subject)["generation"] == 2


def test_a_pod_that_a_drain_deletes_is_a_failed_job(
    service: KubernetesService, tries: TaskTries, kubernetes: KubernetesCluster
) -> None:
    """Deleted under our eyes: this try fails, the next one runs another pod."""
    with at_point("mid_poll", lambda: kubernetes.drain(service.namespace)), pytest.raises(AirflowException):
        tries.run(_ours(service, ["sleep", "600"], get_logs=False))
    tries.run(_ours(service, ["true"]))

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
    subject = _ours(service, ["true"], **arguments)
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
        subject = _ours(service, ["true"], schedule_timeout_seconds=1)
        with mock.patch.object(subject, "clean_up_job"), pytest.raises(AirflowException):
            tries.run(subject)
        (first,) = service.cluster.audit.created("pods", service.namespace)
        assert service.object(first.name) is not None
        assert tries.crash(lambda: _ours(service, ["true"]), "after_accept")
        assert service.object(first.name) is None
    finally:
        service.cluster.resume_node()
    tries.run(_ours(service, ["true"]))

    assert len(service.cluster.audit.created("pods", service.namespace)) == 2


def test_a_program_that_an_eviction_ends_well_has_failed(
    service: KubernetesService, tries: TaskTries
) -> None:
    """It traps SIGTERM and exits with 0, and has not done its work."""
    cmds = ["sh", "-c", f"trap 'exit 0' TERM; : > {service.gate}.up; while true; do sleep 0.05; done"]
    assert tries.crash(lambda: _ours(service, cmds), "after_id")
    (job,) = service.jobs()
    external_id: Any = job.external_id
    wait_until("the program is ready", service.gate.with_name(f"{service.gate.name}.up").exists)
    service.cluster.evict(service.namespace, external_id["name"])
    subject = _ours(service, ["true"])
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
        tries.run(_ours(service, cmds, **more))
    subject = _ours(service, ["true"])
    tries.run(subject)

    assert tries.record(subject)["generation"] == 2


def test_a_stop_before_the_first_look_ends_no_strangers_pod(
    service: KubernetesService, tries: TaskTries
) -> None:
    """A fresh operator knows the uid from the record: what has the name by now is left alone."""
    make: Callable[[], Any] = lambda: _ours(service, until(service.gate), random_name_suffix=False)  # noqa: E731
    assert tries.crash(make, "after_id")
    (job,) = service.jobs()
    service.forget(job.external_id)
    service.cluster.wait_for_pod(service.namespace, "work", set())
    pod = {"metadata": {"name": "work"}, "spec": {"containers": [{"name": "base", "image": "any"}]}}
    other = service.cluster.request("POST", service._path, pod)["metadata"]["uid"]
    subject = make()
    host = Host(subject, subject.get_capabilities(), subject.resumable_policy())
    attempt = host.prepare(tries.context(subject))
    assert attempt is not None
    attempt.ending.cancel()

    found = service.object("work")
    assert found is not None
    assert found["metadata"]["uid"] == other


def test_a_try_that_slept_takes_no_later_generations_pod_for_an_earlier_one(
    service: KubernetesService, tries: TaskTries
) -> None:
    """It wakes in its create when the exact name is a later generation's: it stands back and deletes none."""
    more: dict[str, Any] = {"random_name_suffix": False, "on_finish_action": "keep_pod"}
    sleeper = _ours(service, ["true"], **more)
    submit = sleeper.submit_job

    def submit_job(context: Any) -> Any:
        with pytest.raises(AirflowException):
            tries.run(_ours(service, ["false"], **more))
        tries.run(_ours(service, ["true"], **more))
        return submit(context)

    sleeper.submit_job = submit_job  # type: ignore[method-assign]
    with pytest.raises(JobSuperseded):
        tries.run(sleeper)
    first, second = service.cluster.audit.created("pods", service.namespace)
    found = service.object("work")

    assert found is not None
    assert found["metadata"]["uid"] == second.uid != first.uid


def test_a_sidecar_that_is_yet_to_start_is_waited_for(service: KubernetesService, tries: TaskTries) -> None:
    """The main container may be faster than the sidecar that holds its result."""
    subject = _ours(service, XCOM, do_xcom_push=True)
    waiting = mock.patch.object(subject, "_sidecar_is_yet_to_start", side_effect=[True, False])
    awaited = mock.Mock(wraps=subject.pod_manager.await_xcom_sidecar_container_start)
    with waiting, mock.patch.object(subject.pod_manager, "await_xcom_sidecar_container_start", awaited):
        assert tries.run(subject) == {"rows": 7}

    assert awaited.call_count == 1


def test_an_exit_code_may_skip_the_task(service: KubernetesService, tries: TaskTries) -> None:
    """It is an outcome on record: a try that comes after runs nothing and skips too."""
    for _ in range(2):
        with pytest.raises(AirflowSkipException, match="exit code 99"):
            tries.run(_ours(service, ["sh", "-c", "exit 99"], skip_on_exit_code=99))

    assert len(service.jobs()) == 1


# --- results ---


def test_results_and_xcoms_are_the_parents(service: KubernetesService, tries: TaskTries) -> None:
    """Undisturbed, after a reconnect and by the parent: the same value and the same keys."""
    stock = TaskTries(run_id="stock")
    expected = stock.run(_stock(service, XCOM, do_xcom_push=True))
    assert tries.crash(lambda: _ours(service, XCOM, do_xcom_push=True), "after_id")
    disturbed = tries.run(_ours(service, XCOM, do_xcom_push=True))
    again = tries.run(_ours(service, XCOM, do_xcom_push=True))

    assert expected == disturbed == again == {"rows": 7}
    assert dict(stock.xcoms).keys() == dict(tries.xcoms).keys()


def test_the_sidecar_ends_once_the_result_is_on_record(service: KubernetesService, tries: TaskTries) -> None:
    """A worker that dies before leaves it running, so that the next try can still read the result."""
    make: Callable[[], Any] = lambda: _ours(service, XCOM, do_xcom_push=True, on_finish_action="keep_pod")  # noqa: E731
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
        tries.run(_ours(service, cmds, do_xcom_push=True))
    (created,) = service.cluster.audit.created("pods", service.namespace)

    service.cluster.wait_for_pod(service.namespace, created.name, set())


def test_logs_are_written_as_the_parent_writes_them(
    service: KubernetesService, tries: TaskTries, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each line once, also of an init container that is asked for."""
    from kubernetes.client import V1Container

    init = V1Container(name="first", image="any", command=["echo", "made ready"])
    cmds = ["sh", "-c", "echo one; sleep 0.3; echo two"]
    tries.run(_ours(service, cmds, init_containers=[init], init_container_logs=True))
    shown = capfd.readouterr().out

    assert [shown.count(line) for line in ("[base] one", "[base] two", "[first] made ready")] == [1, 1, 1]


# --- from one to the other ---


def test_a_pod_of_the_parents_is_taken_over(service: KubernetesService, tries: TaskTries) -> None:
    """The parent has stored its name; ours watches it to its end, and starts none."""
    stock = _stock(service, until(service.gate), get_logs=False)
    context = tries.context(stock)
    stock.pod_request_obj = stock.build_pod_request_obj(context)
    stock.get_or_create_pod(stock.pod_request_obj, context)
    service.release()
    tries.run(_ours(service, until(service.gate), get_logs=False))

    assert len(service.jobs()) == 1


def test_the_parent_takes_over_ours(service: KubernetesService, tries: TaskTries) -> None:
    """Under the parent's key lie the name and namespace that it looks for."""
    assert tries.crash(lambda: _ours(service, until(service.gate)), "after_id")
    # The parent starts another pod in place of one that has ended, so this one ends while it is watched.
    stock = _stock(service, until(service.gate), get_logs=False)
    read: list[Any] = []
    manager = stock.pod_manager
    read_pod = manager.read_pod

    def reading(pod: Any) -> Any:
        read.append(pod)
        service.release()
        return read_pod(pod)

    manager.read_pod = reading
    tries.run(stock)

    assert read

    assert len(service.jobs()) == 1


@pytest.mark.parametrize("adopt", [False, True], ids=["by default", "adopt_stock_pod"])
def test_a_pod_of_the_parents_that_is_not_on_record_is_taken_over_only_when_asked(
    service: KubernetesService, tries: TaskTries, adopt: bool
) -> None:
    """Its labels name Dag, run and task, and nothing of the installation: it may be another's."""
    stock = _stock(service, until(service.gate), get_logs=False)
    elsewhere = TaskTries()
    context = elsewhere.context(stock)
    stock.pod_request_obj = stock.build_pod_request_obj(context)
    stock.get_or_create_pod(stock.pod_request_obj, context)
    ours = _ours(service, until(service.gate), get_logs=False, adopt_stock_pod=adopt)
    with at_point("mid_poll", service.release):
        tries.run(ours, try_number=2)

    assert len(service.jobs()) == (1 if adopt else 2)


def test_status_is_asked_for_no_more_often_than_by_the_parent(
    service: KubernetesService, tries: TaskTries
) -> None:
    """Counted side by side over the same pod's life, with and without logs."""
    counts: dict[tuple[str, bool], int] = {}
    for logs in (False, True):
        for kind, make in (("stock", _stock), ("ours", _ours)):
            before = service.cluster.audit.count("get", "pods", service.namespace)
            more: dict[str, Any] = {"get_logs": logs, "base_container_status_polling_interval": 0.5}
            TaskTries(run_id=f"{kind}-{logs}").run(make(service, ["sleep", "3"], **more))
            counts[kind, logs] = service.cluster.audit.count("get", "pods", service.namespace) - before

    # Each asks a few times before and after the pod's life, which lasts three seconds.
    assert counts["ours", False] <= counts["stock", False] + 2
    assert counts["ours", True] <= counts["stock", True] + 2


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
    make: Callable[[], Any] = lambda: _ours(service, XCOM, "ann", do_xcom_push=True)  # noqa: E731
    assert tries.crash(make, "after_accept")

    assert tries.run(make()) == {"rows": 7}
    refused = service.cluster.audit.requests(None, None, service.namespace, user="ann", code=403)
    assert not refused


@pytest.mark.parametrize("verb", ["create", "get", "list"])
def test_a_missing_permission_is_loud(service: KubernetesService, tries: TaskTries, verb: str) -> None:
    """No pod is started on the strength of a question that was refused."""
    service.cluster.grant("ben", service.namespace, _rules(but=("pods", verb)))
    make: Callable[[], Any] = lambda: _ours(service, ["true"], "ben", get_logs=False)  # noqa: E731
    # Without `create` nothing comes to be accepted.
    assert tries.crash(make, "after_accept") is (verb != "create")
    with pytest.raises(Exception, match="Forbidden"):
        tries.run(make())
    assert len(service.jobs()) <= 1


def test_a_lost_log_stream_ends_nothing(
    service: KubernetesService, tries: TaskTries, caplog: pytest.LogCaptureFixture
) -> None:
    """The log can't be had for a while; the pod is watched on to its end."""
    caplog.set_level(logging.WARNING)
    service.proxy.fail("denied", "GET", rf"/namespaces/{service.namespace}/pods/[^/]+/log", 2)
    subject = _ours(service, ["sh", "-c", "sleep 0.5; true"])
    tries.run(subject)

    assert tries.record(subject)["phase"] == "succeeded"
    assert not [one for one in psutil.Process().children() if one.status() == psutil.STATUS_ZOMBIE]
