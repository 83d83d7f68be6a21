# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The record in the task state store, read and written by its owner only."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from airflow_resumable.jobs.errors import (
    JobSuperseded,
    RecordUnreadable,
    ResumableJobFatal,
    StoreUnavailable,
    TaskInstanceGone,
)
from airflow_resumable.jobs.record import JobRecord, Owner, key_for, load
from airflow_resumable.jobs.transient import patiently, status_code

if TYPE_CHECKING:
    from airflow_resumable.jobs.adapter import JobAdapter

_log = logging.getLogger(__name__)

STORE_BUDGET = 60.0
"""Seconds of our own retries, on top of those that Airflow's supervisor makes for each call."""


class TaskStateStore(Protocol):
    """The part of Airflow's ``context["task_state_store"]`` that the protocol uses."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under `key`, or `default`."""

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        """Write the value under `key`."""

    def delete(self, key: str) -> None:
        """Remove `key`, if it is there."""


class JobLedger:
    """Reads and writes one job's record and the parent operator's own key.

    Args:
        store: ``context["task_state_store"]``.
        external_id_key: The operator's key; the record lies under ``resumable.<external_id_key>``.
        owner: The attempt on whose behalf is written.
    """

    def __init__(self, store: TaskStateStore, external_id_key: str, owner: Owner) -> None:
        self._store = store
        self._owner = owner
        self.parent_key = external_id_key
        self.key = key_for(external_id_key)

    def read(self) -> JobRecord | None:
        """Return the record, or None.

        Raises:
            StoreUnavailable: The store did not answer.
            RecordUnreadable: Something else lies under the key.
        """
        value = self._get(self.key)
        return None if value is None else load(value, self.key)

    def read_parent(self) -> Any:
        """Return the value under the parent operator's key, or None."""
        return self._get(self.parent_key)

    def read_foreign(self, adapter: JobAdapter, record: JobRecord | None) -> Any:
        """Return the id of the job under the parent operator's key, or None.

        Args:
            adapter: Knows how the parent writes an id.
            record: What is on record.
        """
        value = self.read_parent()
        if value is None:
            return None
        # The parent's shape may tell less than the id: one that is on record is that one.
        for external_id in record.ids if record is not None else ():
            if adapter.id_to_parent_value(external_id) == value:
                return external_id
        return adapter.parent_value_to_id(value)

    def write(self, record: JobRecord, *, check_owner: bool = True) -> JobRecord:
        """Write the record as its owner and return what was written.

        Args:
            record: The record; its owner is set to this attempt.
            check_owner: False where the owner on record was read a moment ago.

        Raises:
            JobSuperseded: A newer attempt owns the record.
            TaskInstanceGone: The server no longer knows this attempt's task instance id.
            StoreUnavailable: The store refused for longer than its budget.
        """
        if check_owner:
            self.check_owner()
        owned = record.with_(owner=self._owner)
        self._set(self.key, self._readable(owned))
        return owned

    def _readable(self, record: JobRecord) -> Any:
        # What the next try could not read must not be written over what it can.
        try:
            value = json.loads(json.dumps(record.dump(), allow_nan=False))
            load(value, self.key)
        except (RecordUnreadable, ValueError, TypeError) as error:
            raise ResumableJobFatal(
                f"the record of job {record.external_id!r} (generation {record.generation}) can't be stored "
                f"as JSON: {error}. Ids, locations and snapshots of an operator have to be JSON values",
                external_id=record.external_id,
                generation=record.generation,
            ) from error
        return value

    def outrank(self, record: JobRecord | None) -> Owner:
        """Return the owner that writes from now on, later than the record's where both have the same try.

        Whoever wrote the record started before it was read. If it claims a later start in the same try,
        its clock runs ahead, and it would lock everybody out until that time has come.
        """
        same_try = record is not None and record.owner.try_number == self._owner.try_number
        if record is not None and same_try and record.owner.is_newer_than(self._owner):
            _log.warning(
                "the record's owner claims to have started at %s, later than this attempt of the same try: "
                "this try was started twice, or a worker's clock is off; taking over",
                record.owner.started_at.isoformat(),
            )
            started_at = record.owner.started_at + timedelta(microseconds=1)
            self._owner = self._owner.model_copy(update={"started_at": started_at})
        return self._owner

    def write_parent(self, value: Any) -> None:
        """Write the bare id under the parent operator's key, in the parent's own shape."""
        self._set(self.parent_key, value)

    def delete_parent(self, *more_keys: str) -> None:
        """Remove the parent operator's key and what else it caches about an earlier job."""
        for key in (self.parent_key, *more_keys):
            self._patiently(
                f"deleting {key!r} from the task state store", lambda key=key: self._store.delete(key)
            )

    def check_owner(self) -> JobRecord | None:
        """Return the record on file, unless a newer attempt owns it.

        Raises:
            JobSuperseded: A newer attempt owns the record.
        """
        on_file = self.read()
        if on_file is not None and on_file.owner.is_newer_than(self._owner):
            raise JobSuperseded(
                f"try {on_file.owner.try_number} (started {on_file.owner.started_at.isoformat()}) has "
                f"taken over job {on_file.external_id!r}, generation {on_file.generation}: this attempt (try "
                f"{self._owner.try_number}) leaves job and record alone",
                external_id=on_file.external_id,
                generation=on_file.generation,
            )
        return on_file

    def _get(self, key: str) -> Any:
        return self._patiently(f"reading {key!r} from the task state store", lambda: self._store.get(key))

    def _set(self, key: str, value: Any) -> None:
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        self._patiently(
            f"writing {key!r} to the task state store",
            lambda: self._store.set(key, value, retention=NEVER_EXPIRE),
        )

    def _patiently(self, what: str, call: Any) -> Any:
        try:
            return patiently(what, call, budget=STORE_BUDGET, may_retry=_store_may_recover, longest_wait=5.0)
        except TaskInstanceGone:
            raise
        except Exception as error:
            if store_status(error) == 404:
                raise TaskInstanceGone(
                    f"{what}: the server no longer knows this attempt ({error})"
                ) from error
            raise StoreUnavailable(f"{what} failed: {type(error).__name__}: {error}") from error


def store_status(error: BaseException) -> int | None:
    """Return the API server's HTTP status behind a store error: wrapped by the supervisor, or bare."""
    detail = getattr(getattr(error, "error", None), "detail", None)
    if isinstance(detail, dict):
        value = detail.get("status_code")
        return value if isinstance(value, int) else None
    return status_code(error)


def _store_may_recover(error: BaseException) -> bool:
    if not isinstance(error, Exception) or isinstance(error, TypeError | ValueError):
        return False
    # The channel to the supervisor is a pipe to a parent: once broken it stays so.
    if isinstance(error, BrokenPipeError | ConnectionResetError | EOFError):
        return False
    code = store_status(error)
    return code is None or code in (408, 425, 429) or code >= 500
