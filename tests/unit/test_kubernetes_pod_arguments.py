# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableKubernetesPodOperator` at parse time: what it takes, how pods are named, what goes where."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import pytest
from airflow.exceptions import AirflowProviderDeprecationWarning
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client as k8s
from kubernetes.client import ApiException

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.jobs.errors import RecordUnreadable
from airflow_resumable.jobs.link import JobLink
from airflow_resumable.jobs.record import spec_hash
from airflow_resumable.operators import _kubernetes_parent
from airflow_resumable.operators._kubernetes_api import name_with, said_by_stream
from airflow_resumable.operators.kubernetes import ResumableKubernetesPodOperator

TOKEN = "r" + "0123456789abcdef" * 2
# Set from these where they are left out, and the deprecated one mirrors `durable`.
OURS = {"durable", "reattach_on_restart", "is_delete_operator_pod", "progress_callback"}


def make(**arguments: Any) -> ResumableKubernetesPodOperator:
    return ResumableKubernetesPodOperator(
        **{"task_id": "task", "name": "work", "image": "any", "retries": 2, **arguments}
    )


def test_it_takes_what_the_parent_takes() -> None:
    """Same template fields, and each argument of the parent ends up where the parent puts it."""
    arguments: dict[str, Any] = {"task_id": "task", "name": "work", "image": "any", "retries": 2}
    parent, ours = KubernetesPodOperator(**arguments), make()
    assert set(ours.template_fields) == set(parent.template_fields)
    for name in set(inspect.signature(KubernetesPodOperator.__init__).parameters) - OURS:
        if name not in ("self", "kwargs"):
            assert getattr(ours, name) == getattr(parent, name), name
    assert ours.durable is parent.durable is True


def test_it_has_a_link_to_the_pods_page() -> None:
    """Beside those of the parent, which has none."""
    assert any(isinstance(link, JobLink) for link in make().operator_extra_links)


@pytest.mark.parametrize("durable", [True, False])
def test_the_deprecated_argument_means_durable(durable: bool) -> None:
    """As in the parent, with its warning; `durable` has the last word."""
    with pytest.warns(AirflowProviderDeprecationWarning, match="`reattach_on_restart` is deprecated"):
        made = make(reattach_on_restart=durable)
    assert (made.durable, made.reattach_on_restart) == (durable, durable)
    with pytest.warns(AirflowProviderDeprecationWarning, match="`reattach_on_restart` is deprecated"):
        made = make(reattach_on_restart=durable, durable=not durable)
    assert made.durable is not durable


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_another_value_for_adopt_stock_pod_is_refused(value: Any) -> None:
    """The message names the argument, the value and what is allowed."""
    with pytest.raises(TypeError, match=rf"adopt_stock_pod={value!r} is not allowed; use True or False"):
        make(adopt_stock_pod=value)


def test_the_parents_option_on_kill_is_a_policy_here() -> None:
    """One that is given has the last word."""
    assert make().resumable_policy().on_user_stop == "cancel"
    assert make(on_kill_action="keep_pod").resumable_policy().on_user_stop == "keep"
    given_too = make(on_kill_action="keep_pod", resume_policy={"on_user_stop": "cancel"})
    assert given_too.resumable_policy().on_user_stop == "cancel"


def test_what_the_parent_lacks_is_named_when_it_is_imported() -> None:
    """Not an AttributeError hours later, and with the versions that have it."""
    with pytest.raises(ImportError, match=r"KubernetesPodOperator .* has no _gone, .*tested with 10\.25\.0"):
        _kubernetes_parent.check(KubernetesPodOperator, ("find_pod", "_gone"))


@given(st.text(max_size=300))
def test_a_name_ends_with_the_token_and_is_a_dns_label(base: str) -> None:
    """Whatever the task is called, and as long as Kubernetes allows."""
    name = name_with(base, TOKEN)
    assert name.endswith(TOKEN)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name)


