# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs on the test cluster: the service as the tests see it, and the operators that they make."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from airflow_resumable.operators.kubernetes import ResumableKubernetesJobOperator
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from tests.kubernetes_service import KubernetesService, until

PATIENCE = 60.0


class JobService(KubernetesService):
    """One namespace and the Jobs in it."""

    def __init__(self, cluster: KubernetesCluster, proxy: FaultProxy, gate: Path) -> None:
        super().__init__(cluster, proxy, gate, "jobs")

    def forget(self, external_id: Any) -> None:
        """Delete the Job and its pods, and wait until nothing of it is left."""
        super().forget(external_id)
        self.until(lambda: not self.pods_of(external_id))

    def stop_slowly(self, external_id: Any) -> None:
        """Delete a Job on which somebody's finalizer is."""
        path = f"{self._path}/{external_id['name']}"
        self.cluster.request("PATCH", path, {"metadata": {"finalizers": ["tests.airflow-resumable/hold"]}})
        self.cluster.request("DELETE", path, {"propagationPolicy": "Background"})

    def let_go(self, external_id: Any) -> None:
        """Take that finalizer off."""
        path = f"{self._path}/{external_id['name']}"
        self.cluster.request("PATCH", path, {"metadata": {"finalizers": None}})

    def pods_of(self, external_id: Any) -> list[dict[str, Any]]:
        """Return the pods of a Job, gone or not."""
        return self.cluster.pods(self.namespace, **{"controller-uid": external_id["uid"]})

    def conditions(self, external_id: Any) -> set[str]:
        """Return the Job's conditions that are true; none of one that is gone."""
        found = self.object(external_id["name"])
        all_of_them = found["status"].get("conditions", ()) if found else ()
        return {one["type"] for one in all_of_them if one["status"] == "True"}

    def until(self, holds: Any, what: str = "it holds") -> Any:
        """Wait until something holds, and return it."""
        deadline = time.monotonic() + PATIENCE
        while not (found := holds()):
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:.0f} s"
            time.sleep(0.05)
        return found


def job_arguments(service: KubernetesService, outcome: str = "succeeds", **more: Any) -> dict[str, Any]:
    """Return the arguments of an operator, ours or the provider's.

    Args:
        service: Where the Job is to run.
        outcome: ``runs`` (until the gate is opened), ``succeeds`` or ``fails``.
        more: Other arguments.
    """
    commands = {"runs": until(service.gate), "succeeds": ["true"], "fails": ["sh", "-c", "exit 3"]}
    return {
        "task_id": "task",
        "name": "work",
        "namespace": service.namespace,
        "image": "any",
        "cmds": commands[outcome],
        "config_file": service.kubeconfig(),
        "kubernetes_conn_id": None,
        "backoff_limit": 0,
        "wait_until_job_complete": True,
        "get_logs": False,
        "termination_grace_period": 1,
        "job_poll_interval": 0.05,
        # The provider's operator fails where no pod is there yet after so many lists.
        "discover_pods_retry_number": 1000,
        "retries": 2,
        **more,
    }


def make_job(
    service: KubernetesService, outcome: str = "succeeds", **more: Any
) -> ResumableKubernetesJobOperator:
    """Make an operator that waits for its Job."""
    return ResumableKubernetesJobOperator(**job_arguments(service, outcome, **more))
