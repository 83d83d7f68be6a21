# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs that are found, lost, stopped and shared, at a real API server with its real Job controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout
from kubernetes import client as k8s

from airflow_resumable.jobs.errors import JobMissing, ResumableJobFatal
from airflow_resumable.operators import _job_end
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests.kubernetes_job_attempts import JobService, make_job
from tests.kubernetes_objects import job
from tests.kubernetes_service import until

TOKEN, FAMILY = "airflow-resumable/token", "airflow-resumable/family"


@pytest.fixture(scope="module")
def proxy(kubernetes: KubernetesCluster) -> FaultProxy:
    """A proxy in front of the API server."""
    return kubernetes.proxy()


@pytest.fixture
def service(kubernetes: KubernetesCluster, proxy: FaultProxy, tmp_path: Path) -> Iterator[JobService]:
    """A namespace of the test's own."""
    service = JobService(kubernetes, proxy, tmp_path / "gate")
    yield service
    proxy.heal()
    service.release()


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"))


def left_running(tries: TaskTries, service: JobService, **arguments: Any) -> Any:
    """Leave a Job running whose watcher is gone, and return its id."""
    assert tries.crash(lambda: make_job(service, "runs", **arguments), "after_id")
    external_id = tries.record(make_job(service))["external_id"]
    service.until(
        lambda: [one for one in service.pods_of(external_id) if one["status"]["phase"] == "Running"]
    )
    return external_id


def with_sidecar(service: JobService, base: list[str]) -> dict[str, Any]:
    """Return arguments of a Job with a second container that runs until the gate is opened."""
    other = k8s.V1Container(name="other", image="any", command=until(service.gate))
    spec = k8s.V1PodSpec(containers=[k8s.V1Container(name="base"), other])
    return {"cmds": base, "full_pod_spec": k8s.V1Pod(metadata=k8s.V1ObjectMeta(), spec=spec)}


# --- whose is it ---


def test_the_name_ends_with_the_token_and_both_carry_the_labels(
    service: JobService, tries: TaskTries
) -> None:
    """A pod is found by them too, and the user's own labels are still there."""
    tries.run(make_job(service, labels={"team": "blue"}, on_finish_action="keep_pod"))
    (made,) = service.cluster.audit.created("jobs", service.namespace)
    record = tries.record(make_job(service))
    assert made.name == f"job-work-{record['token']}"
    (pod,) = service.pods_of(record["external_id"])
    for labels in (made.answer["metadata"]["labels"], pod["metadata"]["labels"]):
        assert labels[TOKEN] == record["token"]
        assert labels[FAMILY] == record["token"][1:17]
        assert labels["team"] == "blue"
    assert pod["metadata"]["labels"]["dag_id"] == "dag"


def test_an_exact_name_is_used_again_by_the_next_generation(service: JobService, tries: TaskTries) -> None:
    """The failed Job of before is deleted, by its uid and with its pods, and the next has its name."""
    exact: dict[str, Any] = {"random_name_suffix": False}
    with pytest.raises(AirflowException, match="Kubernetes job 'job-work' is failed with error 'Backoff"):
        tries.run(make_job(service, "fails", **exact))
    tries.run(make_job(service, **exact))
    first, second = service.cluster.audit.created("jobs", service.namespace)
    assert (first.name, second.name) == ("job-work", "job-work")
    (deleted,) = service.cluster.audit.deleted("jobs", service.namespace)
    assert deleted.sent["preconditions"] == {"uid": first.uid}
    assert deleted.sent["propagationPolicy"] == "Foreground"
    assert tries.record(make_job(service))["external_id"]["uid"] == second.uid


def test_a_strangers_job_of_that_name_is_left_alone(service: JobService, tries: TaskTries) -> None:
    """The error names it and the remedy; nothing was deleted or created."""
    path = f"/apis/batch/v1/namespaces/{service.namespace}/jobs"
    theirs = service.cluster.request("POST", path, job("job-work", "true"))
    with pytest.raises(ResumableJobFatal, match=r"job-work.*is not this task's.*random_name_suffix=True"):
        tries.run(make_job(service, random_name_suffix=False))
    assert service.object("job-work")["metadata"]["uid"] == theirs["metadata"]["uid"]  # type: ignore[index]
    assert service.cluster.audit.deleted("jobs", service.namespace) == []
    assert service.jobs() == []


