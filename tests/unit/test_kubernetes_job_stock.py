# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableKubernetesJobOperator` beside the provider's operator: results, calls, rights, change-over.

The API server's audit log counts.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator

from airflow_resumable.operators.kubernetes import ResumableKubernetesJobOperator
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests.kubernetes_job_attempts import JobService, job_arguments, make_job

LEAVES: dict[str, Any] = {
    "cmds": ["sh", "-c", "echo 7 > /airflow/xcom/return.json; echo done"],
    "do_xcom_push": True,
}
LOOKS = 12


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


def stock(service: JobService, outcome: str = "succeeds", **more: Any) -> KubernetesJobOperator:
    """Make the provider's operator."""
    return KubernetesJobOperator(**job_arguments(service, outcome, **more))


def shape(value: Any) -> Any:
    """Return what is the same of two Jobs that differ in their names."""
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items() if key != "labels"}
    if isinstance(value, list):
        return [shape(part) for part in value]
    return type(value).__name__


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"get_logs": True, "on_finish_action": "keep_pod"},
        {"wait_until_job_complete": False},
        LEAVES,
        {**LEAVES, "parallelism": 2, "unwrap_single": False},
    ],
    ids=["plain", "logs", "nobody waits", "a result", "two results"],
)
def test_results_and_xcoms_are_the_parents(
    service: JobService, tries: TaskTries, arguments: dict[str, Any]
) -> None:
    """Return value, keys and the shape of the Job that is pushed; and the pods are left or deleted alike."""
    theirs, ours = TaskTries(), tries
    expected = stock(service, **arguments).execute(theirs.context(stock(service)))
    returned = ours.run(make_job(service, **arguments))
    assert returned == expected
    assert [key for key, _ in ours.xcoms] == [key for key, _ in theirs.xcoms]
    ours_job, theirs_job = (dict(one.xcoms)["job"] for one in (ours, theirs))
    assert shape(ours_job["spec"]) == shape(theirs_job["spec"])
    assert set(ours_job) == set(theirs_job)
    if arguments.get("wait_until_job_complete", True):
        mine, other = (one.external_id for one in reversed(service.jobs()))
        kept = arguments.get("on_finish_action") == "keep_pod"
        service.until(lambda: bool(service.pods_of(mine)) is bool(service.pods_of(other)) is kept)


def test_status_calls_are_no_more_than_the_parents(service: JobService, tries: TaskTries) -> None:
    """Counted side by side while both watch a Job of their own for as long: one call a look."""
    interval: dict[str, Any] = {"job_poll_interval": 0.25}
    operator = stock(service, "runs", **interval)
    watching = threading.Thread(target=lambda: operator.execute(TaskTries().context(operator)))
    watching.start()
    service.until(lambda: _looks(service, "jobs/status"))
    looked = itertools.count(1)
    before: list[int] = []
    after: list[int] = []

    def count() -> None:
        number = next(looked)
        if number in (1, LOOKS):
            counts = [_looks(service, one) for one in ("jobs/status", "jobs")]
            (before if number == 1 else after).extend(counts)
        if number == LOOKS:
            service.release()

    with at_point("mid_poll", count):
        tries.run(make_job(service, "runs", **interval))
    watching.join(60)
    theirs, ours = (late - early for early, late in zip(before, after, strict=True))
    assert ours == LOOKS - 1
    # Both sleep as long between two looks; a look more or less is a matter of where the count began.
    assert ours <= theirs + 1
    assert service.cluster.audit.count("list", "jobs", service.namespace) == 0


def _looks(service: JobService, resource: str) -> int:
    return service.cluster.audit.count("get", resource, service.namespace)


def rules() -> list[dict[str, Any]]:
    """Return the Role that the operator's facts describe."""
    (facts,) = ResumableKubernetesJobOperator.service_facts
    return [
        {"apiGroups": [one.group], "resources": [one.resource], "verbs": list(one.verbs)}
        for one in facts.permissions
    ]


