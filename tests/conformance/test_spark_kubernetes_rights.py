# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a real spark-submit to Kubernetes and its watcher may do at least; the API server's log tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.operators._spark_facts import KUBERNETES
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.task_tries import TaskTries
from tests.conformance.test_spark_kubernetes import DriverPods, build, lead_to, operator

pytestmark = pytest.mark.spark


def test_the_permissions_on_the_operators_page_are_enough_for_spark_submit(
    kubernetes: KubernetesCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who has just these starts a driver, watches it to its end, and is refused nothing."""
    service = DriverPods(kubernetes, kubernetes.proxy(), tmp_path / "gate")
    service.jar, service.marker = build(tmp_path / "app"), tmp_path / "marker"
    lead_to(service, monkeypatch)
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", service.kubeconfig("eve"))
    rules = [
        {"apiGroups": [one.group], "resources": [one.resource], "verbs": list(one.verbs)}
        for one in KUBERNETES.permissions
    ]
    kubernetes.grant("eve", service.namespace, rules)
    arguments: dict[str, Any] = service.arguments("succeeds")
    token = {"spark.kubernetes.authenticate.submission.oauthToken": kubernetes.token("eve")}
    tries = TaskTries(FileTaskStateStore(tmp_path / "store"))
    subject = operator(service, "succeeds", conf={**arguments["conf"], **token})
    tries.run(subject)

    assert tries.record(subject)["phase"] == "succeeded"
    refused = [
        (verb, resource)
        for resource in ("pods", "configmaps", "services", "networkpolicies")
        for verb in ("create", "get", "list", "watch", "patch", "update", "delete")
        if kubernetes.audit.requests(verb, resource, service.namespace, user="eve", code=403)
    ]
    assert refused == []
