# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Pods that are found, shared, stopped and refused, at a real API server; its audit log counts.

The node that runs the pods is a stand-in, see `airflow_resumable.testing.kubernetes.node`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout

from airflow_resumable.jobs.errors import ResumableJobFatal
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests.kubernetes_objects import pod
from tests.kubernetes_pod_attempts import (
    RESULT,
    await_that,
    kill_at_work,
    make_pod,
    running_pods,
    stock_pod,
)
from tests.kubernetes_service import KubernetesService

TOKEN, FAMILY = "airflow-resumable/token", "airflow-resumable/family"
STOCK = {
    "dag_id": "dag",
    "task_id": "task",
    "run_id": "run",
    "kubernetes_pod_operator": "True",
    "try_number": "1",
}


@pytest.fixture(scope="module")
def proxy(kubernetes: KubernetesCluster) -> FaultProxy:
    """A proxy in front of the API server."""
    return kubernetes.proxy()


@pytest.fixture
def service(kubernetes: KubernetesCluster, proxy: FaultProxy, tmp_path: Path) -> Iterator[KubernetesService]:
    """A namespace of the test's own."""
    service = KubernetesService(kubernetes, proxy, tmp_path / "gate")
    yield service
    proxy.heal()
    service.release()


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"))


def left_running(tries: TaskTries, service: KubernetesService, **arguments: Any) -> Any:
    """Leave a pod running whose watcher is gone, and return its id."""
    assert tries.crash(lambda: make_pod(service, "runs", **arguments), "after_id")
    external_id = tries.record(make_pod(service))["external_id"]
    service.cluster.wait_for_pod(service.namespace, external_id["name"])
    return external_id


def put(service: KubernetesService, name: str, script: str, phase: str, **labels: str) -> str:
    """Make a pod as somebody else would, wait for a phase, and return its uid."""
    made = service.cluster.request("POST", service._path, pod(name, script, labels=labels))
    service.cluster.wait_for_pod(service.namespace, name, {phase})
    return str(made["metadata"]["uid"])


def marks(service: KubernetesService, external_id: Any) -> Any:
    """Return what must not change of a pod that is kept."""
    found = service.object(external_id["name"])
    return found and (found["metadata"]["uid"], found["metadata"]["labels"])


# --- whose is it ---


