# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A user who may not do everything: what the Pod operator does without each permission that it documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.operators.kubernetes import ResumableKubernetesPodOperator
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from airflow_resumable.testing.task_tries import TaskTries
from tests.kubernetes_pod_attempts import RESULT, await_that, make_pod
from tests.kubernetes_service import KubernetesService


@pytest.fixture(scope="module")
def proxy(kubernetes: KubernetesCluster) -> FaultProxy:
    """A proxy in front of the API server."""
    return kubernetes.proxy()


@pytest.fixture
def service(kubernetes: KubernetesCluster, proxy: FaultProxy, tmp_path: Path) -> Iterator[KubernetesService]:
    """A namespace of the test's own."""
    service = KubernetesService(kubernetes, proxy, tmp_path / "gate")
    yield service
    proxy.heal()
    service.release()


def without(service: KubernetesService, resource: str, verb: str) -> None:
    """Let the user ``cleo`` do all that is documented but one thing."""
    (facts,) = ResumableKubernetesPodOperator.service_facts
    rules = [
        {
            "apiGroups": [one.group],
            "resources": [one.resource],
            "verbs": [each for each in one.verbs if (one.resource, each) != (resource, verb)],
        }
        for one in facts.permissions
    ]
    assert [verb for one in facts.permissions if one.resource == resource for verb in one.verbs].count(verb)
    service.cluster.grant("cleo", service.namespace, [rule for rule in rules if rule["verbs"]])


@pytest.mark.parametrize("outcome", ["succeeds", "fails"])
def test_without_delete_the_pod_is_left_and_that_is_said(
    service: KubernetesService, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The outcome stands, and no second pod is started."""
    without(service, "pods", "delete")
    tries = TaskTries()
    try:
        tries.run(make_pod(service, outcome, "cleo", on_finish_action="delete_pod"))
    except AirflowException:
        assert outcome == "fails"
    assert tries.record(make_pod(service))["phase"] == ("succeeded" if outcome == "succeeds" else "failed")
    assert "tidying up failed" in caplog.text
    assert len(service.cluster.pods(service.namespace)) == 1


def test_without_delete_a_stop_is_said_to_have_failed(
    service: KubernetesService, caplog: pytest.LogCaptureFixture
) -> None:
    """The pod goes on, on record."""
    without(service, "pods", "delete")
    tries = TaskTries()
    assert tries.stop(make_pod(service, "runs", "cleo"), "failed") == "JobKept"
    assert "was NOT cancelled" in caplog.text
    assert [one.live for one in service.jobs()] == [True]


def test_without_patch_the_label_is_missing_and_that_is_said(
    service: KubernetesService, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else depends on it."""
    without(service, "pods", "patch")
    tries = TaskTries()
    tries.run(make_pod(service, user="cleo"))
    assert "can't be labelled already_checked=True" in capsys.readouterr().out
    assert tries.record(make_pod(service))["phase"] == "succeeded"


def test_without_logs_the_pod_is_watched_and_that_is_said_once(
    service: KubernetesService, capsys: pytest.CaptureFixture[str]
) -> None:
    """It isn't asked for again and again: once while it runs, once at the end."""
    without(service, "pods/log", "get")
    tries = TaskTries()
    tries.run(make_pod(service, user="cleo", get_logs=True, cmds=["sleep", "1"]))
    assert capsys.readouterr().out.count("is refused") == 1
    assert tries.record(make_pod(service))["phase"] == "succeeded"


def test_without_events_the_pod_is_watched_and_that_is_said_once(
    service: KubernetesService, kubernetes: KubernetesCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """While it is Pending, which is when they are asked for."""
    without(service, "events", "list")
    more: dict[str, Any] = {"node_selector": {"disk": "big"}, "schedule_timeout_seconds": 1}
    with pytest.raises(AirflowException, match="not scheduled within 1 s"):
        TaskTries().run(make_pod(service, user="cleo", log_events_on_startup=True, **more))
    assert capsys.readouterr().out.count("are not read any more") == 1


def test_without_exec_the_result_is_an_error_and_nothing_runs_on(service: KubernetesService) -> None:
    """The pod is on record as failed, and deleted as the operator is told to."""
    without(service, "pods/exec", "get")
    tries = TaskTries()
    more: dict[str, Any] = {"do_xcom_push": True, "cmds": ["sh", "-c", RESULT]}
    with pytest.raises(AirflowException, match=r"result can't be read.*\(403\)"):
        tries.run(make_pod(service, user="cleo", on_finish_action="delete_pod", **more))
    assert tries.record(make_pod(service))["phase"] == "failed"
    await_that(lambda: not service.cluster.pods(service.namespace), "the pod is gone")
