# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableBigQueryInsertJobOperator` in the conformance suite, by Google's own client, at an emulator.

What the emulator lacks is restored by the layer of `airflow_resumable.testing.bigquery.server`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator
from airflow_resumable.testing.conformance import JobConformance
from airflow_resumable.testing.http_faults import HttpFaultProxy
from tests import bigquery_service as bq
from tests.bigquery_service import BigQueryService


class TestQuery(JobConformance):
    """A query under an id that the token completes."""

    short = 0.5
    arguments: dict[str, Any] = {}  # noqa: RUF012 - as a class attribute that subclasses replace

    @pytest.fixture
    def service(
        self,
        bigquery: BigQueryEmulator,
        bigquery_proxy: HttpFaultProxy,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Iterator[BigQueryService]:
        """Lead Google's client to the proxy."""
        monkeypatch.setenv(bq.EMULATOR_HOST, bigquery_proxy.url)
        monkeypatch.setenv(bq.CONNECTION, bq.connection(bigquery.project))
        service = BigQueryService(bigquery, bigquery_proxy, tmp_path / "gate")
        yield service
        bigquery_proxy.heal()
        service.release()

    def make(self, service: BigQueryService, outcome: Any) -> Any:
        """Make an operator."""
        return service.operator(outcome, **self.arguments)


class TestExactId(TestQuery):
    """A query whose first job has the provider's own id, by ``force_rerun=False``."""

    arguments = {"force_rerun": False}  # noqa: RUF012
