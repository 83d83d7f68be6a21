# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableEmrServerlessStartJobOperator` at parse time: what it takes, refuses, and says of itself."""

from __future__ import annotations

import inspect
import json
import time
from typing import Any

import pytest
from airflow.providers.amazon.aws.hooks.emr import EmrServerlessHook
from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator
from botocore.session import get_session  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from airflow_resumable.jobs.adapter import Observation, SubmitWindow, observe
from airflow_resumable.jobs.link import JobLink
from airflow_resumable.operators._emr_job_run import STARTED
from airflow_resumable.operators._emr_run_names import name_with, token_at_the_end
from airflow_resumable.operators.emr_serverless import ResumableEmrServerlessStartJobOperator

TOKEN = "r" + "0123456789abcdef" * 2
ARGUMENTS: dict[str, Any] = {
    "task_id": "task",
    "application_id": "00fapplication",
    "execution_role_arn": "arn:aws:iam::123456789012:role/job",
    "job_driver": {"sparkSubmit": {"entryPoint": "s3://bucket/job.py"}},
    "retries": 2,
}
STATES = get_session().get_service_model("emr-serverless").shape_for("JobRunState").enum


def make(**more: Any) -> ResumableEmrServerlessStartJobOperator:
    return ResumableEmrServerlessStartJobOperator(**{**ARGUMENTS, **more})


def test_it_takes_what_the_parent_takes() -> None:
    """Same template fields and links, and each argument ends up where the parent puts it."""
    parent, ours = EmrServerlessStartJobOperator(**ARGUMENTS), make()
    assert ours.template_fields == parent.template_fields
    assert ours.template_fields_renderers == parent.template_fields_renderers
    assert tuple(ours.operator_extra_links[:-1]) == tuple(parent.operator_extra_links)
    assert isinstance(ours.operator_extra_links[-1], JobLink)
    for name in inspect.signature(EmrServerlessStartJobOperator.__init__).parameters:
        if name not in ("self", "kwargs", "client_request_token"):
            assert getattr(ours, name) == getattr(parent, name), name


@pytest.mark.parametrize(
    "given",
    [{"client_request_token": "mine"}, {"config": {"clientToken": "mine"}}],
    ids=["argument", "config"],
)
def test_a_token_of_the_users_is_refused(given: dict[str, Any]) -> None:
    """It would give back a failed run for ever; the message says so, and with durable=False it is sent."""
    with pytest.raises(ValueError, match=r"'mine'.* is not allowed: with a token of yours .* failed or not"):
        make(**given)
    assert make(durable=False, **given).durable is False


@pytest.mark.parametrize("name", ["waiter_delay", "waiter_max_attempts"])
def test_a_wait_without_a_pause_or_a_look_is_refused(name: str) -> None:
    """The message names argument, value and what is allowed; with durable=False it is the parent's."""
    with pytest.raises(ValueError, match=f"{name}=0 is not allowed; use 1 or more"):
        make(**{name: 0})
    assert getattr(make(durable=False, **{name: 0}), name) == 0


def test_the_parents_cancel_on_kill_is_a_policy_here() -> None:
    """Of a deferred task, as there; a policy that is given has the last word."""
    assert make(deferrable=True).resumable_policy().on_user_stop == "cancel"
    assert make(cancel_on_kill=False).resumable_policy().on_user_stop == "cancel"
    kept = make(deferrable=True, cancel_on_kill=False)
    assert kept.resumable_policy().on_user_stop == "keep"
    given_too = make(deferrable=True, cancel_on_kill=False, resume_policy={"on_user_stop": "cancel"})
    assert given_too.resumable_policy().on_user_stop == "cancel"


@given(st.text(max_size=300))
def test_a_name_ends_with_the_token_and_begins_with_the_users(base: str) -> None:
    """As long as the service allows, and the token is read from it again."""
    name = name_with(base, TOKEN, 256)
    assert len(name) <= 256
    assert name.startswith(base[:222])
    assert token_at_the_end(name) == TOKEN


@given(st.one_of(st.none(), st.text(), st.from_regex(r"\A.{0,9}-[rR][0-9a-g]{30,34}\Z")))
def test_a_name_of_another_kind_has_no_token(name: str | None) -> None:
    """Whatever it is: no exception, and only what could be a token is one."""
    found = token_at_the_end(name)
    assert found is None or (len(found) == 33 and str(name).endswith(f"-{found}"))


def test_every_state_of_the_service_is_known() -> None:
    """Those of the service's own model, each read as the protocol's word for it."""
    operator = make()
    seen = {state: observe(operator, state, operator.get_capabilities()) for state in STATES}
    assert seen == {
        "SUBMITTED": Observation.ACTIVE,
        "PENDING": Observation.ACTIVE,
        "SCHEDULED": Observation.ACTIVE,
        "QUEUED": Observation.ACTIVE,
        "RUNNING": Observation.ACTIVE,
        "SUCCESS": Observation.SUCCEEDED,
        "FAILED": Observation.FAILED,
        "CANCELLED": Observation.FAILED,
        "CANCELLING": Observation.STOPPING,
    }
    parents = EmrServerlessHook.JOB_TERMINAL_STATES | EmrServerlessHook.JOB_INTERMEDIATE_STATES
    assert parents <= set(seen)


@given(st.text())
def test_any_other_word_is_neither_success_nor_failure(status: str) -> None:
    """So nothing is ever started because of it."""
    operator = make()
    if status not in (*STATES, STARTED):
        assert observe(operator, status, operator.get_capabilities()) is Observation.UNKNOWN


def test_the_triggerer_gets_all_that_it_needs() -> None:
    """As JSON; the operator made from it looks where, how, as often and as long as the worker would."""
    operator = make(
        aws_conn_id="other", region_name="eu-west-1", verify=False, waiter_delay=7, waiter_max_attempts=3
    )
    operator.botocore_config = {"read_timeout": 5}
    vars(operator)["_clients"] = None
    context: Any = {}
    arguments = json.loads(json.dumps(operator.get_watch_arguments(context)))
    watcher = ResumableEmrServerlessStartJobOperator.for_watching(arguments)
    for name in ("aws_conn_id", "region_name", "verify", "botocore_config", "application_id", "waiter_delay"):
        assert getattr(watcher, name) == getattr(operator, name), name
    assert watcher.get_poll_interval() == 7.0
    assert watcher._give_up_at is not None
    assert 0 < watcher._give_up_at - time.time() <= 21


def test_what_it_can_is_what_the_protocol_needs() -> None:
    """To find, to cancel, to tell failed from unknown, to be watched by the triggerer."""
    can = make().get_capabilities()
    assert (can.submit_window, can.token_memory) == (SubmitWindow.CLOSED, None)
    assert (can.find_by_token, can.find_by_family, can.cancel) == (True, True, True)
    assert (can.tells_failed, can.deferrable) == (True, True)


def test_the_facts_name_every_call() -> None:
    """Each action that is asked for is an operation of the service, and named once."""
    (facts,) = ResumableEmrServerlessStartJobOperator.service_facts
    actions = [verb for one in facts.permissions if one.group == "emr-serverless" for verb in one.verbs]
    assert len(actions) == len(set(actions))
    assert set(actions) <= set(get_session().get_service_model("emr-serverless").operation_names)
