# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON of the jobs commands."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_resumable.cli.jobs_findings import Finding
    from airflow_resumable.cli.jobs_inquiry import SeenJob
    from airflow_resumable.cli.jobs_store import StoredJob


class JsonObject:
    """One JSON object, printed member by member; complete once it is closed.

    Args:
        out: Where to.
    """

    def __init__(self, out: IO[str]) -> None:
        self._out, self._begun = out, False

    def put(self, name: str, value: Any) -> None:
        """Print one member."""
        self._out.write(f"{self._name(name)}{json.dumps(value)}")

    def stream(self, name: str, values: Iterable[Any]) -> None:
        """Print a list, a line for each value, without holding them all; what `values` raises ends it."""
        iterator = iter(values)
        # Before anything is printed: what fails at once leaves no list that looks like an empty one.
        first = list(islice(iterator, 1))
        self._out.write(f"{self._name(name)}[")
        try:
            for number, value in enumerate(chain(first, iterator)):
                self._out.write(f"{',' if number else ''}\n{json.dumps(value)}")
        finally:
            self._out.write("\n]")

    def close(self) -> None:
        """End the object."""
        self._out.write("}\n")

    def _name(self, name: str) -> str:
        begin = ",\n" if self._begun else "{"
        self._begun = True
        return f"{begin}{json.dumps(name)}: "


def job_json(job: StoredJob) -> dict[str, Any]:
    """Return a record's line of ``jobs list --json``."""
    record = job.record
    return {
        **task_json(job),
        "try_number": job.try_number,
        "external_id": record.external_id if record else None,
        "generation": record.generation if record else None,
        "phase": record.phase if record else None,
        "token": record.token if record else None,
        "last_status": record.last_status if record else None,
        "last_seen_at": _stamp(record.last_seen_at) if record else None,
        "owner": record.owner.model_dump(mode="json") if record else None,
        "error": job.error,
    }


def task_json(job: StoredJob) -> dict[str, Any]:
    """Return which task instance a record belongs to."""
    return {
        "dag_id": job.dag_id,
        "run_id": job.run_id,
        "task_id": job.task_id,
        "map_index": job.map_index,
        "region_id": str(job.region) if job.region else None,
        "external_id_key": job.key,
        "task_state": job.task_state,
    }


def seen_json(seen: SeenJob) -> dict[str, Any]:
    """Return what the service says of one job."""
    return {
        "external_id": seen.external_id,
        "token": seen.token,
        "status": seen.status,
        "observation": seen.observation.value,
        "on_record": seen.on_record,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding of ``jobs reconcile --json``."""
    record = finding.job.record
    return {
        "kind": finding.kind,
        **task_json(finding.job),
        "generation": record.generation if record else None,
        "token": record.token if record else None,
        "job": seen_json(finding.seen) if finding.seen else None,
        "detail": finding.detail,
        "cancel_refused": finding.kept_from_cancel,
    }


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
