# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A namespace of the real API server as the tests see it: its audit log counts, a proxy spoils requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from airflow_resumable.testing.conformance import SeenJob, ServiceUnderTest
from airflow_resumable.testing.kubernetes.audit import Request
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from tests.stack.kills import until as wait_until

_PATHS = {"pods": "/api/v1", "jobs": "/apis/batch/v1"}


def until(gate: Path, then: str = "true") -> list[str]:
    """Return a command that runs until `gate` exists; it is not impressed by SIGTERM."""
    up = f": > '{gate}.up'"
    return ["sh", "-c", f"trap '' TERM; {up}; while [ ! -e '{gate}' ]; do sleep 0.05; done; {then}"]


class KubernetesService(ServiceUnderTest):
    """One namespace, for one kind of object.

    Args:
        cluster: The cluster.
        proxy: What the operators talk to.
        gate: What running jobs wait for.
        resource: ``pods`` or ``jobs``.
    """

    container = "base"
    """The main container of a pod."""

    def __init__(
        self, cluster: KubernetesCluster, proxy: FaultProxy, gate: Path, resource: str = "pods"
    ) -> None:
        self.cluster, self.proxy, self.gate, self.resource = cluster, proxy, gate, resource
        self.namespace = cluster.namespace()

    def kubeconfig(self, user: str = "admin") -> str:
        """Return the path of a user's kubeconfig file; it leads to the proxy."""
        path = self.cluster.kubeconfig(user, namespace=self.namespace, server=self.proxy.url)
        return str(path)

    def jobs(self) -> list[SeenJob]:
        """Read the API server's own log."""
        return [
            SeenJob({"name": one.name, "namespace": self.namespace, "uid": one.uid}, self._is_live(one))
            for one in self.cluster.audit.created(self.resource, self.namespace)
        ]

    def object(self, name: str) -> dict[str, Any] | None:
        """Return the object of a name, or None."""
        try:
            return self.cluster.request("GET", f"{self._path}/{name}")
        except httpx.HTTPStatusError as error:
            if error.response.status_code == 404:
                return None
            raise

    def _is_live(self, one: Request) -> bool:
        found = self.object(one.name)
        if found is None or found["metadata"]["uid"] != one.uid:
            return False
        if self.resource == "pods":
            containers = found["status"].get("containerStatuses", ())
            if any("terminated" in each["state"] for each in containers if each["name"] == self.container):
                return False
            return found["status"].get("phase") in ("Pending", "Running")
        ended = [one["type"] for one in found["status"].get("conditions", ()) if one["status"] == "True"]
        return not {"Complete", "Failed"} & set(ended)

    def release(self) -> None:
        """Open the gate."""
        self.gate.touch()

    def forget(self, external_id: Any) -> None:
        """Delete the object at once, as a node that is drained or a garbage collector would."""
        self._remove(external_id, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})

    def stop_slowly(self, external_id: Any) -> None:
        """Delete a pod that takes its time to end, once it is deaf to SIGTERM."""
        wait_until("the pod is deaf", self.gate.with_name(f"{self.gate.name}.up").exists)
        self._remove(external_id, {"gracePeriodSeconds": 600})

    def _remove(self, external_id: Any, options: dict[str, Any]) -> None:
        self.cluster.request("DELETE", f"{self._path}/{external_id['name']}", options)

    def cancels(self) -> int:
        """Count the delete requests of clients."""
        return len(self.cluster.audit.deleted(self.resource, self.namespace))

    def fail(self, call: Any, fault: Any, times: int) -> None:
        """Have the proxy spoil the next requests of a kind."""
        objects = f"/namespaces/{self.namespace}/{self.resource}"
        method, path = {
            "submit": ("POST", rf"{objects}(\?|$)"),
            "status": ("GET", rf"{objects}/[^/?]+(\?|$)"),
            "find": ("GET", rf"{objects}\?"),
            "cancel": ("DELETE", rf"{objects}/"),
        }[call]
        self.proxy.fail(fault, method, path, times)

    @property
    def _path(self) -> str:
        return f"{_PATHS[self.resource]}/namespaces/{self.namespace}/{self.resource}"
