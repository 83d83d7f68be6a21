# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of every make, Jobs that vanish, and attempts that come too late, at a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as k8s

from airflow_resumable.jobs.errors import JobFailed, JobMissing, JobSuperseded
from airflow_resumable.operators import _job_end
from airflow_resumable.operators.kubernetes import ResumableKubernetesJobOperator
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests.kubernetes_job_attempts import JobService, make_job

TEMPLATE = """
apiVersion: batch/v1
kind: Job
metadata:
  annotations: {team: blue}
spec:
  activeDeadlineSeconds: 500
  template:
    spec:
      restartPolicy: Never
      containers: [{name: base, env: [{name: COLOUR, value: green}]}]
"""


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


def test_a_template_file_is_what_it_starts_from(
    service: JobService, tries: TaskTries, tmp_path: Path
) -> None:
    """As in the parent; name and labels are added to it."""
    file = tmp_path / "job.yaml"
    file.write_text(TEMPLATE, encoding="utf-8")
    tries.run(make_job(service, job_template_file=str(file)))
    (made,) = service.cluster.audit.created("jobs", service.namespace)
    assert made.answer["metadata"]["annotations"] == {"team": "blue"}
    assert made.answer["spec"]["activeDeadlineSeconds"] == 500
    (container,) = made.answer["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "COLOUR", "value": "green"}]
    assert (
        made.answer["metadata"]["labels"]["airflow-resumable/token"]
        == tries.record(make_job(service))["token"]
    )


def test_a_whole_spec_is_not_changed(service: JobService, tries: TaskTries) -> None:
    """The user's own object is left as it is, so that another task may use it too."""
    template = k8s.V1PodTemplateSpec(
        metadata=k8s.V1ObjectMeta(labels={"tier": "one"}),
        spec=k8s.V1PodSpec(restart_policy="Never", containers=[k8s.V1Container(name="base")]),
    )
    spec = k8s.V1Job(
        metadata=k8s.V1ObjectMeta(name="whole", labels={"tier": "one"}), spec=k8s.V1JobSpec(template=template)
    )
    before = spec.to_dict()
    tries.run(make_job(service, full_job_spec=spec, name=None))
    assert spec.to_dict() == before
    (made,) = service.cluster.audit.created("jobs", service.namespace)
    assert made.name == f"job-whole-{tries.record(make_job(service))['token']}"
    assert made.answer["metadata"]["labels"]["tier"] == "one"


@pytest.mark.parametrize("name", [None, "n" * 200, "Under_Score.and-MORE-" + "x" * 40])
def test_any_name_makes_room_for_the_token(service: JobService, tries: TaskTries, name: str | None) -> None:
    """It is cut to 63 characters, and begins as the parent's does."""
    tries.run(make_job(service, name=name))
    (made,) = service.cluster.audit.created("jobs", service.namespace)
    assert len(made.name) <= 63
    assert made.name.startswith("job-")
    assert made.name.endswith(tries.record(make_job(service))["token"])


def test_a_selector_of_the_users_own(service: JobService, tries: TaskTries) -> None:
    """With `manual_selector` the controller sets no labels on pods; they are found all the same."""
    arguments = {
        "manual_selector": True,
        "selector": k8s.V1LabelSelector(match_labels={"mine": "yes"}),
        "labels": {"mine": "yes"},
        "cmds": ["sh", "-c", "echo 3 > /airflow/xcom/return.json"],
        "do_xcom_push": True,
    }
    assert tries.run(make_job(service, **arguments)) == 3
    assert len(service.cluster.audit.deleted("pods", service.namespace)) == 1


def test_a_job_that_is_deleted_while_it_is_watched_has_failed(service: JobService, tries: TaskTries) -> None:
    """Once its pods are gone; the next try starts the next generation."""

    def delete() -> None:
        if not deleted:
            deleted.extend(service.jobs())
            service.forget(deleted[0].external_id)

    deleted: list[Any] = []
    with at_point("mid_poll", delete), pytest.raises(JobFailed, match="deleted while running"):
        tries.run(make_job(service, "runs"))
    tries.run(make_job(service))
    assert len(service.jobs()) == 2
    assert tries.record(make_job(service))["generation"] == 2


def test_a_job_with_a_short_life_that_vanishes_may_have_succeeded(
    service: JobService, tries: TaskTries
) -> None:
    """So it is not run again by itself: `on_missing` decides."""

    def delete() -> None:
        service.forget(service.jobs()[0].external_id)

    arguments: dict[str, Any] = {"ttl_seconds_after_finished": 1, "job_poll_interval": 0.4, "durable": True}
    with pytest.warns(UserWarning, match="ttl_seconds_after_finished=1"):
        subject = make_job(service, "runs", **arguments)
    with at_point("mid_poll", delete), pytest.raises(JobMissing):
        tries.run(subject)
    assert len(service.jobs()) == 1


@pytest.mark.parametrize("point", ["before_result", "before_outcome"])
def test_an_overtaken_attempt_leaves_the_pods_alone(
    service: JobService, tries: TaskTries, point: str
) -> None:
    """It wakes after another try has done the work: what becomes of the pods is that one's to say."""
    arguments: dict[str, Any] = {
        "cmds": ["sh", "-c", "echo 3 > /airflow/xcom/return.json"],
        "do_xcom_push": True,
        "on_finish_action": "delete_pod",
    }
    overtaken: list[int] = []

    def overtake() -> None:
        if not overtaken:
            overtaken.append(1)
            results.append(tries.run(make_job(service, **{**arguments, "on_finish_action": "keep_pod"})))

    results: list[Any] = []
    with at_point(point, overtake), pytest.raises((JobSuperseded, JobMissing)):
        tries.run(make_job(service, **arguments))
    assert results == [3]
    assert service.cluster.audit.deleted("pods", service.namespace) == []
    assert len(service.jobs()) == 1
    record = tries.record(make_job(service))
    assert (record["phase"], record["owner"]["try_number"]) == ("succeeded", 2)


def test_a_container_that_goes_on_is_no_reason_to_wait_for_its_job(
    service: JobService, tries: TaskTries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clear after a success that other containers have outlived: they are ended, and the Job runs again."""
    monkeypatch.setattr(_job_end, "_END_LIMIT", 0.2)
    other = k8s.V1Container(name="other", image="any", command=["sh", "-c", "sleep 600"])
    pod = k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(), spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="base"), other])
    )

    def make() -> ResumableKubernetesJobOperator:
        return make_job(service, full_pod_spec=pod, on_finish_action="keep_pod")

    tries.run(make())
    tries.clear()
    tries.run(make())
    assert len(service.jobs()) == 2
