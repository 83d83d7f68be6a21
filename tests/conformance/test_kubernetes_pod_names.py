# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""How pods are named and told apart, exact names that each generation uses again among them.

A real API server; its audit log counts. The node that runs the pods is a stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.errors import JobMissing, JobSuperseded, ResumableJobFatal
from airflow_resumable.jobs.host import Host
from airflow_resumable.operators._kubernetes_api import FAMILY_LABEL, TOKEN_LABEL
from airflow_resumable.operators.kubernetes import ResumableKubernetesPodOperator
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries
from tests.kubernetes_objects import pod
from tests.kubernetes_pod_attempts import make_pod
from tests.kubernetes_service import KubernetesService
from tests.unit.test_jobs_fencing import ReplacedStore


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


def asleep_in_create(subject: ResumableKubernetesPodOperator, meanwhile: Callable[[], object]) -> None:
    """Let an operator sleep in front of its create, once, while something else happens."""
    create = subject._create

    def _create(*arguments: Any, **options: Any) -> Any:
        subject._create = create  # type: ignore[method-assign]
        meanwhile()
        return create(*arguments, **options)

    subject._create = _create  # type: ignore[method-assign]


@pytest.mark.parametrize("readable", [True, False], ids=["can read the record", "reads nothing"])
@pytest.mark.parametrize("exact", [True, False], ids=["exact name", "suffix"])
def test_a_try_that_slept_through_a_resend_and_a_clear_starts_no_pod(
    service: KubernetesService, tries: TaskTries, exact: bool, readable: bool
) -> None:
    """The name that its create would take is still held, by the pod that came after the clear."""
    more: dict[str, Any] = {"random_name_suffix": not exact, "on_finish_action": "delete_pod"}
    store = tries.store
    tries.store = replaced = ReplacedStore(store)
    sleeper = make_pod(service, **more)

    def meanwhile() -> None:
        tries.store = store
        tries.run(make_pod(service, **more))
        tries.clear()
        tries.run(make_pod(service, **more))
        replaced.replaced = not readable

    asleep_in_create(sleeper, meanwhile)
    with pytest.raises(JobSuperseded):
        tries.run(sleeper)

    assert len(service.jobs()) == 2


def test_a_pod_that_a_sleeper_creates_just_before_the_next_one_is_deleted(
    service: KubernetesService, tries: TaskTries
) -> None:
    """It takes the name in the moment in which that is free; its token says that it was overtaken."""
    more: dict[str, Any] = {"random_name_suffix": False}
    assert tries.crash(lambda: make_pod(service, **more), "after_intent")
    tries.run(make_pod(service, **more))
    overtaken = service.object("work")
    assert overtaken is not None
    tries.clear()
    late = pod("work", "sleep 600", labels=overtaken["metadata"]["labels"])
    subject = make_pod(service, **more)
    create = subject._create
    made: list[str] = []

    def _create(*arguments: Any, **options: Any) -> Any:
        if not made and service.object("work") is None:
            made.append(service.cluster.request("POST", service._path, late)["metadata"]["uid"])
        return create(*arguments, **options)

    subject._create = _create  # type: ignore[method-assign]
    tries.run(subject)

    first, last = service.cluster.audit.created("pods", service.namespace)
    assert tries.record(subject)["external_id"]["uid"] == last.uid
    deleted = service.cluster.audit.deleted("pods", service.namespace)
    assert [one.sent["preconditions"]["uid"] for one in deleted] == [first.uid, *made]


def test_the_name_ends_with_the_token_and_the_labels_say_it_too(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The stock labels are there as well, and the name is a DNS label."""
    subject = make_pod(service, name="A_long.name" * 9)
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
    theirs = service.cluster.request("POST", service._path, pod("work", "sleep 600"))["metadata"]["uid"]
    with pytest.raises(ResumableJobFatal, match=rf"pod .*/work, uid {theirs}.*random_name_suffix=True"):
        tries.run(make_pod(service, random_name_suffix=False))

    found = service.object("work")
    assert found is not None
    assert (found["metadata"]["uid"], service.cancels()) == (theirs, 0)


def test_an_exact_name_is_used_again_by_the_next_generation(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The pod of the generation before, which has ended, is deleted by its uid; another takes its name."""
    more: dict[str, Any] = {"random_name_suffix": False}
    with pytest.raises(AirflowException, match="Pod work returned a failure"):
        tries.run(make_pod(service, "fails", **more))
    subject = make_pod(service, **more)
    tries.run(subject)

    first, second = service.cluster.audit.created("pods", service.namespace)
    assert (first.name, second.name) == ("work", "work")
    assert tries.record(subject)["external_id"]["uid"] == second.uid
    assert tries.record(subject)["generation"] == 2


def test_another_pod_of_the_same_name_is_neither_adopted_nor_deleted(
    service: KubernetesService, tries: TaskTries
) -> None:
    """The recorded pod was deleted while nobody watched, and somebody has made one of its name."""
    make: Callable[[], Any] = lambda: make_pod(service, "runs", random_name_suffix=False)  # noqa: E731
    assert tries.crash(make, "after_id")
    (job,) = service.jobs()
    service.forget(job.external_id)
    service.cluster.wait_for_pod(service.namespace, "work", set())
    other = service.cluster.request("POST", service._path, pod("work", "sleep 600"))["metadata"]["uid"]
    with pytest.raises(JobMissing):
        tries.run(make())

    found = service.object("work")
    assert found is not None
    assert (found["metadata"]["uid"], service.cancels()) == (other, 0)


def test_a_stop_before_the_first_look_ends_no_strangers_pod(
    service: KubernetesService, tries: TaskTries
) -> None:
    """A fresh operator knows the uid from the record: what has the name by now is left alone."""
    make: Callable[[], Any] = lambda: make_pod(service, "runs", random_name_suffix=False)  # noqa: E731
    assert tries.crash(make, "after_id")
    (job,) = service.jobs()
    service.forget(job.external_id)
    service.cluster.wait_for_pod(service.namespace, "work", set())
    other = service.cluster.request("POST", service._path, pod("work", "sleep 600"))["metadata"]["uid"]
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
    more: dict[str, Any] = {"random_name_suffix": False}
    sleeper = make_pod(service, **more)
    submit = sleeper.submit_job

    def submit_job(context: Any) -> Any:
        with pytest.raises(AirflowException):
            tries.run(make_pod(service, "fails", **more))
        tries.run(make_pod(service, **more))
        return submit(context)

    sleeper.submit_job = submit_job  # type: ignore[method-assign]
    with pytest.raises(JobSuperseded):
        tries.run(sleeper)
    first, second = service.cluster.audit.created("pods", service.namespace)
    found = service.object("work")

    assert found is not None
    assert found["metadata"]["uid"] == second.uid != first.uid
