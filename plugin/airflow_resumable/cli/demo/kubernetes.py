# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo on a real Kubernetes API server, whose audit log is what counts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from airflow_resumable.cli.demo.cases import (
    BEFORE_ID,
    CLEAR_DONE,
    CLEAR_LIVE,
    LOST_REPLY,
    MARK_FAILED,
    MID_POLL,
    SIDES,
    SIGTERM,
    STATUS_503,
    SUPERVISOR,
    TIME_OUT,
    Case,
)
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.testing.demo import KUBERNETES_JOBS
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster

if TYPE_CHECKING:
    from airflow_resumable.testing.kubernetes.proxy import Fault, FaultProxy

CASES = (
    BEFORE_ID,
    MID_POLL,
    SUPERVISOR,
    SIGTERM,
    LOST_REPLY,
    STATUS_503,
    CLEAR_DONE,
    CLEAR_LIVE,
    MARK_FAILED,
    TIME_OUT,
)
_SPOILED: dict[str, tuple[Fault, str, int]] = {
    LOST_REPLY.name: ("lost_reply", "POST", 1),
    STATUS_503.name: ("unavailable", "GET", 3),
}


class KubernetesJobs:
    """An API server with its controllers, and a stand-in for the node.

    Args:
        folder: Where their data and the jobs' gates are kept.
    """

    name = "a Kubernetes API server (the node that runs the pods is a stand-in)"
    stock = "the Kubernetes provider's KubernetesPodOperator"
    ours = "ResumableKubernetesPodOperator"
    oracle = "the API server's audit log"
    cases: Sequence[Case] = CASES
    dag_file = KUBERNETES_JOBS
    at_once = 5
    slots = 8
    patience = 120.0
    environment: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self._cluster = KubernetesCluster(folder / "cluster")
        self._namespaces: dict[tuple[str, str], str] = {}
        self._hits: dict[tuple[str, str], Callable[[], int]] = {}
        self._spoiled: dict[tuple[str, str], float] = {}
        self._version = ""

    def __enter__(self) -> Self:
        """Start the cluster, with a namespace for each lane."""
        with ExitStack() as starting:
            cluster = starting.enter_context(self._cluster)
            self._version = str(cluster.request("GET", "/version")["gitVersion"]).removeprefix("v")
            self._proxy: FaultProxy = cluster.proxy()
            # Written once: a worker that starts reads its file at any time.
            self._direct = str(cluster.kubeconfig())
            self._by_proxy = str(cluster.kubeconfig(server=self._proxy.url))
            for case in CASES:
                for side in SIDES:
                    self._namespaces[case.name, side] = cluster.namespace(f"{case.name}-{side}")
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything, the pods' processes included."""
        self._running.close()

    @property
    def versions(self) -> Mapping[str, str]:
        """Kubernetes' and the provider's."""
        return {
            "Kubernetes": self._version,
            "Kubernetes provider": version("apache-airflow-providers-cncf-kubernetes"),
        }

    def dag_id(self, case: Case) -> str:
        """Return the Dag whose runs are the cases; a time-out needs one of its own."""
        return "demo_kubernetes_time_out" if case is TIME_OUT else "demo_kubernetes"

    def prepare(self, lane: Lane) -> dict[str, Any]:
        """Return the lane's namespace, gate and way to the API server; a lost reply is due at once."""
        if lane.case.name in _SPOILED and lane.case.point is None:
            self.spoil(lane)
        return {
            "namespace": self._namespaces[lane.key],
            "kubeconfig": self._by_proxy if lane.case.name in _SPOILED else self._direct,
            "gate": str(self._gate(lane)),
        }

    def spoil(self, lane: Lane) -> None:
        """Make the proxy spoil the next requests about the pods of the lane's namespace."""
        fault, method, times = _SPOILED[lane.case.name]
        path = f"/namespaces/{re.escape(self._namespaces[lane.key])}/pods"
        self._hits[lane.key] = self._proxy.fail(fault, method, path, times)

    def spoiled_at(self, lane: Lane) -> float | None:
        """Return when it was seen that the proxy had spoiled as many as it should."""
        _, _, times = _SPOILED[lane.case.name]
        hits = self._hits.get(lane.key)
        if hits is None or hits() < times:
            return None
        return self._spoiled.setdefault(lane.key, time.time())

    def tell(self, lane: Lane) -> None:
        """Open the gate that the lane's pods wait for."""
        self._gate(lane).touch()

    def decision(self, lane: Lane, try_number: int) -> str:
        """Say whether there is another pod by now, or a delete request."""
        jobs, _, cancels = self.counts(lane)
        if jobs != 1:
            return f"starts job {jobs}" if jobs else "has no job"
        if cancels:
            return "has cancelled job 1"
        return "keeps job 1" if lane.case.recorded else "finds job 1"

    def counts(self, lane: Lane) -> tuple[int, int, int]:
        """Count the lane's namespace in the audit log: pods created, create requests, delete requests."""
        audit, namespace = self._cluster.audit, self._namespaces[lane.key]
        return (
            len(audit.created("pods", namespace)),
            audit.count("create", "pods", namespace),
            len(audit.deleted("pods", namespace)),
        )

    def _gate(self, lane: Lane) -> Path:
        return self._folder / f"{lane.case.name}-{lane.side}.gate"
