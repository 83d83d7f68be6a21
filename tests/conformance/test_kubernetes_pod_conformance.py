# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableKubernetesPodOperator` in the conformance suite, at a real API server.

The node that runs the pods is a stand-in, see `airflow_resumable.testing.kubernetes.node`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.operators.kubernetes import ResumableKubernetesPodOperator
from airflow_resumable.testing.conformance import JobConformance
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from tests.kubernetes_service import KubernetesService, until


class TestPod(JobConformance):
    """A pod under a name that the token completes."""

    short = 0.5
    arguments: dict[str, Any] = {}  # noqa: RUF012 - as a class attribute that subclasses replace

    @pytest.fixture(scope="class")
    @classmethod
    def proxy(cls, kubernetes: KubernetesCluster) -> FaultProxy:
        """Start a proxy in front of the API server."""
        return kubernetes.proxy()

    @pytest.fixture
    def service(
        self, kubernetes: KubernetesCluster, proxy: FaultProxy, tmp_path: Path
    ) -> Iterator[KubernetesService]:
        """Give a test a namespace of its own."""
        service = KubernetesService(kubernetes, proxy, tmp_path / "gate")
        yield service
        proxy.heal()
        service.release()

    def make(self, service: KubernetesService, outcome: Any) -> Any:
        """Make an operator whose pod is kept, so that every delete is a cancel."""
        commands = {"runs": until(service.gate), "succeeds": ["true"], "fails": ["sh", "-c", "exit 3"]}
        return ResumableKubernetesPodOperator(
            task_id="task",
            name="work",
            namespace=service.namespace,
            image="any",
            cmds=commands[outcome],
            config_file=service.kubeconfig(),
            kubernetes_conn_id=None,
            get_logs=False,
            log_events_on_startup=False,
            on_finish_action="keep_pod",
            termination_grace_period=1,
            startup_check_interval_seconds=0.05,
            base_container_status_polling_interval=0.05,
            poll_interval=0.05,
            retries=2,
            **self.arguments,
        )