def test_two_installations_share_a_namespace(
    service: KubernetesService, tries: TaskTries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal ids of Dag, run and task: neither finds the other's pod."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__INSTALLATION_ID", "one")
    left_running(tries, service)
    monkeypatch.setenv("AIRFLOW__RESUMABLE__INSTALLATION_ID", "other")
    TaskTries().run(make_pod(service), try_number=2)
    assert [one.live for one in service.jobs()] == [True, False]
    assert service.cancels() == 0


def test_another_run_of_the_task_is_another_job(service: KubernetesService, tries: TaskTries) -> None:
    """Yesterday's pod has finished under the same base name, and is not taken for today's."""
    TaskTries(run_id="yesterday").run(make_pod(service))
    tries.run(make_pod(service), try_number=2)
    assert len(service.jobs()) == 2


def test_an_exact_name_of_an_earlier_generation_at_work_is_not_taken(
    service: KubernetesService, tries: TaskTries
) -> None:
    """It runs on under the name that the next one needs; the error says so, and nothing is deleted."""
    external_id = left_running(tries, service, random_name_suffix=False)
    tries.store.delete("resumable.pod_identifier")
    tries.store.delete("pod_identifier")
    tries.clear()
    subject = make_pod(service, random_name_suffix=False)
    with (
        mock.patch.object(subject, "find_jobs_by_family", return_value=[]),
        pytest.raises(ResumableJobFatal, match=r"pod .*/work, uid .*, of an earlier generation"),
    ):
        tries.run(subject)
    assert marks(service, external_id)[0] == external_id["uid"]
    assert service.cancels() == 0


@pytest.mark.parametrize(
    ("there", "taken", "created"),
    [
        ({"a": ("exit 1", "Failed", {"image": "none"})}, None, 1),
        ({"a": ("exit 1", "Failed", STOCK), "b": ("sleep 600", "Running", STOCK)}, "b", 0),
        ({"a": ("sleep 600", "Running", STOCK), "b": ("exit 1", "Failed", STOCK)}, "a", 0),
        ({"a": ("exit 1", "Failed", STOCK)}, None, 1),
        ({"a": ("true", "Succeeded", STOCK)}, None, 1),
        ({"a": ("true", "Succeeded", {**STOCK, "already_checked": "True"})}, None, 1),
    ],
    ids=["stranger's", "failed, running", "running, failed", "failed", "succeeded", "checked"],
)
def test_the_right_one_of_the_parents_pods_is_taken_over(
    service: KubernetesService, tries: TaskTries, there: dict[str, Any], taken: str | None, created: int
) -> None:
    """With ``adopt_stock_pod``: the one that runs. What has ended may be from before a clear."""
    uids = {
        name: put(service, name, script, phase, **labels) for name, (script, phase, labels) in there.items()
    }
    assert tries.crash(lambda: make_pod(service, adopt_stock_pod=True), "after_id", try_number=2)
    record = tries.record(make_pod(service))
    assert len(service.jobs()) == created
    assert record["external_id"]["uid"] == (uids[taken] if taken else service.jobs()[-1].external_id["uid"])  # type: ignore[call-overload, index]
    assert service.cancels() == 0


def test_an_evicted_pod_of_the_parents_is_not_taken_over(
    service: KubernetesService, tries: TaskTries
) -> None:
    """It has failed: another one is started."""
    put(service, "a", "sleep 600", "Running", **STOCK)
    service.cluster.evict(service.namespace, "a")
    tries.run(make_pod(service, adopt_stock_pod=True), try_number=2)
    assert len(service.jobs()) == 1
    assert service.cancels() == 0


def test_two_pods_of_the_parents_at_work_are_an_error_that_names_them(
    service: KubernetesService, tries: TaskTries
) -> None:
    """Which is the right one nobody can say; neither is touched, and no third one started."""
    for name in ("a", "b"):
        put(service, name, "sleep 600", "Running", **STOCK)
    with pytest.raises(AirflowException) as raised:
        tries.run(make_pod(service, adopt_stock_pod=True), try_number=2)
    assert "'a'" in str(raised.value)
    assert "'b'" in str(raised.value)
    assert service.jobs() == []
    assert service.cancels() == 0


# --- from one to the other, in mid-flight ---


def test_the_parents_worker_is_killed_and_ours_goes_on(service: KubernetesService, tries: TaskTries) -> None:
    """The real parent runs the first try, with a SIGKILL; its pod's result is returned by ours."""
    more: dict[str, Any] = {"do_xcom_push": True, "cmds": _gated(service, RESULT)}
    stored: Callable[[], Any] = lambda: tries.store.get("pod_identifier")  # noqa: E731
    kill_at_work(tries, lambda: stock_pod(service, **more), service, stored)
    service.release()
    assert tries.run(make_pod(service, **more)) == {"rows": 7}
    (only,) = service.jobs()
    assert tries.record(make_pod(service))["uid"] == only.external_id["uid"]  # type: ignore[call-overload, index]
    assert stored() == {"name": only.external_id["name"], "namespace": service.namespace}  # type: ignore[call-overload, index]


def test_our_worker_is_killed_and_the_parent_goes_on(service: KubernetesService, tries: TaskTries) -> None:
    """The key, the labels and the sidecar are what the parent looks for."""
    more: dict[str, Any] = {"do_xcom_push": True, "cmds": _gated(service, RESULT)}
    stored: Callable[[], Any] = lambda: tries.store.get("pod_identifier")  # noqa: E731
    kill_at_work(tries, lambda: make_pod(service, **more), service, stored)
    service.release()
    assert tries.run(stock_pod(service, **more)) == {"rows": 7}
    assert len(service.jobs()) == 1


def test_ours_starts_afresh_after_the_parents_pod_has_failed(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The parent has dealt with its pod and left its name on record."""
    with pytest.raises(AirflowException):
        tries.run(stock_pod(service, "fails"))
    tries.run(make_pod(service))
    assert len(service.jobs()) == 2


def test_the_parent_starts_afresh_after_our_pod_has_failed(
    service: KubernetesService, tries: TaskTries
) -> None:
    """Ours is labelled as the parent labels what it has dealt with."""
    with pytest.raises(AirflowException):
        tries.run(make_pod(service, "fails"))
    tries.run(stock_pod(service))
    assert len(service.jobs()) == 2


def _gated(service: KubernetesService, script: str) -> list[str]:
    return ["sh", "-c", f"while [ ! -e '{service.gate}' ]; do sleep 0.05; done; {script}"]


# --- stops ---


@pytest.mark.parametrize("how", ["sigterm", "timeout", "503"])
def test_what_is_kept_is_not_touched(service: KubernetesService, tries: TaskTries, how: str) -> None:
    """Same uid, same labels, no delete, no patch, no process left; the next try returns."""
    external_id = left_running(tries, service)
    before, children = marks(service, external_id), set(psutil.Process().children())
    if how == "sigterm":
        assert tries.stop(make_pod(service, "runs"), "running") == "JobKept"
    elif how == "timeout":
        with at_point("mid_poll", _time_out), pytest.raises(AirflowTaskTimeout):
            tries.run(make_pod(service, "runs"))
    else:
        service.fail("status", "unavailable", 3)
        with at_point("mid_poll", service.release):
            tries.run(make_pod(service, "runs"))
    assert service.cancels() == 0
    if how != "503":
        assert marks(service, external_id) == before
        assert service.cluster.audit.requests("patch", None, service.namespace) == []
        assert set(psutil.Process().children()) == children
        service.release()
        tries.run(make_pod(service))
    assert [one.external_id for one in service.jobs()] == [external_id]


def _time_out() -> None:
    raise AirflowTaskTimeout("execution_timeout")


def test_a_users_stop_deletes_the_pod_of_that_uid(service: KubernetesService, tries: TaskTries) -> None:
    """With the operator's time to end, and once."""
    external_id = left_running(tries, service)
    assert tries.stop(make_pod(service, "runs", termination_grace_period=2), "failed") == "JobKept"
    (deleted,) = service.cluster.audit.deleted("pods", service.namespace)
    assert deleted.sent["preconditions"] == {"uid": external_id["uid"]}
    assert deleted.sent["gracePeriodSeconds"] == 2
    assert service.cluster.audit.requests("patch", None, service.namespace) == []


def test_the_parents_option_keeps_a_pod_that_a_user_stops(
    service: KubernetesService, tries: TaskTries
) -> None:
    """``on_kill_action="keep_pod"`` is a policy here."""
    left_running(tries, service)
    assert tries.stop(make_pod(service, "runs", on_kill_action="keep_pod"), "failed") == "JobKept"
    assert service.cancels() == 0


@pytest.mark.parametrize("fault", ["unavailable", "denied"])
def test_a_cancel_that_is_refused_is_said_and_the_record_kept(
    service: KubernetesService, tries: TaskTries, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The pod goes on, and nobody claims otherwise."""
    external_id = left_running(tries, service)
    service.fail("cancel", fault, 1000)
    assert tries.stop(make_pod(service, "runs"), "failed") == "JobKept"
    assert "was NOT cancelled" in caplog.text
    assert tries.record(make_pod(service))["external_id"] == external_id
    assert [one.live for one in service.jobs()] == [True]


def test_the_recorded_namespace_is_looked_into(
    service: KubernetesService, tries: TaskTries, kubernetes: KubernetesCluster
) -> None:
    """The Dag names another one by now; the pod is where it was, and no second one is started."""
    left_running(tries, service)
    service.release()
    elsewhere = kubernetes.namespace()
    tries.run(make_pod(service, namespace=elsewhere))
    assert len(service.jobs()) == 1
    assert kubernetes.audit.created("pods", elsewhere) == []


def test_the_reply_to_a_create_is_lost_under_an_exact_name(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The label says that the pod which has the name is ours."""
    service.fail("submit", "lost_reply", 1)
    tries.run(make_pod(service, random_name_suffix=False))
    assert len(service.jobs()) == 1
    assert tries.record(make_pod(service))["phase"] == "succeeded"


# --- start and end ---


def test_xcoms_are_pushed_at_the_start_and_after_a_reconnect(
    service: KubernetesService, tries: TaskTries
) -> None:
    """Name and namespace, whether the try waits itself or hands over to the triggerer."""
    external_id = left_running(tries, service)
    expected = {"pod_name": external_id["name"], "pod_namespace": service.namespace}
    assert expected.items() <= dict(tries.xcoms).items()
    tries.xcoms.clear()
    tries.defer(make_pod(service, "runs"))
    assert expected.items() <= dict(tries.xcoms).items()
    assert running_pods(service)


def test_a_crash_after_the_outcome_leaves_no_sidecar_running(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The result is on record; the next try ends the sidecar and returns it."""
    more: dict[str, Any] = {"do_xcom_push": True, "cmds": ["sh", "-c", RESULT]}
    assert tries.crash(lambda: make_pod(service, **more), "after_outcome")
    assert len(running_pods(service)) == 1
    assert tries.run(make_pod(service, **more)) == {"rows": 7}
    await_that(lambda: not running_pods(service), "the sidecar has ended")
    assert len(service.jobs()) == 1


@pytest.mark.parametrize("fault", ["unavailable", "unauthorized"])
def test_a_result_that_can_not_be_read_for_a_while_is_read_later(
    service: KubernetesService, tries: TaskTries, fault: str
) -> None:
    """The stream to the sidecar isn't opened at first: no failure, no other pod."""
    service.proxy.fail(fault, "GET", rf"/namespaces/{service.namespace}/pods/[^/]+/exec", 2)  # type: ignore[arg-type]
    more: dict[str, Any] = {"do_xcom_push": True, "cmds": ["sh", "-c", RESULT]}
    assert tries.run(make_pod(service, **more)) == {"rows": 7}
    assert len(service.jobs()) == 1


def test_a_stop_while_the_stream_is_being_opened_is_not_taken_for_a_failure(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The client catches what ends the task; the pod keeps its result for the next try."""
    from kubernetes.stream import ws_client

    more: dict[str, Any] = {"do_xcom_push": True, "cmds": ["sh", "-c", RESULT]}
    with (
        mock.patch.object(ws_client, "create_websocket", side_effect=SystemExit("stopped")),
        pytest.raises(SystemExit, match="stopped"),
    ):
        tries.run(make_pod(service, **more))
    assert tries.record(make_pod(service))["phase"] == "submitted"
    assert service.cancels() == 0
    assert tries.run(make_pod(service, **more)) == {"rows": 7}
    assert len(service.jobs()) == 1


def test_a_label_is_put_on_the_pod_of_that_uid_only(service: KubernetesService, tries: TaskTries) -> None:
    """Another one may have taken its name since it was looked at."""
    external_id = left_running(tries, service, random_name_suffix=False)
    subject = make_pod(service)
    seen = subject._look(external_id)
    service.forget(external_id)
    service.cluster.wait_for_pod(service.namespace, "work", set())
    put(service, "work", "true", "Succeeded")
    subject.patch_already_checked(seen, reraise=False)
    found = service.object("work")
    assert found is not None
    assert "already_checked" not in found["metadata"].get("labels", {})


def test_a_failure_is_told_as_the_parent_tells_it(service: KubernetesService, tries: TaskTries) -> None:
    """The same exception, with the pod's spec unless that isn't wanted, and the label of a pod dealt with."""
    with pytest.raises(AirflowException, match=r"Pod work-\S+ returned a failure") as raised:
        tries.run(make_pod(service, "fails"))
    assert "remote_pod: " in str(raised.value)
    (failed,) = service.cluster.pods(service.namespace)
    assert failed["metadata"]["labels"]["already_checked"] == "True"
    with pytest.raises(AirflowException) as raised:
        tries.run(make_pod(service, "fails", log_pod_spec_on_failure=False))
    assert "remote_pod: " not in str(raised.value)


def test_callbacks_are_called_in_the_parents_order(service: KubernetesService, tries: TaskTries) -> None:
    """Each once, with the pod."""
    from airflow.providers.cncf.kubernetes.callbacks import KubernetesPodOperatorCallback

    called: list[str] = []

    def note(name: str) -> Any:
        return staticmethod(lambda *_, **__: called.append(name))

    names = [name for name in vars(KubernetesPodOperatorCallback) if name.startswith("on_")]
    callback: Any = type("Notes", (KubernetesPodOperatorCallback,), {name: note(name) for name in names})
    expected = called.copy()
    TaskTries(run_id="stock").run(stock_pod(service, cmds=["sleep", "0.3"], callbacks=callback))
    expected, called[:] = called.copy(), []
    tries.run(make_pod(service, cmds=["sleep", "0.3"], callbacks=callback))
    assert [name for name in called if name != "on_sync_client_creation"] == [
        name for name in expected if name != "on_sync_client_creation"
    ]
