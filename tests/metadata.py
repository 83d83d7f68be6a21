# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A real metadata database without any Airflow process: runs, task instances and records put in by hand."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from airflow_resumable.jobs.record import JobRecord, Owner
from airflow_resumable.jobs.token import TokenMint
from airflow_resumable.testing.airflow_database import TemplateDatabase
from airflow_resumable.testing.jobservice.process import JobService

_numbers = itertools.count(1)

DAG = """
    from airflow.sdk import DAG, task
    from airflow_resumable.testing.local_job import LocalJobOperator
    from tests.attempts import TokenOnlyJobOperator

    with DAG("{dag}", schedule=None, params={{"service": "", "command": []}}):
        job = dict(service_url="{{{{ params.service }}}}", command=["true"], poll_interval=0.02, retries=2)
        LocalJobOperator(task_id="job", **job)
        TokenOnlyJobOperator(task_id="unlisted", **job)
        LocalJobOperator(task_id="unrendered", **{{**job, "command": ["{{{{ no_such.thing }}}}"]}})
        LocalJobOperator.partial(task_id="mapped", **{{**job, "command": ["true"]}}).expand(
            doc_md=["a", "b"]
        )

        @task
        def function():
            pass

        function()
"""


def migrate(cache: Path) -> None:
    """Give this process's Airflow its database, as ``airflow db migrate`` makes it; made once per version."""
    home = Path(os.environ["AIRFLOW_HOME"])
    installed = sorted(f"{one.name} {one.version}" for one in distributions() if "airflow" in one.name)
    template = TemplateDatabase(cache, str(installed))
    database = home / "airflow.db"
    if database.exists() or template.copy_to(database):
        return
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)
    template.keep(database)


