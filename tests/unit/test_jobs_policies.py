# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A wrong argument is refused when the Dag is parsed, with the field, the value and what is allowed."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from airflow_resumable.integration.settings import OPTIONS, Option
from airflow_resumable.jobs.policies import ResumePolicy, configured
from airflow_resumable.testing.local_job import LocalJobOperator


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"on_clear": "retry"}, r"on_clear='retry' is not allowed; use 'resubmit' or 'reconnect'"),
        ({"on_missing": True}, r"on_missing=True is not allowed; use 'fail' or 'resubmit'"),
        (
            {"on_cler": "resubmit"},
            r"no field 'on_cler' \(value 'resubmit'\); use one of on_infrastructure_stop",
        ),
        ({"status_error_budget": -1}, r"status_error_budget=-1 is not allowed; use a number of seconds"),
        ({"status_error_budget": float("nan")}, r"status_error_budget=nan is not allowed"),
        ({"cancel_timeout": "5m"}, r"cancel_timeout='5m' is not allowed; use a number of seconds"),
        ({"cancel_timeout": True}, r"cancel_timeout=True is not allowed"),
        ({"cancel_timeout": timedelta(seconds=-1)}, r"cancel_timeout=.* is not allowed"),
    ],
)
def test_a_wrong_policy_is_refused_at_parse_time(policy: dict[str, Any], said: str) -> None:
    """The operator isn't even built."""
    with pytest.raises(ValueError, match=said):
        LocalJobOperator(task_id="t", service_url="", command=["x"], retries=1, resume_policy=policy)


def test_a_policy_of_another_type_is_refused_at_parse_time() -> None:
    """A list or a text is no policy; the error shows one."""
    with pytest.raises(TypeError, match=r"resume_policy='keep' is not allowed; use a ResumePolicy or a dict"):
        LocalJobOperator(
            task_id="t",
            service_url="",
            command=["x"],
            retries=1,
            resume_policy="keep",
        )


def test_a_wrong_durable_is_refused_at_parse_time() -> None:
    """The text "False" would otherwise count as true."""
    with pytest.raises(TypeError, match="durable='False' is not allowed; use True or False"):
        LocalJobOperator(
            task_id="t",
            service_url="",
            command=["x"],
            retries=1,
            durable="False",
        )


def test_durable_without_retries_is_warned_about() -> None:
    """The job would go on with nobody to watch it."""
    with pytest.warns(UserWarning, match=r"task 't': durable=True with retries=0"):
        LocalJobOperator(task_id="t", service_url="", command=["x"], retries=0)


@pytest.mark.filterwarnings("error")
def test_retries_or_durable_false_need_no_warning() -> None:
    """Only the combination is dangerous."""
    LocalJobOperator(task_id="t", service_url="", command=["x"], retries=1)
    LocalJobOperator(task_id="u", service_url="", command=["x"], retries=0, durable=False)


def test_default_args_reach_the_policy() -> None:
    """A Dag's default_args may hold `durable` and `resume_policy`, as with Airflow's own mixin."""
    from airflow.sdk import DAG

    with DAG("d", schedule=None, default_args={"durable": False, "resume_policy": {"on_clear": "reconnect"}}):
        operator = LocalJobOperator(task_id="t", service_url="", command=["x"])
    assert operator.durable is False
    assert operator.resume_policy.on_clear == "reconnect"


def test_a_duration_may_be_a_timedelta() -> None:
    """Seconds are what is kept."""
    assert ResumePolicy(cancel_timeout=timedelta(minutes=2)).cancel_timeout == 120.0


def test_what_an_operator_leaves_open_comes_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """``[resumable]`` is the deployment's policy."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__ON_MISSING", "resubmit")
    policy = ResumePolicy(on_clear="reconnect").filled(configured())
    assert (policy.on_missing, policy.on_clear, policy.stopping_timeout) == ("resubmit", "reconnect", 600.0)


def test_every_policy_is_an_option_of_the_configuration_with_the_same_words() -> None:
    """The policy's fields and the options table can't drift apart, in words or in defaults."""
    options: dict[str, Option] = {option.name: option for option in OPTIONS}
    defaults = configured()
    for field in fields(ResumePolicy):
        option = options[field.name]
        for word in option.allowed:
            ResumePolicy.of({field.name: word})
        if option.allowed:
            with pytest.raises(ValueError, match="not allowed"):
                ResumePolicy.of({field.name: "something else"})
        assert getattr(defaults, field.name) == (
            option.default if option.allowed else float(option.default or 0)
        )
