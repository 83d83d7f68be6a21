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
from tests.bigquery_service import BigQueryService, serving


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
        yield from serving(bigquery, bigquery_proxy, tmp_path, monkeypatch)

    def make(self, service: BigQueryService, outcome: Any) -> Any:
        """Make an operator."""
        return service.operator(outcome, **self.arguments)


@pytest.mark.slow
class TestExactId(TestQuery):
    """A query whose first job has the provider's own id, by ``force_rerun=False``."""

    arguments = {"force_rerun": False}  # noqa: RUF012
