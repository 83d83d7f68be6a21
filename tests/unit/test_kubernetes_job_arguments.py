# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableKubernetesJobOperator` at parse time: what it takes, what it warns of, what it refuses."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
from airflow.sdk.exceptions import AirflowException
from kubernetes import client as k8s

from airflow_resumable.operators.kubernetes import ResumableKubernetesJobOperator
from airflow_resumable.testing.task_tries import TaskTries


def make(**arguments: Any) -> ResumableKubernetesJobOperator:
    given = {"task_id": "task", "image": "any", "retries": 2, "wait_until_job_complete": True, **arguments}
    return ResumableKubernetesJobOperator(**given)


def test_it_takes_what_the_parent_takes() -> None:
    """Same template fields, and each argument of the parent ends up where the parent puts it."""
    parent = KubernetesJobOperator(task_id="task", image="any", retries=2, wait_until_job_complete=True)
    ours = make()
    assert set(ours.template_fields) == set(parent.template_fields)
    for name in inspect.signature(KubernetesJobOperator.__init__).parameters:
        if name not in ("self", "kwargs"):
            assert getattr(ours, name) == getattr(parent, name)


def test_a_time_to_live_shorter_than_the_gap_between_two_looks_is_warned_of() -> None:
    """The Job may be gone before the next try looks, and nobody can say how it ended."""
    with pytest.warns(UserWarning, match=r"ttl_seconds_after_finished=60.*300 s later.*more than 300"):
        make(ttl_seconds_after_finished=60)


@pytest.mark.parametrize(
    "arguments",
    [
        {"ttl_seconds_after_finished": 60, "retry_delay": timedelta(seconds=30)},
        {"ttl_seconds_after_finished": 60, "wait_until_job_complete": False},
        {"ttl_seconds_after_finished": 60, "durable": False},
        {},
    ],
    ids=["longer", "nobody waits", "not durable", "none"],
)
def test_any_other_time_to_live_is_not_warned_of(arguments: dict[str, Any]) -> None:
    """Warnings are errors here."""
    make(**arguments)


def test_a_time_to_live_of_the_whole_spec_counts_too() -> None:
    """It is how long the service remembers the token; a Job that vanishes that soon may have succeeded."""
    spec = k8s.V1Job(spec=k8s.V1JobSpec(template=k8s.V1PodTemplateSpec(), ttl_seconds_after_finished=20))
    can = make(full_job_spec=spec, retry_delay=timedelta(seconds=5)).get_capabilities()
    assert (can.token_memory, can.missing_is_failure) == (timedelta(seconds=20), False)
    can = make(ttl_seconds_after_finished=3600).get_capabilities()
    assert (can.token_memory, can.missing_is_failure) == (timedelta(hours=1), True)
    can = make().get_capabilities()
    assert (can.token_memory, can.missing_is_failure) == (None, True)


def test_another_value_for_adopt_stock_job_is_refused() -> None:
    """The message names the argument, the value and what is allowed."""
    with pytest.raises(TypeError, match="adopt_stock_job='yes' is not allowed; use True or False"):
        make(adopt_stock_job="yes")


def test_a_job_without_pods_is_not_waited_for() -> None:
    """As in the parent; nothing is submitted."""
    with pytest.raises(AirflowException, match=r"parallelism=0 is not allowed"):
        TaskTries().run(make(parallelism=0))


def test_no_parallelism_means_one() -> None:
    """As in the parent."""
    operator = make(parallelism=None)
    operator._check_arguments()
    assert operator.parallelism == 1


def test_nobody_is_deferred_who_does_not_wait() -> None:
    """As in the parent, which says so in the log."""
    operator = make(deferrable=True, wait_until_job_complete=False)
    operator._check_arguments()
    assert operator.deferrable is False


def test_a_changed_job_is_another_one() -> None:
    """What isn't a template field shapes a Job all the same."""
    context: Any = {}
    spec = make().get_job_spec(context)
    assert spec == make().get_job_spec(context)
    assert spec != make(completions=3).get_job_spec(context)
    assert spec != make(cmds=["true"]).get_job_spec(context)


def test_the_facts_name_every_permission_once() -> None:
    """The docs make a Role of them."""
    (facts,) = ResumableKubernetesJobOperator.service_facts
    pairs = [(one.group, one.resource, verb) for one in facts.permissions for verb in one.verbs]
    assert len(pairs) == len(set(pairs))
    assert facts.submit_window is ResumableKubernetesJobOperator.submit_window
