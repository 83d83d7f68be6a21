# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a pod's status means, also what the tests' node never writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client as k8s

from airflow_resumable.jobs.adapter import Observation, observe
from airflow_resumable.operators._pod_state import PodReader
from airflow_resumable.operators.kubernetes import ResumableKubernetesPodOperator

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READER = PodReader("base", schedule_timeout=60, startup_timeout=30, skip_codes=(99,))


def ended(code: int, name: str = "base", reason: str | None = None) -> Any:
    return container(name, terminated=k8s.V1ContainerStateTerminated(exit_code=code, reason=reason))


def waiting(reason: str, message: str = "", name: str = "base") -> Any:
    return container(name, waiting=k8s.V1ContainerStateWaiting(reason=reason, message=message))


def running(name: str = "base") -> Any:
    return container(name, running=k8s.V1ContainerStateRunning())


def container(name: str, **state: Any) -> Any:
    return k8s.V1ContainerStatus(
        name=name,
        image="any",
        image_id="any",
        ready=False,
        restart_count=0,
        state=k8s.V1ContainerState(**state),
    )


def pod(
    phase: str,
    *statuses: Any,
    reason: str | None = None,
    deleted: bool = False,
    age: float = 0,
    scheduled: float | None = None,
) -> Any:
    conditions = [] if scheduled is None else [condition("True", scheduled)]
    return k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(
            name="pod",
            uid="u",
            creation_timestamp=NOW - timedelta(seconds=age),
            deletion_timestamp=NOW if deleted else None,
        ),
        status=k8s.V1PodStatus(
            phase=phase, reason=reason, container_statuses=list(statuses) or None, conditions=conditions
        ),
    )


def condition(said: str, ago: float) -> Any:
    when = NOW - timedelta(seconds=ago)
    return k8s.V1PodCondition(type="PodScheduled", status=said, last_transition_time=when)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod("Pending"), "Pending"),
        (pod("Running", running()), "Running"),
        (pod("Running", running(), deleted=True), "Terminating"),
        (pod("Pending", deleted=True), "Terminating"),
        (pod("Succeeded", ended(0)), "Succeeded"),
        (pod("Succeeded"), "Succeeded"),
        (pod("Failed", ended(3, reason="Error")), "Failed: exit code 3 (Error)"),
        (pod("Failed", ended(137, reason="OOMKilled")), "Failed: exit code 137 (OOMKilled)"),
        (pod("Failed", reason="Evicted"), "Failed: Evicted"),
        (pod("Failed", reason="Preempting"), "Failed: Preempting"),
        (pod("Failed", reason="NodeLost"), "Failed: NodeLost"),
        (pod("Failed", reason="DeadlineExceeded"), "Failed: DeadlineExceeded"),
        (pod("Failed"), "Failed: no reason was given"),
        (pod("Failed", reason="Evicted", deleted=True), "Failed: Evicted"),
        (pod("Failed", ended(99)), "Skipped: exit code 99"),
        (pod("Unknown", reason="NodeLost"), "Unknown"),
    ],
)
def test_phase_reason_and_deletion_say_what_a_pod_is(found: Any, expected: str) -> None:
    """The words that go on record and into the log."""
    assert READER.state(found, NOW) == expected


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((ended(0), running("proxy")), "Succeeded"),
        ((ended(4), running("proxy")), "Failed: exit code 4"),
        ((running(), ended(1, "proxy")), "Running"),
        ((running("proxy"), ended(0)), "Succeeded"),
    ],
)
def test_the_main_container_decides_and_no_sidecar(statuses: Any, expected: str) -> None:
    """Whether a sidecar keeps the pod Running or has failed before."""
    assert READER.state(pod("Running", *statuses), NOW) == expected


@pytest.mark.parametrize(
    ("sidecar", "expected"), [(1, "Succeeded"), (0, "Succeeded")], ids=["failed sidecar", "good sidecar"]
)
def test_a_sidecar_that_fails_after_the_work_does_not_fail_it(sidecar: int, expected: str) -> None:
    """The phase is Failed then, as any container's exit code makes it."""
    assert READER.state(pod("Failed", ended(0), ended(sidecar, "proxy")), NOW) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod("Pending", age=59), "Pending"),
        (pod("Pending", age=61), "Failed: not scheduled within 60 s"),
        (pod("Pending", age=500, scheduled=29), "Pending"),
        (pod("Pending", age=500, scheduled=31), "Failed: not started within 30 s"),
        (pod("Running", running(), age=500, scheduled=500), "Running"),
        (pod("Pending", waiting("ContainerCreating"), age=1, scheduled=1), "Pending"),
    ],
)
def test_a_pod_has_so_long_to_start(found: Any, expected: str) -> None:
    """First to find a node, then from there, as the parent counts; by the API server's clock."""
    assert READER.state(found, NOW) == expected


def test_who_does_not_know_the_servers_clock_calls_no_pod_late() -> None:
    """A listing tells no time; a pod in it is Pending for as long as it says so."""
    assert READER.state(pod("Pending", age=10_000), None) == "Pending"


@pytest.mark.parametrize(
    ("reason", "message", "fails"),
    [
        ("ErrImagePull", "not found", True),
        ("ImagePullBackOff", 'Back-off pulling image "x"', True),
        ("InvalidImageName", "", True),
        ("ErrImagePull", "429 too many requests", False),
        ("ImagePullBackOff", "registry answers 503 Service Unavailable", False),
        ("ContainerCreating", "", False),
    ],
)
def test_an_image_that_can_not_be_had_is_a_failure_where_the_parent_says_so(
    reason: str, message: str, fails: bool
) -> None:
    """A registry that is busy is waited for, up to the time to start."""
    said = READER.state(pod("Pending", waiting(reason, message), scheduled=1), NOW)
    assert said.startswith("Failed: Image cannot be pulled") is fails
    assert "\n" not in said


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod("Pending"), Observation.ACTIVE),
        (pod("Running", running()), Observation.ACTIVE),
        (pod("Running", running(), deleted=True), Observation.STOPPING),
        (pod("Running", ended(0), running("proxy")), Observation.SUCCEEDED),
        (pod("Failed", ended(99)), Observation.SUCCEEDED),
        (pod("Failed", reason="Evicted"), Observation.FAILED),
        (pod("Unknown"), Observation.UNKNOWN),
    ],
)
def test_each_state_has_one_meaning(found: Any, expected: Observation) -> None:
    """As the protocol's decision reads it; an exit code that skips is no reason for another pod."""
    subject = ResumableKubernetesPodOperator(task_id="task", name="work", image="any", retries=1)
    said = READER.state(found, NOW)
    assert observe(subject, said, subject.get_capabilities()) is expected


@given(st.text().filter(lambda text: text.partition(":")[0] not in ("Failed", "Succeeded", "Skipped")))
def test_no_other_word_is_an_end(said: str) -> None:
    """Whatever a later Kubernetes may call a phase: nothing is submitted on the strength of it."""
    subject = ResumableKubernetesPodOperator(task_id="task", name="work", image="any", retries=1)
    assert not subject.is_job_failed(said)
    assert not subject.is_job_succeeded(said)