def test_another_job_of_the_same_name_is_not_ours(service: JobService, tries: TaskTries) -> None:
    """The recorded one is gone and its name taken: told apart by uid, it is neither adopted nor deleted."""
    exact: dict[str, Any] = {"random_name_suffix": False}
    service.forget(left_running(tries, service, **exact))
    path = f"/apis/batch/v1/namespaces/{service.namespace}/jobs"
    theirs = service.cluster.request("POST", path, job("job-work", "true"))
    with pytest.raises(JobMissing):
        tries.run(make_job(service, **exact))
    assert service.object("job-work")["metadata"]["uid"] == theirs["metadata"]["uid"]  # type: ignore[index]
    assert service.cancels() == 0


def test_two_installations_share_a_namespace(
    service: JobService, tries: TaskTries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal ids of Dag, run and task: neither finds the other's Job."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__INSTALLATION_ID", "one")
    left_running(tries, service)
    monkeypatch.setenv("AIRFLOW__RESUMABLE__INSTALLATION_ID", "other")
    TaskTries().run(make_job(service), try_number=2)
    assert [one.live for one in service.jobs()] == [True, False]


def test_a_job_that_failed_unseen_is_followed_by_another_whose_xcoms_count(
    service: JobService, tries: TaskTries, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is pushed and logged in the end is of the second one."""
    assert tries.crash(lambda: make_job(service, "fails"), "after_id")
    (failed,) = service.jobs()
    service.until(lambda: "Failed" in service.conditions(failed.external_id))
    tries.run(make_job(service, cmds=["echo", "second one"], get_logs=True))
    _, second = service.jobs()
    told = dict(tries.xcoms)
    assert told["job"]["metadata"]["name"] == told["job_name"] == second.external_id["name"]  # type: ignore[index, call-overload]
    assert "second one" in capsys.readouterr().out


# --- pods that come late, go early, or stay ---


def test_a_pod_that_appears_late_is_waited_for(
    kubernetes: KubernetesCluster, service: JobService, tries: TaskTries
) -> None:
    """The controller sleeps while the Job is created; ten looks later it makes the one pod."""
    (controllers,) = (one for one in kubernetes.processes() if _is(one, "kube-controller-manager"))
    subject = make_job(service)
    look, looks = subject.get_job_status, []

    def get_job_status(*args: Any) -> Any:
        looks.append(look(*args))
        if len(looks) == 10:
            controllers.resume()
        return looks[-1]

    controllers.suspend()
    try:
        with mock.patch.object(subject, "get_job_status", get_job_status):
            tries.run(subject)
    finally:
        controllers.resume()
    assert looks[:10] == ["Pending"] * 10
    assert len(service.jobs()) == 1
    assert service.cluster.audit.requests("create", "pods", service.namespace) == []


def _is(process: psutil.Process, name: str) -> bool:
    return bool(process.name() == name[:15] or process.name() == name)


def test_a_complete_job_without_its_pod_is_a_success(
    service: JobService, tries: TaskTries, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the logs are lost, with a warning."""
    external_id = left_running(tries, service)
    service.release()
    service.until(lambda: "Complete" in service.conditions(external_id))
    for pod in service.pods_of(external_id):
        path = f"/api/v1/namespaces/{service.namespace}/pods/{pod['metadata']['name']}"
        service.cluster.request("DELETE", path, {"gracePeriodSeconds": 0})
    service.until(lambda: not service.pods_of(external_id))
    tries.run(make_job(service, get_logs=True))
    assert "are gone, and their logs with them" in capsys.readouterr().out
    assert len(service.jobs()) == 1


def test_a_drained_node_costs_a_pod_and_not_the_job(service: JobService, tries: TaskTries) -> None:
    """The controller makes another pod, in the same Job."""
    external_id = left_running(tries, service)
    before = {pod["metadata"]["uid"] for pod in service.pods_of(external_id)}
    service.cluster.drain(service.namespace)
    service.until(lambda: {pod["metadata"]["uid"] for pod in service.pods_of(external_id)} - before)
    service.release()
    tries.run(make_job(service))
    assert [one.external_id for one in service.jobs()] == [external_id]


def test_an_evicted_pod_is_a_failed_job_and_no_crash(service: JobService, tries: TaskTries) -> None:
    """Its log can't be had; the parent's words for the failure."""
    external_id = left_running(tries, service)
    (pod,) = service.pods_of(external_id)
    subject = make_job(service, "runs", get_logs=True)
    with (
        at_point("mid_poll", lambda: service.cluster.evict(service.namespace, pod["metadata"]["name"])),
        pytest.raises(AirflowException, match=r"is failed with error 'BackoffLimitExceeded'"),
    ):
        tries.run(subject)
    assert [key for key, _ in tries.xcoms].count("job") == 1
    assert tries.record(subject)["phase"] == "failed"


def test_a_deadline_is_a_failure(service: JobService, tries: TaskTries) -> None:
    """The controller ends the pods; the next generation doesn't start before they are gone."""
    with pytest.raises(AirflowException, match="DeadlineExceeded"):
        tries.run(make_job(service, "runs", active_deadline_seconds=1))
    (failed,) = service.jobs()
    assert not [one for one in service.pods_of(failed.external_id) if one["status"]["phase"] == "Running"]


def test_a_sidecar_does_not_keep_the_task_waiting(
    service: JobService, tries: TaskTries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main container decides; what the other one keeps running is deleted once that is on record."""
    monkeypatch.setattr(_job_end, "_END_LIMIT", 0.3)
    tries.run(make_job(service, **with_sidecar(service, ["true"])))
    record = tries.record(make_job(service))
    assert (record["phase"], record["last_status"]) == ("succeeded", "Complete: by its main containers")
    (one,) = service.jobs()
    service.until(lambda: not service.pods_of(one.external_id))
    (deleted,) = service.cluster.audit.deleted("jobs", service.namespace)
    assert deleted.sent["preconditions"]["uid"] == one.external_id["uid"]  # type: ignore[index, call-overload]


def test_a_sidecar_of_a_kept_pod_is_kept_too(
    service: JobService, tries: TaskTries, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``on_finish_action="keep_pod"``, and a warning."""
    monkeypatch.setattr(_job_end, "_END_LIMIT", 0.3)
    tries.run(make_job(service, on_finish_action="keep_pod", **with_sidecar(service, ["true"])))
    assert service.cancels() == 0
    assert "other containers keep its pods running" in capsys.readouterr().out


def test_looks_at_job_and_pods_take_turns(service: JobService, tries: TaskTries) -> None:
    """A sidecar costs no more calls than the parent makes: one a look, after the first."""
    left_running(tries, service, **with_sidecar(service, until(service.gate)))
    subject, counts = make_job(service, "runs"), []

    def count() -> None:
        audit = service.cluster.audit
        looks = [
            audit.count("get", "jobs", service.namespace),
            audit.count("list", "pods", service.namespace),
        ]
        counts.append(looks)
        if len(counts) == 9:
            service.release()

    with at_point("mid_poll", count):
        tries.run(subject)
    first, last = counts[0], counts[8]
    assert sum(last) - sum(first) == 8
    assert last[0] - first[0] == 4


# --- stops ---


@pytest.mark.parametrize("how", ["sigterm", "timeout", "503"])
def test_what_is_kept_is_not_touched(service: JobService, tries: TaskTries, how: str) -> None:
    """Same uid, same labels of Job and pod, no delete, no patch; the next try returns."""
    external_id = left_running(tries, service)
    before = _marks(service, external_id)
    if how == "sigterm":
        assert tries.stop(make_job(service, "runs"), "running") == "JobKept"
    elif how == "timeout":
        with at_point("mid_poll", _time_out), pytest.raises(AirflowTaskTimeout):
            tries.run(make_job(service, "runs"))
    else:
        service.fail("status", "unavailable", 3)
        with at_point("mid_poll", service.release):
            tries.run(make_job(service, "runs", on_finish_action="keep_pod"))
    assert service.cancels() == 0
    if how != "503":
        assert _marks(service, external_id) == before
        assert service.cluster.audit.requests("patch", None, service.namespace) == []
        service.release()
        tries.run(make_job(service))
    assert [one.external_id for one in service.jobs()] == [external_id]


def _time_out() -> None:
    raise AirflowTaskTimeout("execution_timeout")


def _marks(service: JobService, external_id: Any) -> Any:
    found = [service.object(external_id["name"]), *service.pods_of(external_id)]
    return [(one["metadata"]["uid"], one["metadata"]["labels"]) for one in found if one]


@pytest.mark.parametrize("policy", ["Foreground", "Background", "Orphan"])
def test_a_cancel_ends_the_pods_whatever_the_parents_option_says(
    service: JobService, tries: TaskTries, policy: str
) -> None:
    """Orphans would go on working after a user has stopped the task."""
    external_id = left_running(tries, service)
    subject = make_job(service, "runs", on_kill_propagation_policy=policy, on_kill_action="keep_pod")
    assert tries.stop(subject, "failed") == "JobKept"
    service.until(lambda: not service.pods_of(external_id))
    (deleted,) = service.cluster.audit.deleted("jobs", service.namespace)
    assert deleted.sent["propagationPolicy"] == ("Background" if policy == "Background" else "Foreground")
    # In the foreground the Job goes after its pods.
    assert service.object(external_id["name"]) is None or policy != "Background"


@pytest.mark.parametrize("fault", ["unavailable", "denied"])
def test_a_cancel_that_is_refused_is_said_and_the_record_kept(
    service: JobService, tries: TaskTries, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The job goes on, and nobody claims otherwise."""
    external_id = left_running(tries, service)
    service.fail("cancel", fault, 1000)
    assert tries.stop(make_job(service, "runs"), "failed") == "JobKept"
    assert "was NOT cancelled" in caplog.text
    assert tries.record(make_job(service))["external_id"] == external_id
    assert [one.live for one in service.jobs()] == [True]


def test_a_job_that_is_being_deleted_is_waited_for(service: JobService, tries: TaskTries) -> None:
    """Somebody's finalizer holds it; once it is gone the next generation is started, once."""
    external_id = left_running(tries, service)
    service.stop_slowly(external_id)
    subject, seen = make_job(service), []
    look = subject.get_job_status

    def get_job_status(*args: Any) -> Any:
        seen.append(look(*args))
        if len(seen) == 5:
            assert len(service.jobs()) == 1
            service.let_go(external_id)
        return seen[-1]

    with mock.patch.object(subject, "get_job_status", get_job_status):
        tries.run(subject)
    assert set(seen[:5]) == {"Terminating"}
    assert len(service.jobs()) == 2


def test_pods_that_outlive_their_job_are_waited_for_and_can_be_cancelled(
    service: JobService, tries: TaskTries
) -> None:
    """Somebody has deleted the Job and orphaned its pods: it isn't over before they are."""
    external_id = left_running(tries, service)
    service._remove(external_id, {"propagationPolicy": "Orphan"})
    service.until(lambda: service.object(external_id["name"]) is None)
    subject, seen = make_job(service), []
    look = subject.get_job_status

    def get_job_status(*args: Any) -> Any:
        seen.append(look(*args))
        if len(seen) == 3:
            subject.cancel_job(*args)
        return seen[-1]

    with mock.patch.object(subject, "get_job_status", get_job_status):
        tries.run(subject)
    assert set(seen[:3]) == {"Terminating"}
    assert service.pods_of(external_id) == []
    assert len(service.jobs()) == 2


# --- start and return ---


def test_a_job_that_nobody_waits_for_is_started_once(service: JobService, tries: TaskTries) -> None:
    """A crash right after the create: the next try finds it, looks no further, and returns as the first."""
    arguments: dict[str, Any] = {"wait_until_job_complete": False}
    assert tries.crash(lambda: make_job(service, "runs", **arguments), "after_accept")
    assert tries.run(make_job(service, "runs", **arguments)) is None
    first, tries.xcoms = tries.xcoms, []
    assert tries.run(make_job(service, "runs", **arguments)) is None
    assert [(key, value) for key, value in tries.xcoms if key != "job"] == first[:2]
    assert dict(tries.xcoms)["job"]["metadata"] == dict(first)["job"]["metadata"]
    assert [one.live for one in service.jobs()] == [True]
    assert service.cluster.audit.deleted("pods", service.namespace) == []


def test_a_job_that_nobody_waits_for_is_not_looked_at(service: JobService, tries: TaskTries) -> None:
    """The parent makes one call, and so does this."""
    tries.run(make_job(service, "runs", wait_until_job_complete=False))
    asked = service.cluster.audit.requests(None, None, service.namespace, user="admin")
    assert [(one.verb, one.resource) for one in asked] == [("create", "jobs")]
    told = dict(tries.xcoms)
    assert set(told) == {"job_name", "job_namespace", "job"}
    assert told["job"]["metadata"]["name"] == told["job_name"]


def test_a_clear_ends_a_job_that_nobody_waits_for(service: JobService, tries: TaskTries) -> None:
    """It runs still, and another one is asked for: not both at once."""
    arguments: dict[str, Any] = {"wait_until_job_complete": False}
    tries.run(make_job(service, "runs", **arguments))
    tries.clear()
    tries.run(make_job(service, "runs", **arguments))
    assert [one.live for one in service.jobs()] == [False, True]
    assert service.cancels() == 1


def test_a_time_to_live_does_not_lose_an_outcome_on_record(
    service: JobService, tries: TaskTries, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Job was collected after its success; a try that never got to report it returns all the same."""
    assert tries.crash(lambda: make_job(service, ttl_seconds_after_finished=600), "after_outcome")
    service.forget(tries.record(make_job(service))["external_id"])
    tries.run(make_job(service, ttl_seconds_after_finished=600))
    assert len(service.jobs()) == 1
    assert "its outcome is on record" in capsys.readouterr().out
