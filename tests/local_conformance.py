# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The local job service as the conformance suite sees it, and the operators that are put to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.testing.conformance import JobConformance, SeenJob, ServiceUnderTest
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from airflow_resumable.testing.soak.graded_jobs import NarrowedJobOperator
from tests.attempts import FAIL, SUCCEED, until_released


class LocalService(ServiceUnderTest):
    """A running local job service."""

    def __init__(self, service: JobService, gate: Path) -> None:
        self.url, self.gate = service.url, gate
        self._service, self.client = service, service.client()
        self._since = max((entry["seq"] for entry in service.requests()), default=0)
        self._forgotten: set[Any] = set()

    def jobs(self) -> list[SeenJob]:
        """Read the service's own log."""
        ids = [entry["job"] for entry in self._requests("submit") if entry["created"]]
        return [SeenJob(one, one not in self._forgotten and self._is_live(one)) for one in ids]

    def _requests(self, verb: str) -> list[dict[str, Any]]:
        return self._service.requests(verb, since_seq=self._since)

    def _is_live(self, external_id: Any) -> bool:
        return self.client.status(external_id)["finished_at"] is None

    def release(self) -> None:
        """Open the gate that running jobs wait for."""
        self.gate.touch()

    def forget(self, external_id: Any) -> None:
        """Let the service forget."""
        self.client.forget(external_id)
        self._forgotten.add(external_id)

    def cancels(self) -> int:
        """Count in the log."""
        return len(self._requests("cancel"))

    def stop_slowly(self, external_id: Any) -> None:
        """Cancel by a hand of the service's own, slowly."""
        self.client.add_fault("cancel", "slow_stop", seconds=60)
        self.client.cancel(external_id)

    def fail(self, call: Any, fault: Any, times: int) -> None:
        """Add a fault."""
        self.client.add_fault(call, "forbidden" if fault == "denied" else fault, times=times)


class LocalConformance(JobConformance):
    """The conformance of an operator at the local job service."""

    operator_class: type[LocalJobOperator] = LocalJobOperator

    @pytest.fixture(scope="class")
    @classmethod
    def process(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobService]:
        """Start a service."""
        with JobService(tmp_path_factory.mktemp("service")) as process:
            yield process

    @pytest.fixture
    def service(self, process: JobService, tmp_path: Path) -> Iterator[LocalService]:
        """Give a test its own view of the class's service, and leave it without faults."""
        service = LocalService(process, tmp_path / "gate")
        yield service
        service.client.clear_faults()
        service.release()

    def make(self, service: LocalService, outcome: Any) -> Any:
        """Make an operator."""
        commands = {"runs": until_released(service.gate), "succeeds": SUCCEED, "fails": FAIL}
        return self.operator_class(
            task_id="task",
            service_url=service.url,
            command=commands[outcome],
            retries=2,
            poll_interval=0.02,
        )


class NarrowedConformance(LocalConformance):
    """The same for a service that takes no token and lists by a mark."""

    operator_class = NarrowedJobOperator
