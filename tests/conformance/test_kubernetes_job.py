# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableKubernetesJobOperator` in the conformance suite, at a real API server and Job controller.

The node that runs the pods is a stand-in, see `airflow_resumable.testing.kubernetes.node`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.testing.conformance import JobConformance
from airflow_resumable.testing.kubernetes.cluster import KubernetesCluster
from airflow_resumable.testing.kubernetes.proxy import FaultProxy
from tests.kubernetes_job_attempts import JobService, make_job


class TestJob(JobConformance):
    """A Job under a name that the token completes."""

    short = 0.5

    @pytest.fixture(scope="class")
    @classmethod
    def proxy(cls, kubernetes: KubernetesCluster) -> FaultProxy:
        """Start a proxy in front of the API server."""
        return kubernetes.proxy()

    @pytest.fixture
    def service(
        self, kubernetes: KubernetesCluster, proxy: FaultProxy, tmp_path: Path
    ) -> Iterator[JobService]:
        """Give a test a namespace of its own."""
        service = JobService(kubernetes, proxy, tmp_path / "gate")
        yield service
        proxy.heal()
        service.release()

    def make(self, service: JobService, outcome: Any) -> Any:
        """Make an operator whose pods are kept."""
        return make_job(service, outcome, on_finish_action="keep_pod")