def test_ids_travel_in_the_parents_shape() -> None:
    """The uid stays on our own record; the parent's key has what the parent stores."""
    operator = make()
    external_id = {"name": "work-x", "namespace": "jobs", "uid": "u"}
    stored = operator.id_to_parent_value(external_id)  # type: ignore[arg-type]
    assert stored == {"name": "work-x", "namespace": "jobs"}
    assert operator.parent_value_to_id(stored) == stored
    with pytest.raises(RecordUnreadable, match=r"under 'pod_identifier' is 'work-x', not a name and a"):
        operator.parent_value_to_id("work-x")


def test_the_page_comes_from_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """None without a template: Kubernetes has no page of its own."""
    external_id: Any = {"name": "work-x", "namespace": "jobs", "uid": "u"}
    context: Any = {}
    address = "kubernetes://?job-url=https%3A%2F%2Fboard%2F%23%2F{kind}%2F{namespace}%2F{name}"
    monkeypatch.setenv("AIRFLOW_CONN_BOARD", address)
    monkeypatch.setenv("AIRFLOW_CONN_PLAIN", "kubernetes://")
    shown = make(kubernetes_conn_id="board").get_job_url(external_id, context)
    assert shown == "https://board/#/pod/jobs/work-x"
    assert make(kubernetes_conn_id="plain").get_job_url(external_id, context) is None
    assert make(kubernetes_conn_id=None).get_job_url(external_id, context) is None


def test_the_triggerer_gets_all_that_says_when_a_pod_has_ended() -> None:
    """As JSON; from it an operator is made that reads states in the same way."""
    operator = make(
        base_container_name="main",
        skip_on_exit_code=[3, 99],
        startup_timeout_seconds=7,
        schedule_timeout_seconds=8,
        poll_interval=9,
        kubernetes_conn_id=None,
    )
    context: Any = {}
    arguments = json.loads(json.dumps(operator.get_watch_arguments(context)))
    watcher = ResumableKubernetesPodOperator.for_watching(arguments)
    assert watcher._reader == operator._reader
    assert watcher.get_poll_interval() == 9.0


def test_the_same_pod_is_the_same_job_and_a_changed_one_is_another() -> None:
    """By what is rendered, objects of the Kubernetes client among it."""
    context: Any = {}

    def spec(value: str) -> str:
        volume = k8s.V1Volume(name="data", config_map=k8s.V1ConfigMapVolumeSource(name=value))
        return spec_hash(make(env_vars={"A": value}, volumes=[volume]).get_job_spec(context))

    assert spec("one") == spec("one")
    assert spec("one") != spec("two")


def test_a_stream_that_was_not_opened_tells_why() -> None:
    """The client hides the API server's answer behind an error of its own."""
    for words, code in (("503 Service Unavailable -+-+- {}", 503), ("403 Forbidden", 403)):
        told: Any = said(ApiException(status=0, reason=f"Handshake status {words}"))
        assert (told.status, told.reason) == (code, words[4:].partition(" -+")[0])
    assert isinstance(said(ApiException(status=0, reason="[Errno 111] refused")), ConnectionError)
    assert isinstance(said(ValueError("no JSON")), AttributeError)
    with pytest.raises(SystemExit):
        said(SystemExit("stopped"))


def said(cause: BaseException) -> Exception:
    """Raise as the client does: an error of its own while it deals with another."""
    try:
        try:
            raise cause
        except BaseException:
            raise AttributeError("'NoneType' object has no attribute 'decode'") from None
    except AttributeError as error:
        return said_by_stream(error)


def test_the_facts_name_every_permission_once() -> None:
    """The docs make a Role of them."""
    (facts,) = ResumableKubernetesPodOperator.service_facts
    pairs = [(one.group, one.resource, verb) for one in facts.permissions for verb in one.verbs]
    assert len(pairs) == len(set(pairs))
    assert facts.submit_window is ResumableKubernetesPodOperator.submit_window is SubmitWindow.CLOSED


def test_what_it_can_is_what_the_protocol_needs() -> None:
    """To find, to cancel, to tell failed from unknown, to be watched by the triggerer."""
    can = make().get_capabilities()
    assert (can.find_by_token, can.find_by_family, can.cancel) == (True, True, True)
    assert (can.tells_failed, can.missing_is_failure, can.deferrable) == (True, True, True)
    assert can.token_memory is None
