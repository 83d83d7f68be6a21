# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the Kubernetes operators refuse when a Dag is parsed, and what only once a task is rendered."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG, XComArg

from airflow_resumable.operators._kubernetes_arguments import check_template
from airflow_resumable.operators.kubernetes import (
    ResumableKubernetesJobOperator,
    ResumableKubernetesPodOperator,
)
from airflow_resumable.testing.task_tries import TaskTries


def make_pod(**arguments: Any) -> ResumableKubernetesPodOperator:
    return ResumableKubernetesPodOperator(**{"task_id": "task", "image": "any", "retries": 2, **arguments})


def make_job(**arguments: Any) -> ResumableKubernetesJobOperator:
    return ResumableKubernetesJobOperator(**{"task_id": "task", "image": "any", "retries": 2, **arguments})


SECONDS = "a number of seconds, more than 0"
TIMEOUT = "a number of seconds, 0 or more"
WHOLE = "a whole number, 0 or more, or None"


@pytest.mark.parametrize(
    "name",
    ["poll_interval", "base_container_status_polling_interval", "startup_check_interval_seconds"],
)
@pytest.mark.parametrize("value", [0, -1, "5", None, True, float("nan")])
def test_a_pods_intervals_are_seconds(name: str, value: Any) -> None:
    """Anything else would ask the API server without a pause, or fail in the middle of a poll."""
    with pytest.raises((TypeError, ValueError)) as raised:
        make_pod(**{name: value})
    assert str(raised.value) == f"{name}={value!r} is not allowed; use {SECONDS}"


@pytest.mark.parametrize("value", [0, -1, "10", None])
def test_a_jobs_interval_is_seconds(value: Any) -> None:
    """As with a pod's."""
    with pytest.raises((TypeError, ValueError)) as raised:
        make_job(job_poll_interval=value)
    assert str(raised.value) == f"job_poll_interval={value!r} is not allowed; use {SECONDS}"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("startup_timeout_seconds", "120", TIMEOUT),
        ("startup_timeout_seconds", None, TIMEOUT),
        ("startup_timeout_seconds", -1, TIMEOUT),
        ("schedule_timeout_seconds", "9", TIMEOUT),
        ("termination_grace_period", -1, WHOLE),
        ("termination_grace_period", "1", WHOLE),
        ("termination_grace_period", 1.5, WHOLE),
        ("skip_on_exit_code", "7", "an exit code, or a list of them, such as [99]"),
        ("skip_on_exit_code", ["7"], "an exit code, or a list of them, such as [99]"),
        ("cmds", 5, "a list of strings"),
        ("cmds", ["sleep", 5], "a list of strings"),
        ("arguments", {"a": "b"}, "a list of strings"),
        ("labels", ["a"], "a dict of strings"),
    ],
)
def test_a_pods_wrong_argument_is_named_with_what_to_use(name: str, value: Any, allowed: str) -> None:
    """When the Dag is parsed, not when a worker has a pod running."""
    with pytest.raises((TypeError, ValueError)) as raised:
        make_pod(**{name: value})
    assert str(raised.value) == f"{name}={value!r} is not allowed; use {allowed}"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("parallelism", "2", WHOLE),
        ("parallelism", -1, WHOLE),
        ("ttl_seconds_after_finished", "9", WHOLE),
        ("completions", -1, WHOLE),
        ("completions", "3", WHOLE),
        ("backoff_limit", "x", WHOLE),
        ("termination_grace_period", -1, WHOLE),
        ("cmds", 5, "a list of strings"),
        ("on_kill_propagation_policy", "x", "'Foreground' or 'Background' or 'Orphan'"),
    ],
)
def test_a_jobs_wrong_argument_is_named_with_what_to_use(name: str, value: Any, allowed: str) -> None:
    """When the Dag is parsed, not by an API server's answer."""
    with pytest.raises((TypeError, ValueError)) as raised:
        make_job(**{name: value})
    assert str(raised.value) == f"{name}={value!r} is not allowed; use {allowed}"


@pytest.mark.parametrize("make", [make_pod, make_job])
def test_the_labels_by_which_pods_are_found_are_not_the_users(make: Any) -> None:
    """One would be overwritten without a word, or find another task's pod."""
    with pytest.raises(ValueError, match=r"labels: 'airflow-resumable/token' \(value 'x'\) is not"):
        make(labels={"team": "a", "airflow-resumable/token": "x"})


@pytest.mark.parametrize(
    "arguments",
    [
        {"schedule_timeout_seconds": None},
        {"schedule_timeout_seconds": 0, "startup_timeout_seconds": 0},
        {"poll_interval": 0.5, "termination_grace_period": 0},
        {"skip_on_exit_code": 99},
        {"skip_on_exit_code": {3, 99}},
        {"skip_on_exit_code": range(2, 256)},
        {"cmds": None, "arguments": None, "labels": None},
        {"cmds": ("sh", "-c"), "arguments": ["{{ ds }}"]},
        {"cmds": "{{ params.cmds }}", "labels": "{{ params.labels }}"},
    ],
    ids=str,
)
def test_what_the_parent_takes_is_taken(arguments: dict[str, Any]) -> None:
    """Also templates that may become a list."""
    make_pod(**arguments)


def test_what_another_task_returns_is_taken() -> None:
    """It is known only when the task runs."""
    with DAG("dag", schedule=None):
        coming = XComArg(make_pod(task_id="before"))
        make_pod(cmds=coming, labels=coming, arguments=["--day", coming])
        make_job(task_id="job", cmds=coming, labels=coming, arguments=["--day", coming])


@pytest.mark.parametrize("make", [make_pod, make_job])
@pytest.mark.parametrize(
    ("name", "value"), [("cmds", "sh"), ("arguments", ["--day", 5]), ("labels", "team=a")], ids=str
)
def test_what_was_rendered_to_something_wrong_is_named_before_anything_is_asked(
    make: Any, name: str, value: Any
) -> None:
    """There is no API server here to ask."""
    operator = make()
    setattr(operator, name, value)
    with pytest.raises(TypeError, match=f"{name}=.* is not allowed; use a "):
        TaskTries().run(operator)


def test_a_rendered_label_is_looked_at_too() -> None:
    """A dict may have come from another task."""
    operator = make_pod()
    operator.labels = {"airflow-resumable/family": "x"}
    with pytest.raises(ValueError, match="labels: 'airflow-resumable/family'"):
        check_template(operator, rendered=True)
