# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""How often BigQuery is asked about a job that runs: by this package's operator, and by the provider's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.google.cloud.operators.bigquery import BigQueryInsertJobOperator

from airflow_resumable.operators.bigquery import ResumableBigQueryInsertJobOperator
from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator, until
from airflow_resumable.testing.http_faults import HttpFaultProxy
from airflow_resumable.testing.task_tries import TaskTries
from tests.bigquery_service import BigQueryService, defaults, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*job_id_path:Warning", "ignore:.*use_legacy_sql:Warning"),
]
SECONDS = 40.0


@pytest.fixture
def service(
    bigquery: BigQueryEmulator,
    bigquery_proxy: HttpFaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[BigQueryService]:
    """Lead Google's client to the proxy."""
    yield from serving(bigquery, bigquery_proxy, tmp_path, monkeypatch)


def looks(service: BigQueryService, kind: Any, gate: Path) -> int:
    """Return the requests that a job of some length is watched by."""
    before = len(service.calls())
    opening = threading.Timer(SECONDS, gate.touch)
    opening.start()
    try:
        TaskTries().run(kind(**defaults(until(gate))))
    finally:
        opening.cancel()
    return sum(call.method == "GET" for call in service.calls()[before:])


def test_a_query_is_asked_for_no_more_often_than_by_the_provider(
    service: BigQueryService, tmp_path: Path
) -> None:
    """In two thirds of a minute; BigQuery itself keeps the requests waiting."""
    ours = looks(service, ResumableBigQueryInsertJobOperator, tmp_path / "ours")
    theirs = looks(service, BigQueryInsertJobOperator, tmp_path / "theirs")
    assert ours <= theirs
