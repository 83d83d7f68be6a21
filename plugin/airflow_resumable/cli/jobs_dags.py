# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The operator behind a record: its Dag loaded, its templates rendered for the task instance, nothing run."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from airflow_resumable.cli.jobs_store import StoredJob

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

_KEPT_DAGS: Final = 50


class CannotBeChecked(Exception):
    """A task's service can't be asked; says why, and what to do."""


class _ReadOnly:
    """What a task has for a supervisor, for connections, variables and XComs: answers, takes no writes."""

    def __init__(self, supervisor: Any) -> None:
        self._supervisor = supervisor

    def send(self, msg: Any) -> Any:
        """Answer a question."""
        name = type(msg).__name__
        if not name.startswith(("Get", "Mask")):
            raise PermissionError(f"{name}: the jobs commands only read; nothing was written")
        return self._supervisor.send(msg)

    async def asend(self, msg: Any) -> Any:
        """Answer a question of async code."""
        return self.send(msg)


class Dags:
    """Loads operators out of the deployment's Dag bundles; the file of each Dag is run once.

    As ``airflow tasks render`` does, but only the Dag's own file is loaded, in the bundle version of the
    run, and nothing is written to the database. The last few Dags are kept, also those that don't load:
    ask for one Dag after the other.
    """

    def __init__(self) -> None:
        self._dags: OrderedDict[tuple[str, str | None], DAG | str] = OrderedDict()

    def context(self, job: StoredJob) -> Context:
        """Return the context of a task instance whose ``task`` is rendered.

        Raises:
            CannotBeChecked: The Dag or the task isn't there any more, or doesn't load or render.
        """
        from airflow.cli.commands.task_command import _get_template_context
        from airflow.models.dag import DagModel
        from airflow.models.taskinstance import TaskInstance
        from airflow.utils.session import create_session

        if job.ti_id is None:
            raise CannotBeChecked("the task instance is gone, so its templates can't be rendered")
        with create_session() as session:
            ti = session.get(TaskInstance, job.ti_id)
            if ti is None:
                raise CannotBeChecked("the task instance was replaced just now; try again")
            model = ti.dag_model
            if not isinstance(model, DagModel):
                raise CannotBeChecked(f"Airflow knows no Dag file of Dag {job.dag_id!r} any more")
            where = (model.bundle_name, ti.dag_run.bundle_version)
            file = model.relative_fileloc or model.fileloc or ""
            _ = ti.dag_run.consumed_asset_events
            task = self._task(job, *where, file)
            try:
                context = _get_template_context(ti, task)
            except Exception as error:
                raise CannotBeChecked(f"no context for the task: {said(error)}") from error
            max_tries = ti.max_tries
        runtime: Any = context["ti"]
        runtime.max_tries = max_tries
        try:
            task.render_template_fields(context)
        except Exception as error:
            raise CannotBeChecked(f"the task's templates can't be rendered here: {said(error)}") from error
        return context

    def _task(self, job: StoredJob, bundle: str, version: str | None, file: str) -> Any:
        dag = self._dag(job.dag_id, bundle, version, file)
        if job.task_id not in dag.task_dict:
            raise CannotBeChecked(f"Dag {job.dag_id!r} has no task {job.task_id!r} any more")
        return dag.task_dict[job.task_id].prepare_for_execution()

    def _dag(self, dag_id: str, bundle: str, version: str | None, file: str) -> DAG:
        key = (dag_id, version)
        if key not in self._dags:
            try:
                self._dags[key] = _load(dag_id, bundle, version, file)
            except CannotBeChecked as error:
                self._dags[key] = str(error)
        self._dags.move_to_end(key)
        if len(self._dags) > _KEPT_DAGS:
            self._dags.popitem(last=False)
        kept = self._dags[key]
        if isinstance(kept, str):
            raise CannotBeChecked(kept)
        return kept


def _load(dag_id: str, bundle_name: str, version: str | None, file: str) -> DAG:
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag

    try:
        bundles: Callable[[], Any] = DagBundlesManager
        bundle = bundles().get_bundle(bundle_name, version)
        bundle.initialize()
        path = Path(bundle.path, file)
        if not path.exists():
            raise CannotBeChecked(f"Dag {dag_id!r}: its file {os.fspath(path)!r} is not on this machine")
        bag = BundleDagBag(
            dag_folder=os.fspath(path),
            safe_mode=False,
            load_op_links=False,
            bundle_path=bundle.path,
            bundle_name=bundle_name,
        )
    except CannotBeChecked:
        raise
    except Exception as error:
        raise CannotBeChecked(f"Dag {dag_id!r} can't be loaded: {said(error)}") from error
    found: DAG | None = bag.dags.get(dag_id)
    if found is None:
        errors = "; ".join(text.strip().splitlines()[-1] for text in bag.import_errors.values())
        raise CannotBeChecked(
            f"Dag {dag_id!r} can't be loaded from {os.fspath(path)!r}: {errors or 'it is not defined there'}"
        )
    return found


@contextmanager
def supervised() -> Iterator[None]:
    """Give this process, for the length of the block, what a task process asks its supervisor.

    The answers come from Airflow's execution API, in this process and so from the metadata database.

    Raises:
        ImportError: This Airflow has no such thing, or another one.
    """
    import psutil
    import structlog
    from airflow.sdk.execution_time.supervisor import (
        InProcessSupervisorComms,
        InProcessTestSupervisor,
        set_supervisor_comms,
    )

    # Airflow's name for it says where Airflow uses it: in `dag.test()`.
    supervisor: Any = InProcessTestSupervisor
    comms: Any = InProcessSupervisorComms
    try:
        one = supervisor(
            id=UUID(int=0),
            pid=os.getpid(),
            process=psutil.Process(),
            process_log=structlog.get_logger(logger_name="task"),
            client=supervisor._api_client(),
        )
        one.comms = comms(supervisor=one)
    except (AttributeError, TypeError) as error:
        raise ImportError(f"Airflow's in-process supervisor is another one: {said(error)}") from error
    try:
        with set_supervisor_comms(_ReadOnly(one.comms)):
            yield
    finally:
        _stop_idle_workers()


def _stop_idle_workers() -> None:
    # Threads of the API's own pool aren't daemons: on a loaded machine a process that had printed its answer
    # was still there two minutes later.
    for thread in threading.enumerate():
        stop = getattr(thread, "stop", None)
        if type(thread).__module__.startswith("anyio.") and stop is not None:
            stop()


def said(error: BaseException) -> str:
    """Return an error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
