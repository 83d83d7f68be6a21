# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Every job record of a deployment, read from the metadata database as other ``airflow`` commands read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from airflow_resumable.integration.server import NO_STATE
from airflow_resumable.jobs.errors import RecordUnreadable
from airflow_resumable.jobs.record import JobRecord, key_for, load

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

PAGE: Final = 500
"""Rows that are held at once."""
GONE: Final = "gone"
"""The state of a task instance that is no longer on file."""
ENDED: Final = frozenset({"success", "failed", "skipped", "upstream_failed", "removed", GONE})
"""States that Airflow leaves only when a user clears the task. A task with retries left is `up_for_retry`."""

_REFERENCE: Final = "__airflow_state_ref__"
_PREFIX: Final = key_for("")


class StoreUnlistable(Exception):
    """The records don't lie where they could be listed; says where they lie and what to do."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which records; None for any.

    Attributes:
        state: ``live``, ``ended`` or ``all``, by the record's last word.
    """

    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    state: str = "all"

    def let_through(self, job: StoredJob) -> bool:
        """Say whether a job's record has the wanted last word."""
        return self.state == "all" or (self.state == "live") == job.may_be_live


@dataclass(frozen=True, slots=True)
class StoredJob:
    """One record as it lies in the store, with the state of its task instance.

    Attributes:
        row: The row's id in the store's table.
        key: The operator's `external_id_key`.
        region: Airflow 3.4's region of a mapped task; None up to 3.3, and outside of one.
        raw: The row's text, to tell whether it was changed since.
        record: What it says; None when it can't be read.
        error: Why it can't.
        task_state: The task instance's state, `NO_STATE` or `GONE`.
        ti_id: The task instance's id, None when it is gone.
    """

    row: int
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    key: str
    region: UUID | None
    raw: str
    record: JobRecord | None
    error: str | None
    task_state: str
    try_number: int | None
    max_tries: int | None
    ti_id: UUID | None

    @property
    def may_be_live(self) -> bool:
        """Whether the record's last word isn't the job's end."""
        return self.record is None or self.record.phase in ("intent", "submitted")

    @property
    def is_reported_success(self) -> bool:
        """Whether the job has succeeded, and Airflow has the task's success on file."""
        return self.record is not None and self.record.phase == "succeeded" and self.record.reported

    @property
    def task_has_ended(self) -> bool:
        """Whether no attempt will follow unless a user clears the task."""
        return self.task_state in ENDED

    @property
    def name(self) -> str:
        """The task instance, as it is named in messages."""
        index = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"{self.dag_id} / {self.run_id} / {self.task_id}{index}"


def stored_jobs(filters: Filters, *, by_dag: bool = False) -> Iterator[StoredJob]:
    """Yield every record that passes the filters, oldest row first, a page of rows at a time.

    Args:
        filters: Which records.
        by_dag: One Dag after the other, for who has to load each.

    Raises:
        StoreUnlistable: ``[state_store] backend`` keeps the state outside of the metadata database.
    """
    _require_metastore()
    if not by_dag:
        yield from _paged(filters)
        return
    for dag_id in _dag_ids(filters):
        yield from _paged(replace(filters, dag_id=dag_id))


def _paged(filters: Filters) -> Iterator[StoredJob]:
    from airflow.utils.session import create_session

    last = 0
    while True:
        with create_session() as session:
            page = _read(session, filters, after=last)
        for job in page:
            if filters.let_through(job):
                yield job
        if len(page) < PAGE:
            return
        last = page[-1].row


def _dag_ids(filters: Filters) -> list[str]:
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    if filters.dag_id is not None:
        return [filters.dag_id]
    model: Any = TaskStateStoreModel
    of_ours = model.key.startswith(_PREFIX, autoescape=True)
    with create_session() as session:
        return list(session.scalars(select(model.dag_id).where(of_ours).distinct().order_by(model.dag_id)))


def reread(job: StoredJob, session: Session) -> StoredJob | None:
    """Return what the store holds of a job now, or None when its record is gone.

    The row is locked until the session's end, so that no attempt can write the record. SQLite has no row
    locks: there an attempt may write all the same.

    Args:
        job: The job as it was read.
        session: Holds the lock.
    """
    found = _read(session, Filters(), row=job.row, lock=True)
    return found[0] if found else None


def parent_value(job: StoredJob) -> Any:
    """Return the value under the parent operator's own key, or None."""
    from airflow.utils.session import create_session

    with create_session() as session:
        row = _neighbour(session, job, job.key)
        return None if row is None else _resolved(row.value)


def replace_record(session: Session, job: StoredJob, record: JobRecord, drop: tuple[str, ...]) -> None:
    """Write a record in the place of `job`'s, and delete other keys of the task instance.

    Args:
        session: Holds the lock that `reread` took.
        job: The job as it is stored now.
        record: The new record; never expires, like the old one.
        drop: Keys to delete, where they are there.
    """
    row = _neighbour(session, job, key_for(job.key))
    if row is None:
        raise LookupError(f"{job.name}: the record is gone")
    row.value = json.dumps(_offloaded(job, record.dump()))
    row.updated_at = datetime.now(UTC)
    backend = _worker_backend()
    for key in drop:
        extra = _neighbour(session, job, key)
        if extra is not None:
            session.delete(extra)
            if backend is not None:
                backend.delete(_scope(job), key)


