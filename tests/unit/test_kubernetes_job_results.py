# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a Job's pods leave as XComs, and how that survives crashes, retries of pods and a deferral.

The sidecar's files are read through the node stand-in, which runs containers as processes of this host.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.errors import JobMissing
from airflow_resumable.operators import _job_end
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries
from tests.kubernetes_job_attempts import JobService, make_job

RETURN = "/airflow/xcom/return.json"


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


def leaving(service: JobService, script: str = f"echo '{{\"a\": 1}}' > {RETURN}", **more: Any) -> Any:
    """Make an operator whose main containers leave something."""
    arguments = {"cmds": ["sh", "-c", script], "do_xcom_push": True, "on_finish_action": "keep_pod", **more}
    return make_job(service, **arguments)


def counting(folder: Path, then: str) -> str:
    """Return a script that knows the how manieth it is, as ``$n``."""
    return f"n=0; until mkdir {folder}/$n 2>/dev/null; do n=$((n+1)); done; {then}"


def test_one_pod_leaves_a_value(service: JobService, tries: TaskTries) -> None:
    """The Job is complete when the task returns, its XCom `job` says so, and no sidecar is left."""
    assert tries.run(leaving(service)) == {"a": 1}
    (one,) = service.jobs()
    assert "Complete" in service.conditions(one.external_id)
    told = dict(tries.xcoms)["job"]
    assert [each["type"] for each in told["status"]["conditions"]] == ["Complete"]
    assert [each["status"]["phase"] for each in service.pods_of(one.external_id)] == ["Succeeded"]
    assert service.cancels() == 0


def test_pods_are_deleted_as_the_parent_does(service: JobService, tries: TaskTries) -> None:
    """With ``on_finish_action="delete_pod"``, the default, once the Job is complete: none is replaced."""
    assert tries.run(leaving(service, on_finish_action="delete_pod", parallelism=2)) == [{"a": 1}, {"a": 1}]
    (one,) = service.jobs()
    service.until(lambda: not service.pods_of(one.external_id))
    assert len(service.cluster.audit.deleted("pods", service.namespace)) == 2
    assert "Complete" in service.conditions(one.external_id)


def test_one_value_can_be_a_list_too(service: JobService, tries: TaskTries) -> None:
    """With ``unwrap_single=False``, as in the parent; and an empty result is None."""
    assert tries.run(leaving(service, "true", unwrap_single=False)) == [None]


def test_more_completions_than_pods_at_once(service: JobService, tries: TaskTries, tmp_path: Path) -> None:
    """A sidecar would keep the Job from its next pod, so what it holds is kept on the pod in time."""
    script = counting(tmp_path, f"echo $n > {RETURN}")
    assert sorted(tries.run(leaving(service, script, completions=3))) == [0, 1, 2]
    (one,) = service.jobs()
    kept = [pod["metadata"].get("annotations") or {} for pod in service.pods_of(one.external_id)]
    assert len(kept) == 3
    assert sum("airflow-resumable/result" in each for each in kept) >= 2


def test_a_failed_pod_makes_room_for_the_next(service: JobService, tries: TaskTries, tmp_path: Path) -> None:
    """Its sidecar would keep it running, and the Job's own retry would never come."""
    script = counting(tmp_path, f'[ "$n" = 1 ] && echo 5 > {RETURN}')
    assert tries.run(leaving(service, script, backoff_limit=2)) == 5
    assert len(service.jobs()) == 1


@pytest.mark.parametrize("point", ["after_id", "before_result", "before_outcome", "after_outcome"])
def test_a_crash_loses_no_result(service: JobService, tries: TaskTries, point: str) -> None:
    """The sidecar holds it until it is on record."""
    assert tries.crash(lambda: leaving(service), point)
    assert tries.run(leaving(service)) == {"a": 1}
    (one,) = service.jobs()
    assert "Complete" in service.conditions(one.external_id)


def test_a_result_on_record_outlives_the_job(service: JobService, tries: TaskTries) -> None:
    """The Job was deleted between the outcome and the task's end."""
    assert tries.crash(lambda: leaving(service), "after_outcome")
    service.forget(service.jobs()[0].external_id)
    assert tries.run(leaving(service)) == {"a": 1}


def test_a_result_that_is_lost_is_no_success(service: JobService, tries: TaskTries) -> None:
    """Somebody has ended the sidecar before anybody read it: None would be a wrong value."""
    assert tries.crash(lambda: leaving(service), "after_id")
    (one,) = service.jobs()
    service.until(lambda: [p for p in service.pods_of(one.external_id) if p["status"]["phase"] == "Running"])
    subject = leaving(service)
    api = service.cluster.api()
    try:
        (pod,) = service.pods_of(one.external_id)
        subject.pod_manager.extract_xcom_kill(_named(pod))
        service.until(lambda: "Complete" in service.conditions(one.external_id))
    finally:
        api.close()
    with pytest.raises(JobMissing, match="its result was not kept"):
        tries.run(leaving(service))


def _named(pod: dict[str, Any]) -> Any:
    from kubernetes.client import V1ObjectMeta, V1Pod

    meta = pod["metadata"]
    return V1Pod(metadata=V1ObjectMeta(name=meta["name"], namespace=meta["namespace"], uid=meta["uid"]))


def test_what_is_not_json_is_a_failure(service: JobService, tries: TaskTries) -> None:
    """The error names the pod; its sidecar is ended, so that the Job ends too."""
    with pytest.raises(AirflowException, match=r"the result of pod .* can't be read"):
        tries.run(leaving(service, f"echo nonsense > {RETURN}"))
    (one,) = service.jobs()
    assert "Complete" in service.conditions(one.external_id)
    assert tries.record(leaving(service))["phase"] == "failed"


def test_a_deferred_task_returns_the_same(service: JobService, tries: TaskTries, tmp_path: Path) -> None:
    """The trigger sees that the main containers have ended, and makes room for pods to come."""
    script = counting(tmp_path, f"echo $n > {RETURN}")
    deferred = tries.defer(leaving(service, script, completions=2))
    event = deferred.event(60)
    assert sorted(deferred.resume(leaving(service, script, completions=2), event)) == [0, 1]
    (one,) = service.jobs()
    assert "Complete" in service.conditions(one.external_id)
    assert [key for key, _ in tries.xcoms if key == "job"] == ["job"]


def test_a_sidecar_that_cannot_be_ended_is_deleted_with_its_job(
    service: JobService, tries: TaskTries, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result was read and is on record; the sidecar must not go on for ever."""
    monkeypatch.setattr(_job_end, "_END_LIMIT", 0.3)
    assert tries.crash(lambda: leaving(service, on_finish_action="delete_pod"), "after_outcome")
    pods = f"/namespaces/{service.namespace}/pods/"
    service.proxy.fail("denied", "GET", rf"{pods}[^/]+/exec", 1000)
    assert tries.run(leaving(service, on_finish_action="delete_pod")) == {"a": 1}
    assert "can't be ended" in capsys.readouterr().out
    (one,) = service.jobs()
    service.until(lambda: not service.pods_of(one.external_id))


def test_logs_of_every_pod_are_written(
    service: JobService, tries: TaskTries, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once the Job has ended, as the parent does."""
    script = "echo hello from $HOSTNAME here"
    tries.run(make_job(service, cmds=["sh", "-c", script], get_logs=True, parallelism=2))
    assert capsys.readouterr().out.count("hello from") >= 2