def test_the_stated_permissions_are_enough_and_none_is_too_many(
    service: JobService, kubernetes: KubernetesCluster, tries: TaskTries
) -> None:
    """A user who may do just that: runs, reconnects, finds, reads results and logs, cancels. Each is used."""
    kubernetes.grant("finn", service.namespace, rules())
    user: dict[str, Any] = {"config_file": service.kubeconfig("finn"), "get_logs": True}
    assert tries.crash(lambda: make_job(service, **LEAVES, **user), "after_accept")
    assert tries.run(make_job(service, **LEAVES, **user)) == 7
    tries.clear()
    assert tries.crash(lambda: make_job(service, "runs", **user), "after_id")
    service.until(lambda: service.jobs()[-1].live)
    assert tries.stop(make_job(service, "runs", **user), "failed") == "JobKept"
    kept = TaskTries(run_id="kept")
    kept.run(make_job(service, on_finish_action="keep_pod", **user))
    assert kubernetes.audit.requests(user="finn", code=403) == []
    used = {(one.verb, one.resource) for one in kubernetes.audit.requests(user="finn")}
    stated = {(verb, rule["resources"][0]) for rule in rules() for verb in rule["verbs"]}
    # A command in a container is a create for some clients, a get for others.
    assert stated - used <= {("create", "pods/exec"), ("get", "pods/exec")}
    assert used <= stated


def test_a_stock_job_is_taken_over_where_that_is_asked_for(service: JobService, tries: TaskTries) -> None:
    """The provider's operator started it and its worker died; the Dag has ours by the next try."""
    operator = stock(service, "runs", wait_until_job_complete=False)
    operator.execute(tries.context(operator))
    with at_point("mid_poll", service.release):
        tries.run(make_job(service, "runs", adopt_stock_job=True))
    (one,) = service.jobs()
    assert tries.record(make_job(service))["external_id"] == one.external_id


def test_a_stock_job_is_not_taken_over_by_itself(service: JobService, tries: TaskTries) -> None:
    """Nothing of it tells which installation has started it, so it is left alone, and ours is started."""
    operator = stock(service, "runs", wait_until_job_complete=False)
    operator.execute(tries.context(operator))
    tries.run(make_job(service))
    assert [one.live for one in service.jobs()] == [True, False]
    assert service.cancels() == 0


def test_a_stock_job_of_another_run_is_not_taken_over(service: JobService, tries: TaskTries) -> None:
    """Its pod template names another run."""
    operator, another = stock(service, "runs", wait_until_job_complete=False), TaskTries(run_id="another")
    operator.execute(another.context(operator))
    tries.run(make_job(service, adopt_stock_job=True), try_number=2)
    assert [one.live for one in service.jobs()] == [True, False]


def test_a_job_whose_name_is_stored_by_somebody_else_is_taken_over(
    service: JobService, tries: TaskTries
) -> None:
    """Its uid is read and put on record; the provider stores no name, another one may."""
    operator = stock(service, "runs", wait_until_job_complete=False)
    operator.execute(tries.context(operator))
    (one,) = service.jobs()
    name = one.external_id["name"]  # type: ignore[index, call-overload]
    tries.store.set("job_identifier", {"name": name, "namespace": service.namespace})
    service.release()
    tries.run(make_job(service, "runs"))
    assert len(service.jobs()) == 1
    assert tries.record(make_job(service))["uid"] == one.external_id["uid"]  # type: ignore[index, call-overload]


def test_the_parent_goes_on_after_ours_with_a_job_of_its_own(service: JobService, tries: TaskTries) -> None:
    """It looks for none, so there are two for a while; back with ours, ours is watched on."""
    assert tries.crash(lambda: make_job(service, "runs"), "after_id")
    ours = tries.record(make_job(service))["external_id"]
    service.until(lambda: service.pods_of(ours), "our pod is there")
    # It lists as often as it may for as long as it sees our pod beside its own; where it sees none, it fails.
    operator = stock(service, discover_pods_retry_number=3)
    operator.execute(tries.context(operator))
    assert len(service.jobs()) == 2
    service.release()
    tries.run(make_job(service, "runs"))
    assert len(service.jobs()) == 2
    assert service.cancels() == 0


def test_a_task_that_the_parent_has_deferred_ends_as_the_parents(
    service: JobService, tries: TaskTries
) -> None:
    """Its event arrives at ours after the Dag was changed: the parent's own method takes it."""
    theirs = TaskTries()
    stock(service).execute(theirs.context(stock(service)))
    event = {"status": "success", "job": dict(theirs.xcoms)["job"], "pod_names": [], "xcom_result": ["7"]}
    ours = make_job(service, do_xcom_push=True)
    assert ours.execute_complete(tries.context(ours), event) == 7


def test_not_durable_is_the_parent(service: JobService, tries: TaskTries) -> None:
    """Each try starts a Job, with a random name and without our labels."""
    for _ in range(2):
        tries.run(make_job(service, durable=False))
    made = service.cluster.audit.created("jobs", service.namespace)
    assert len(made) == 2
    assert all("airflow-resumable/token" not in (one.answer["metadata"].get("labels") or {}) for one in made)
    assert tries.record(make_job(service)) is None
