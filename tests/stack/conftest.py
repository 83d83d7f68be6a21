# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One real Airflow, one crash controller and one job service for the whole test run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.stack import AirflowStack

if TYPE_CHECKING:
    from airflow_resumable.testing.jobservice.process import JobService


@pytest.fixture(scope="session")
def template_db(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database, kept from one test run to the next."""
    cache = getattr(pytestconfig, "cache", None)
    folder: Path = cache.mkdir("airflow") if cache else tmp_path_factory.mktemp("template")
    return folder / "migrated.db"


@pytest.fixture(scope="session")
def crash_controller() -> Iterator[CrashController]:
    """The controller that every task of `stack` reports its crash points to."""
    with CrashController() as controller:
        yield controller


@pytest.fixture(scope="session")
def stack(
    tmp_path_factory: pytest.TempPathFactory, template_db: Path, crash_controller: CrashController
) -> Iterator[AirflowStack]:
    """A running Airflow; put Dags into it with `add_dag`."""
    home = tmp_path_factory.mktemp("airflow")
    with AirflowStack(home, env=crash_controller.env, template_db=template_db) as running:
        yield running


@pytest.fixture
def crash(crash_controller: CrashController) -> Iterator[CrashController]:
    """The crash controller without rules or events of another test."""
    crash_controller.reset()
    yield crash_controller
    crash_controller.reset()


@pytest.fixture(scope="session")
def jobservice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobService]:
    """A running job service."""
    from airflow_resumable.testing.jobservice.process import JobService

    with JobService(tmp_path_factory.mktemp("jobservice")) as running:
        yield running
