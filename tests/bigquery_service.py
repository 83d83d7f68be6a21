# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The BigQuery emulator as the tests see it: its own log counts, a proxy before it spoils requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.operators.bigquery import ResumableBigQueryInsertJobOperator
from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator, Call, until
from airflow_resumable.testing.conformance import SeenJob, ServiceUnderTest
from airflow_resumable.testing.http_faults import HttpFaultProxy, path

CONNECTION = "AIRFLOW_CONN_BIGQUERY_TEST"
EMULATOR_HOST = "BIGQUERY_EMULATOR_HOST"
"""Where Google's own client looks for an emulator."""
SUCCEEDS = "SELECT 1 AS one"
FAILS = "SELECT * FROM nowhere.missing"


def connection(project: str, **extra: Any) -> str:
    """Return a Google connection without keys, as an environment variable wants it."""
    told = {"is_anonymous": True, "project": project, **extra}
    return json.dumps({"conn_type": "google_cloud_platform", "extra": told})


class BigQueryService(ServiceUnderTest):
    """What one test does with the emulator.

    Args:
        emulator: The emulator.
        proxy: What the operators talk to.
        gate: What running jobs wait for.
    """

    def __init__(self, emulator: BigQueryEmulator, proxy: HttpFaultProxy, gate: Path) -> None:
        self.emulator, self.proxy, self.gate = emulator, proxy, gate
        self._since = len(emulator.calls())

    def calls(self) -> list[Call]:
        """Return the requests since this test has begun."""
        return self.emulator.calls()[self._since :]

    def inserted(self) -> list[Call]:
        """Return the jobs that were started since."""
        return [call for call in self.calls() if call.is_insert and call.status == 200]

    def jobs(self) -> list[SeenJob]:
        """Read the emulator's own log."""
        return [SeenJob(call.job_id, self._is_live(call)) for call in self.inserted()]

    def _is_live(self, call: Call) -> bool:
        job = self.emulator.job(call.job_id, call.location)
        return job is not None and job["status"]["state"] != "DONE"

    def release(self) -> None:
        """Open the gate."""
        self.gate.touch()

    def forget(self, external_id: Any) -> None:
        """Delete the job's metadata."""
        call = next(one for one in self.inserted() if one.job_id == external_id)
        self.emulator.forget(call.job_id, call.location)

    def cancels(self) -> int:
        """Count the cancel requests."""
        return sum(call.is_cancel for call in self.calls())

    def fail(self, call: Any, fault: Any, times: int) -> None:
        """Have the proxy spoil the next requests of a kind."""
        method, pattern = {
            "submit": ("POST", r"/jobs(\?|$)"),
            "status": ("GET", r"/jobs/[^/?]+"),
            "find": ("GET", r"/jobs/[^/?]+"),
            "cancel": ("POST", r"/cancel"),
        }[call]
        self.proxy.fail(fault, path(method, pattern), times=times)

    def operator(self, outcome: str, **arguments: Any) -> ResumableBigQueryInsertJobOperator:
        """Make an operator whose query runs until the gate is open, succeeds at once or fails at once."""
        sql = {"runs": until(self.gate), "succeeds": SUCCEEDS, "fails": FAILS}[outcome]
        subject = ResumableBigQueryInsertJobOperator(**{**defaults(sql), **arguments})
        subject.long_poll = 0.3
        return subject


def defaults(sql: str) -> dict[str, Any]:
    """Return the arguments of an operator, this package's or the provider's."""
    return {
        "task_id": "task",
        "configuration": {"query": {"query": sql, "useLegacySql": False}},
        "gcp_conn_id": "bigquery_test",
        "location": "US",
        "poll_interval": 0.05,
        "retries": 2,
    }


def serving(
    emulator: BigQueryEmulator, proxy: HttpFaultProxy, folder: Path, patch: pytest.MonkeyPatch
) -> Iterator[BigQueryService]:
    """Lead Google's client to the proxy for one test, and let go of what it has left."""
    patch.setenv(EMULATOR_HOST, proxy.url)
    patch.setenv(CONNECTION, connection(emulator.project))
    service = BigQueryService(emulator, proxy, folder / "gate")
    yield service
    proxy.heal()
    service.release()