def _require_metastore() -> None:
    from airflow.configuration import conf
    from airflow.state import resolve_state_backend
    from airflow.state.metastore import MetastoreBackend

    try:
        backend = resolve_state_backend()
    except Exception as error:
        raise StoreUnlistable(
            f"[state_store] backend can't be loaded here: {type(error).__name__}: {error}. Correct it, or "
            "run this where it can be imported"
        ) from error
    if not issubclass(backend, MetastoreBackend):
        raise StoreUnlistable(
            f"[state_store] backend is {conf.get('state_store', 'backend')!r}: it keeps the task state "
            "outside of the metadata database, and Airflow's interface to it can't list. Look at a "
            "task's record with that backend's own means; the services' own lists show the jobs"
        )


def _read(
    session: Session, filters: Filters, *, after: int = 0, row: int | None = None, lock: bool = False
) -> list[StoredJob]:
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import and_, select

    model: Any = TaskStateStoreModel
    ti: Any = TaskInstance
    # Airflow 3.4 has regions, of which a mapped task may have several in one run.
    regional = hasattr(model, "region_id")
    index = model.region_index if regional else model.map_index
    same_ti = [
        ti.dag_id == model.dag_id,
        ti.run_id == model.run_id,
        ti.task_id == model.task_id,
        ti.map_index == index,
        *([ti.region_id == model.region_id] if regional else []),
    ]
    query = (
        select(model, ti.id, ti.state, ti.try_number, ti.max_tries)
        .outerjoin(ti, and_(*same_ti))
        .where(model.key.startswith(_PREFIX, autoescape=True), model.id > after)
        .order_by(model.id)
        .limit(PAGE)
    )
    if row is not None:
        query = query.where(model.id == row)
    wanted = (
        (model.dag_id, filters.dag_id),
        (model.run_id, filters.run_id),
        (model.task_id, filters.task_id),
        (index, filters.map_index),
    )
    for column, value in wanted:
        if value is not None:
            query = query.where(column == value)
    if lock:
        query = query.with_for_update(of=model)
    return [_stored(*found) for found in session.execute(query).all()]


def _stored(row: Any, ti_id: Any, state: Any, try_number: int | None, max_tries: int | None) -> StoredJob:
    record, error = None, None
    region = getattr(row, "region_id", None)
    try:
        record = load(_resolved(row.value), row.key)
    except (RecordUnreadable, StoreUnlistable, ValueError) as problem:
        error = str(problem)
    except Exception as problem:
        # A backend of the site's own may raise anything; one record mustn't hide the others.
        error = f"the state store's worker backend failed: {type(problem).__name__}: {problem}"
    return StoredJob(
        row=row.id,
        dag_id=row.dag_id,
        run_id=row.run_id,
        task_id=row.task_id,
        map_index=row.region_index if hasattr(row, "region_index") else row.map_index,
        key=row.key.removeprefix(_PREFIX),
        region=region if region is not None and region.int else None,
        raw=row.value,
        record=record,
        error=error,
        task_state=GONE if ti_id is None else str(getattr(state, "value", state or NO_STATE)),
        try_number=try_number,
        max_tries=max_tries,
        ti_id=ti_id,
    )


def _neighbour(session: Session, job: StoredJob, key: str) -> Any:
    from airflow.models.task_state_store import TaskStateStoreModel
    from sqlalchemy import select

    model: Any = TaskStateStoreModel
    own = session.get(model, job.row)
    if own is None:
        return None
    query = select(model).where(
        model.dag_run_id == own.dag_run_id, model.task_id == own.task_id, model.key == key
    )
    for column in ("map_index", "region_index", "region_id"):
        if hasattr(model, column):
            query = query.where(getattr(model, column) == getattr(own, column))
    return session.scalars(query).one_or_none()


def _resolved(text: str) -> Any:
    """Return the value behind a row: its own, or the one that it refers to."""
    value = json.loads(text)
    if not isinstance(value, dict) or _REFERENCE not in value:
        return value
    backend = _worker_backend()
    if backend is None:
        raise StoreUnlistable(
            f"the value lies outside of the metadata database, at {value[_REFERENCE]!r}: run this where "
            "[workers] state_store_backend is configured as on the workers"
        )
    return backend.deserialize_task_state_store_from_ref(value[_REFERENCE])


def _offloaded(job: StoredJob, value: Any) -> Any:
    if _REFERENCE not in json.loads(job.raw):
        return value
    backend = _worker_backend()
    reference = backend.serialize_task_state_store_to_ref(
        value=value, key=key_for(job.key), scope=_scope(job)
    )
    return {_REFERENCE: reference}


def _worker_backend() -> Any:
    from airflow.sdk.execution_time.context import _get_worker_state_store_backend

    return _get_worker_state_store_backend()


def _scope(job: StoredJob) -> Any:
    from airflow.sdk.state import TaskScope

    scope: Any = TaskScope
    more = {} if job.region is None else {"region_id": job.region}
    return scope(job.dag_id, job.run_id, job.task_id, job.map_index, **more)
