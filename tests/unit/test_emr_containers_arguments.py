# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableEmrContainerOperator` at parse time: what it takes, refuses, and says of itself."""

from __future__ import annotations

import inspect
import json
import re
import time
from typing import Any

import pytest
from airflow.providers.amazon.aws.hooks.emr import EmrContainerHook
from airflow.providers.amazon.aws.operators.emr import EmrContainerOperator
from botocore.session import get_session  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from airflow_resumable.jobs.adapter import Observation, SubmitWindow, observe
from airflow_resumable.jobs.link import JobLink
from airflow_resumable.operators._emr_job_run import STARTED
from airflow_resumable.operators._emr_run_names import name_with, token_at_the_end
from airflow_resumable.operators.emr_containers import ResumableEmrContainerOperator

TOKEN = "r" + "0123456789abcdef" * 2
ARGUMENTS: dict[str, Any] = {
    "task_id": "task",
    "name": "nightly",
    "virtual_cluster_id": "00fcluster",
    "execution_role_arn": "arn:aws:iam::123456789012:role/job",
    "release_label": "emr-7.0.0-latest",
    "job_driver": {"sparkSubmitJobDriver": {"entryPoint": "s3://bucket/job.py"}},
    "retries": 2,
}
MODEL = get_session().get_service_model("emr-containers")
STATES = MODEL.shape_for("JobRunState").enum


def make(**more: Any) -> ResumableEmrContainerOperator:
    return ResumableEmrContainerOperator(**{**ARGUMENTS, **more})


def test_it_takes_what_the_parent_takes() -> None:
    """Same template fields, and each argument ends up where the parent puts it; the link is ours."""
    parent, ours = EmrContainerOperator(**ARGUMENTS), make()
    assert ours.template_fields == parent.template_fields
    assert [type(link) for link in ours.operator_extra_links] == [JobLink]
    for name in inspect.signature(EmrContainerOperator.__init__).parameters:
        if name not in ("self", "kwargs"):
            assert getattr(ours, name) == getattr(parent, name), name


def test_a_token_of_the_users_is_refused() -> None:
    """It would give back a failed run for ever; the message says so, and with durable=False it is sent."""
    with pytest.raises(ValueError, match=r"'mine' is not allowed: with a token of yours .* failed or not"):
        make(client_request_token="mine")
    assert make(durable=False, client_request_token="mine").client_request_token == "mine"


@pytest.mark.parametrize(
    ("name", "value"), [("poll_interval", 0), ("max_polling_attempts", 0), ("poll_interval", "30")]
)
def test_a_wait_without_a_pause_or_a_look_is_refused(name: str, value: Any) -> None:
    """The message names argument, value and what is allowed; with durable=False it is the parent's."""
    with pytest.raises((TypeError, ValueError), match=f"{name}={value!r} is not allowed; use "):
        make(**{name: value})
    assert getattr(make(durable=False, **{name: value}), name) == value


@given(st.from_regex(re.compile(r"[./#\-_A-Za-z0-9]{1,64}", re.ASCII), fullmatch=True))
def test_a_name_is_one_that_the_service_takes(base: str) -> None:
    """It ends with the token, begins with the user's name, and has no more than 64 characters."""
    shape = MODEL.shape_for("ResourceNameString")
    name = name_with(base, TOKEN, shape.metadata["max"])
    assert len(name) <= shape.metadata["max"]
    assert re.fullmatch(shape.metadata["pattern"], name)
    assert name.startswith(base[:30])
    assert token_at_the_end(name) == TOKEN


def test_every_state_of_the_service_is_known() -> None:
    """Those of the service's own model, each read as the protocol's word for it."""
    operator = make()
    seen = {state: observe(operator, state, operator.get_capabilities()) for state in STATES}
    assert seen == {
        "PENDING": Observation.ACTIVE,
        "SUBMITTED": Observation.ACTIVE,
        "RUNNING": Observation.ACTIVE,
        "COMPLETED": Observation.SUCCEEDED,
        "FAILED": Observation.FAILED,
        "CANCELLED": Observation.FAILED,
        "CANCEL_PENDING": Observation.STOPPING,
    }
    assert {*EmrContainerHook.INTERMEDIATE_STATES, *EmrContainerHook.TERMINAL_STATES} == set(seen)


@given(st.text())
def test_any_other_word_is_neither_success_nor_failure(status: str) -> None:
    """So nothing is ever started because of it."""
    operator = make()
    if status not in (*STATES, STARTED):
        assert observe(operator, status, operator.get_capabilities()) is Observation.UNKNOWN


@pytest.mark.parametrize("looks", [None, 3])
def test_the_triggerer_gets_all_that_it_needs(looks: int | None) -> None:
    """As JSON; the operator made from it looks where, how, as often and as long as the worker would."""
    operator = make(aws_conn_id="other", poll_interval=7, max_polling_attempts=looks)
    context: Any = {}
    arguments = json.loads(json.dumps(operator.get_watch_arguments(context)))
    watcher = ResumableEmrContainerOperator.for_watching(arguments)
    for name in ("aws_conn_id", "region_name", "verify", "botocore_config", "virtual_cluster_id"):
        assert getattr(watcher, name) == getattr(operator, name), name
    assert (watcher.get_poll_interval(), watcher.max_polling_attempts) == (7.0, looks)
    until = watcher._give_up_at
    assert until is None if looks is None else until is not None and 0 < until - time.time() <= 21


def test_what_it_can_is_what_the_protocol_needs() -> None:
    """To find, to cancel, to tell failed from unknown, to be watched by the triggerer."""
    can = make().get_capabilities()
    assert (can.submit_window, can.token_memory) == (SubmitWindow.CLOSED, None)
    assert (can.find_by_token, can.find_by_family, can.cancel) == (True, True, True)
    assert (can.tells_failed, can.deferrable) == (True, True)


def test_the_facts_name_every_call() -> None:
    """Each action that is asked for is an operation of the service, and named once."""
    (facts,) = ResumableEmrContainerOperator.service_facts
    actions = [verb for one in facts.permissions for verb in one.verbs]
    assert len(actions) == len(set(actions))
    assert set(actions) <= set(MODEL.operation_names)
