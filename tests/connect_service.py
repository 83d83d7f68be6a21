# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A real Spark Connect server as tests see it: its own lists are what counts."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from airflow_resumable.jobs.errors import JobNotFound
from airflow_resumable.testing.conformance import SeenJob, ServiceUnderTest
from airflow_resumable.testing.connect_gate import Gate, asking
from airflow_resumable.testing.connect_proxy import ConnectProxy
from airflow_resumable.testing.spark_connect import SparkConnectServer
from tests.connect_attempts import USER

_CALLS = {
    "submit": ("ExecutePlan",),
    "status": ("GetStatus", "ReattachExecute"),
    "find": ("GetStatus", "ReattachExecute"),
    "cancel": ("Interrupt",),
}


class ConnectService(ServiceUnderTest):
    """The server, as the conformance suite sees it."""

    def __init__(self, server: SparkConnectServer, proxy: ConnectProxy) -> None:
        self.server, self.proxy, self.gate = server, proxy, Gate(server.port)
        self._before = len(server.operations(USER))

    @property
    def operations(self) -> list[str]:
        """Every operation that was started since this view was made, oldest first."""
        return self.server.operations(USER)[self._before :]

    def jobs(self) -> list[SeenJob]:
        """Read the server's own log; an operation that ran more than one Spark job counts more than once."""
        ran = Counter(job.operation for job in self.server.jobs())
        return [SeenJob(one, self._is_live(one)) for one in self.operations for _ in range(max(1, ran[one]))]

    def _is_live(self, operation: str) -> bool:
        with asking(self.server.port, USER) as client:
            try:
                return str(client.state(operation)) == "RUNNING"
            except JobNotFound:
                # Dropped; what it had started may take a moment longer.
                return any(
                    job.operation == operation and job.state == "RUNNING" for job in self.server.jobs()
                )

    def release(self) -> None:
        """Open the gate that running statements wait for."""
        self.gate.open()

    def forget(self, external_id: Any) -> None:
        """Have the server drop the session."""
        with asking(self.server.port, USER) as client:
            client.release(external_id)

    def cancels(self) -> int:
        """Count at the gateway."""
        return self.proxy.requests["Interrupt"]

    def fail(self, call: Any, fault: Any, times: int) -> None:
        """Have the gateway break requests."""
        self.proxy.fail(_CALLS[call], fault, times)


class Pause:
    """Holds one request, or one answer, at the gateway; given to it as `asked` or as `held`.

    Args:
        method: The request's.
        number: Which one, counted from 1.
    """

    def __init__(self, method: str, number: int = 1) -> None:
        self._method, self._number = method, number
        self._at, self._over = threading.Event(), threading.Event()

    def __call__(self, method: str) -> None:
        """Wait, if it is the one."""
        if method == self._method:
            self._number -= 1
            if self._number == 0:
                self._at.set()
                self._over.wait(60.0)

    def wait(self) -> None:
        """Wait until it has come.

        Raises:
            AssertionError: It didn't within a minute.
        """
        assert self._at.wait(60.0), f"{self._method} was not asked so often"

    def end(self) -> None:
        """Let it go on."""
        self._over.set()