def add_dag(dag_id: str, source: str = DAG) -> Path:
    """Write a Dag file and make it known, as the Dag processor does; return the file."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db

    folder = Path(os.environ["AIRFLOW_HOME"], "dags")
    folder.mkdir(exist_ok=True)
    file = folder / f"{dag_id}.py"
    file.write_text(textwrap.dedent(source.format(dag=dag_id)), encoding="utf-8")
    manager: Callable[[], Any] = DagBundlesManager
    manager().sync_bundles_to_db()
    bag = BundleDagBag(dag_folder=str(file), bundle_path=folder, bundle_name="dags-folder", safe_mode=False)
    assert bag.import_errors == {}
    sync_bag_to_db(bag, "dags-folder", None)
    return file


@dataclass
class Run:
    """One Dag run whose jobs are those of a service.

    Attributes:
        dag_id: A Dag that `add_dag` made known.
        service: Where its jobs run.
        installation: ``[resumable] installation_id``, or an empty string.
    """

    dag_id: str
    service: JobService
    installation: str = ""
    run_id: str = field(default_factory=lambda: f"run{next(_numbers)}")

    def __post_init__(self) -> None:
        """Create the run and its task instances."""
        from airflow.models.serialized_dag import SerializedDagModel
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState
        from airflow.utils.types import DagRunTriggeredByType, DagRunType

        self.started = datetime.now(UTC)
        dag: Any = SerializedDagModel.get_dag(self.dag_id)
        with create_session() as session:
            dag.create_dagrun(
                run_id=self.run_id,
                run_after=self.started,
                start_date=self.started,
                conf={"service": self.service.url},
                run_type=DagRunType.MANUAL,
                triggered_by=DagRunTriggeredByType.TEST,
                state=DagRunState.RUNNING,
                session=session,
            )

    def family(self, task: str, map_index: int = -1) -> str:
        """Return the family of a task instance's jobs."""
        mint = TokenMint(self.installation, self.dag_id, self.run_id, task, map_index, self.started)
        return mint.family

    def token(self, task: str = "job", generation: int = 1, map_index: int = -1) -> str:
        """Return the token of one generation."""
        mint = TokenMint(self.installation, self.dag_id, self.run_id, task, map_index, self.started)
        return mint.token(2, generation)

    def start(
        self,
        task: str = "job",
        generation: int = 1,
        command: tuple[str, ...] = ("sleep", "600"),
        map_index: int = -1,
    ) -> str:
        """Start a job of a task instance at the service and return its id."""
        token = self.token(task, generation, map_index)
        job = self.service.client().submit(list(command), token=token, family=self.family(task, map_index))
        return str(job["id"])

    def record(
        self,
        external_id: Any,
        phase: str = "submitted",
        *,
        task: str = "job",
        generation: int = 1,
        map_index: int = -1,
        key: str = "local_job_id",
        ids: tuple[Any, ...] | None = None,
        unsettled: tuple[str, ...] = (),
    ) -> JobRecord:
        """Put a record into the store and return it."""
        now = datetime.now(UTC)
        owner = Owner(try_number=1, started_at=now, ti_id="00000000-0000-0000-0000-000000000001")
        known = ids if ids is not None else () if external_id is None else (external_id,)
        record = JobRecord(
            generation=generation,
            token=self.token(task, generation, map_index),
            phase=phase,  # type: ignore[arg-type]
            external_id=external_id,
            ids=known,
            unsettled=unsettled,
            spec="0" * 16,
            max_tries=2,
            owner=owner,
            intent_at=now,
            last_status="RUNNING" if phase == "submitted" else None,
            last_seen_at=now if phase == "submitted" else None,
        )
        self.put(f"resumable.{key}", record.dump(), task=task, map_index=map_index)
        return record

    def put(self, key: str, value: Any, *, task: str = "job", map_index: int = -1) -> None:
        """Put any value into the store."""
        from airflow.state import TaskScope
        from airflow.state.metastore import MetastoreBackend

        # From Airflow 3.4 on a mapped task instance lies in a region.
        region = getattr(self._task_instance(task, map_index), "region_id", None)
        more: dict[str, Any] = {} if region is None else {"region_id": region}
        scope = TaskScope(self.dag_id, self.run_id, task, map_index, **more)
        MetastoreBackend().set(scope, key, json.dumps(value))

    def _task_instance(self, task: str, map_index: int) -> Any:
        from airflow.models.taskinstance import TaskInstance
        from airflow.utils.session import create_session
        from sqlalchemy import select

        ti: Any = TaskInstance
        with create_session() as session:
            query = select(ti).where(ti.run_id == self.run_id, ti.task_id == task, ti.map_index == map_index)
            found = session.scalars(query).one_or_none()
            if found is not None:
                session.expunge(found)
            return found

    def stored(self, *, task: str = "job", map_index: int = -1) -> dict[str, Any]:
        """Return all that the store holds of a task instance."""
        from airflow.models.task_state_store import TaskStateStoreModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        model: Any = TaskStateStoreModel
        with create_session() as session:
            rows = session.scalars(select(model).where(model.run_id == self.run_id, model.task_id == task))
            return {row.key: json.loads(row.value) for row in rows if _index(row) == map_index}

    def set_state(self, state: str | None, *, task: str = "job", map_index: int = -1, tries: int = 1) -> None:
        """Put a task instance into a state."""
        from airflow.models.taskinstance import TaskInstance
        from airflow.utils.session import create_session
        from sqlalchemy import select

        ti: Any = TaskInstance
        with create_session() as session:
            query = select(ti).where(ti.run_id == self.run_id, ti.task_id == task, ti.map_index == map_index)
            one = session.scalars(query).one()
            one.state, one.try_number, one.max_tries = state, tries, 2
            one.start_date = datetime.now(UTC) - timedelta(seconds=1)


def _index(row: Any) -> int:
    return int(row.region_index if hasattr(row, "region_index") else row.map_index)


def _backends() -> tuple[type, type]:
    from airflow.state import BaseStoreBackend
    from airflow.state.metastore import MetastoreBackend

    class FileBackend(MetastoreBackend):
        """Keeps the values of workers in files, whose paths are the references."""

        def serialize_task_state_store_to_ref(self, *, value: Any, key: str, scope: Any) -> str:
            """Write the value to the file of the last read reference."""
            Path(self.last).write_text(json.dumps(value), encoding="utf-8")
            return self.last

        def deserialize_task_state_store_from_ref(self, stored: str) -> Any:
            """Read the value."""
            self.last = stored
            return json.loads(Path(stored).read_text(encoding="utf-8"))

    class ElsewhereBackend(BaseStoreBackend):
        """Keeps everything somewhere else."""

        __abstractmethods__: Any = frozenset()

    return FileBackend, ElsewhereBackend


def __getattr__(name: str) -> Any:
    # Classes of Airflow's own, which must not be imported before the tests' settings are in place.
    for backend in _backends():
        if backend.__name__ == name:
            return backend
    raise AttributeError(name)
