# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A metadata database with one Dag, a run of it, and the jobs commands on that run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_resumable.testing.jobservice.process import JobService
from tests import metadata
from tests.jobs_commands import Jobs


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobService]:
    """One job service for all tests of this folder; each run has families of its own."""
    with JobService(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="package")
def dag(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Dag in a migrated database."""
    cache = getattr(pytestconfig, "cache", None)
    folder: Path = cache.mkdir("metadata") if cache else tmp_path_factory.mktemp("metadata")
    metadata.migrate(folder / "migrated.db")
    metadata.add_dag("nightly")
    return "nightly"


@pytest.fixture
def run(dag: str, service: JobService) -> metadata.Run:
    """A run whose task instances have no record and no state yet."""
    service.client().clear_faults()
    return metadata.Run(dag, service)


@pytest.fixture
def jobs(run: metadata.Run, capsys: pytest.CaptureFixture[str]) -> Jobs:
    """The commands, on `run`."""
    return Jobs(run, capsys)
