# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a Job's conditions and its pods mean, those included that the tests' API server is too old to set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client as k8s

from airflow_resumable.operators import _job_state as state
from airflow_resumable.operators._job_pods import selector_of
from airflow_resumable.operators._pod_state import PodReader
from airflow_resumable.operators.kubernetes import ResumableKubernetesJobOperator

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READER = PodReader("base")


def job(*conditions: str, deleted: bool = False, active: int | None = 1, **spec: Any) -> Any:
    said = [
        k8s.V1JobCondition(type=one, status="True", reason="Because" if one == "Failed" else None)
        for one in conditions
    ]
    return k8s.V1Job(
        metadata=k8s.V1ObjectMeta(name="job", uid="u", deletion_timestamp=NOW if deleted else None),
        spec=k8s.V1JobSpec(template=k8s.V1PodTemplateSpec(), **spec),
        status=k8s.V1JobStatus(active=active, conditions=said or None),
    )


def pod(name: str, phase: str, exit_code: int | None = None, ago: timedelta = timedelta(0)) -> Any:
    ended = exit_code is not None and k8s.V1ContainerStateTerminated(
        exit_code=exit_code, finished_at=NOW - ago
    )
    status = k8s.V1ContainerStatus(
        name="base",
        image="any",
        image_id="any",
        ready=False,
        restart_count=0,
        state=k8s.V1ContainerState(terminated=ended or None),
    )
    return k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(name=name),
        status=k8s.V1PodStatus(phase=phase, container_statuses=[status]),
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (job("Complete"), "Complete"),
        (job("SuccessCriteriaMet", "Complete"), "Complete"),
        (job("FailureTarget", "Failed"), "Failed: Because"),
        (job("Complete", deleted=True), "Complete"),
        (job("Suspended", deleted=True), "Terminating"),
        (job("SuccessCriteriaMet"), "Completing"),
        (job("FailureTarget"), "Failing"),
        (job("Suspended", active=None), "Suspended"),
        (job(), "Running"),
        (job(active=None), "Pending"),
    ],
)
def test_conditions_come_first(found: Any, expected: str) -> None:
    """An end counts even while the Job is being deleted; an announced end is not one yet."""
    assert state.state_of(found) == expected


def test_a_condition_that_is_not_true_says_nothing() -> None:
    """A Job that was suspended has the condition still, as "False"."""
    found = job("Suspended")
    found.status.conditions[0].status = "False"
    assert state.state_of(found) == "Running"


def test_a_job_without_a_status_is_pending() -> None:
    """So it is a moment after its creation."""
    found = job()
    found.status = None
    assert state.state_of(found) == "Pending"


@given(st.text(max_size=30))
def test_a_state_never_heard_of_ends_nothing(said: str) -> None:
    """Every state is claimed once at most, and what nobody knows is neither success nor failure."""
    operator = ResumableKubernetesJobOperator.__new__(ResumableKubernetesJobOperator)
    claims = [
        operator.is_job_active(said),
        operator.is_job_succeeded(said),
        operator.is_job_failed(said),
        operator.is_job_stopping(said),
    ]
    known = said in {*state.ACTIVE, "Complete", state.BY_CONTAINERS, "Started", "Terminating"}
    assert sum(claims) == (known or said.partition(":")[0] == "Failed")


@pytest.mark.parametrize(
    ("completions", "parallelism", "gone", "pods", "expected"),
    [
        (1, 1, 0, [("Running", 0)], True),
        (1, 1, 0, [("Running", None)], False),
        (2, 2, 0, [("Running", 0), ("Running", None)], False),
        (2, 2, 0, [("Running", 0), ("Failed", 1), ("Running", 0)], True),
        (3, 1, 2, [("Running", 0)], True),
        (3, 1, 1, [("Running", 0)], False),
        (2, 1, 0, [("Succeeded", 0)], False),
        (None, 1, 0, [("Running", 0)], True),
        (None, 2, 0, [("Running", 0)], False),
        (None, 2, 0, [("Running", 0), ("Pending", None)], False),
        (None, 2, 0, [("Running", 0), ("Failed", 1)], True),
        (None, 1, 0, [("Running", 1)], False),
        (1, 1, 0, [], False),
    ],
)
def test_enough_main_containers_are_a_success(
    completions: int | None, parallelism: int, gone: int, pods: list[Any], expected: bool
) -> None:
    """As many as the Job wants; of a work queue one, once nobody works any more. Pods that are gone count."""
    found = job(completions=completions, parallelism=parallelism)
    found.status.succeeded = gone + sum(phase == "Succeeded" for phase, _ in pods)
    made = [pod(f"p{number}", phase, code) for number, (phase, code) in enumerate(pods)]
    said = state.by_containers(found, made, READER, NOW)
    assert (said == state.BY_CONTAINERS) is expected


@pytest.mark.parametrize(
    ("ago", "others", "expected"),
    [
        (timedelta(minutes=3), [], True),
        (timedelta(seconds=30), [], False),
        (timedelta(minutes=3), [pod("other", "Running")], False),
    ],
    ids=["for long", "for a moment", "while another one works"],
)
def test_a_failed_main_container_that_is_kept_company_for_long_is_a_failure(
    ago: timedelta, others: list[Any], expected: bool
) -> None:
    """The controller waits for the pod's end to try again, so the Job would hang; a slow end is none."""
    held = pod("held", "Running", 3, ago)
    said = state.by_containers(job(completions=1, parallelism=1), [held, *others], READER, NOW)
    assert (said is not None and "pod held has ended (exit code 3)" in said) is expected


def test_a_selector_is_spelled_as_a_list_call_wants_it() -> None:
    """With `manual_selector` it may hold expressions."""
    expressions = [
        k8s.V1LabelSelectorRequirement(key="tier", operator="In", values=["a", "b"]),
        k8s.V1LabelSelectorRequirement(key="old", operator="DoesNotExist"),
        k8s.V1LabelSelectorRequirement(key="new", operator="Exists"),
    ]
    selector = k8s.V1LabelSelector(match_labels={"b": "2", "a": "1"}, match_expressions=expressions)
    assert selector_of(job(selector=selector)) == "a=1,b=2,tier in (a,b),!old,new"
