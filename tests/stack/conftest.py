# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One real Airflow, one crash controller and one job service for the whole test run."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.stack import AirflowStack
from tests import systems

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


@pytest.fixture(scope="session")
def busy_stack(
    tmp_path_factory: pytest.TempPathFactory, template_db: Path, crash_controller: CrashController
) -> Iterator[AirflowStack]:
    """A running Airflow for many runs at once: on SQLite its scheduler may die of a lock, so not there."""
    here = systems.SYSTEMS["postgres"].find() and find_spec("psycopg2") and find_spec("asyncpg")
    with AirflowStack(
        tmp_path_factory.mktemp("busy"),
        # Where much goes on at once, a heartbeat may be late; a time-out then hits a task that is well.
        env={**crash_controller.env, "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "12"},
        template_db=template_db,
        database="postgres" if here else "sqlite",
    ) as running:
        yield running


SITE_POLICY = """
from airflow_resumable.sdk import ResumePolicy


def task_policy(task):
    if "evictions cancel" in task.dag.tags and hasattr(task, "resume_policy"):
        task.resume_policy = ResumePolicy(on_infrastructure_stop="cancel")
"""


@pytest.fixture(scope="session")
def site_stack(
    tmp_path_factory: pytest.TempPathFactory, template_db: Path, crash_controller: CrashController
) -> Iterator[AirflowStack]:
    """Another running Airflow, whose site has a configuration and a cluster policy of its own."""
    home = tmp_path_factory.mktemp("site")
    # Airflow puts this folder of its home on the path.
    (home / "config").mkdir()
    (home / "config" / "airflow_local_settings.py").write_text(SITE_POLICY, encoding="utf-8")
    site = {
        "AIRFLOW__RESUMABLE__ON_USER_STOP": "keep",
        "AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": "True",
    }
    with AirflowStack(home, env={**crash_controller.env, **site}, template_db=template_db) as running:
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
