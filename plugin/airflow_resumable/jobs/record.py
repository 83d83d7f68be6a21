# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the store remembers of a job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, JsonValue, ValidationError

from airflow_resumable.jobs.errors import RecordUnreadable

FORMAT: Literal[1] = 1
"""Version of the record's shape; a record with a higher one is refused, never overwritten."""

ANY_OTHER = "*"
"""Stands in `JobRecord.unsettled` for every token of the family but the record's own."""

Phase = Literal["intent", "submitted", "succeeded", "failed", "cancelled"]


class Owner(BaseModel):
    """The attempt that may write: the one with the highest (try number, started at)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    try_number: int
    started_at: AwareDatetime
    ti_id: str

    def is_newer_than(self, other: Owner) -> bool:
        """Say whether this owner supersedes `other`, by its try and then by its start.

        Not by the task instance id: a task resumes under its old one after a deferral, later, and a
        broker that delivers a message twice runs two processes under the same.
        """
        return (self.try_number, self.started_at) > (other.try_number, other.started_at)


class StoredResult(BaseModel):
    """A job's result kept beside its outcome, so that it outlives the service's memory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: JsonValue = None


class JobRecord(BaseModel):
    """The record of one task instance's job, JSON under ``resumable.<external_id_key>``, never expiring."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = FORMAT
    generation: int
    token: str
    phase: Phase
    external_id: JsonValue = None
    ids: tuple[JsonValue, ...] = ()
    location: JsonValue = None
    uid: str | None = None
    spec: str
    max_tries: int
    owner: Owner
    intent_at: AwareDatetime
    submitted_at: AwareDatetime | None = None
    last_status: str | None = None
    last_seen_at: AwareDatetime | None = None
    adoptions: int = 0
    resends: int = 0
    """How often another attempt has sent a submit with this token again."""
    unsettled: tuple[str, ...] = ()
    """Tokens whose submit may still come: of intents that a clear has overtaken before they had an id, and of
    jobs that were adopted or sent again, whose first sender may only be asleep. Or `ANY_OTHER`, where there
    was no record any more to tell them."""
    before: JsonValue = None
    result: StoredResult | None = None
    reported: bool = False

    def dump(self) -> dict[str, Any]:
        """Return the JSON value that goes into the store."""
        return self.model_dump(mode="json")

    def with_(self, **changes: Any) -> JobRecord:
        """Return a copy with some fields changed."""
        return self.model_copy(update=changes)

    def knows(self, external_id: JsonValue) -> bool:
        """Say whether `external_id` belongs to any generation on record."""
        return external_id in self.ids

    def with_id(self, external_id: JsonValue, **changes: Any) -> JobRecord:
        """Return a copy whose current job is `external_id`."""
        ids = self.ids if self.knows(external_id) else (*self.ids, external_id)
        return self.with_(external_id=external_id, ids=ids, phase="submitted", **changes)


def key_for(external_id_key: str) -> str:
    """Return the store key of the record that goes with an operator's `external_id_key`."""
    return f"resumable.{external_id_key}"


def load(value: Any, key: str) -> JobRecord:
    """Read a record back.

    Raises:
        RecordUnreadable: The value was not written by this version; names the key and the remedy.
    """
    remedy = (
        f"nothing was submitted. If no job of this task is running, delete the key {key!r} from the task's "
        "state store (Airflow's REST API or CLI) and clear the task"
    )
    if not isinstance(value, dict) or "format" not in value:
        kind = type(value).__name__
        raise RecordUnreadable(
            f"the value under {key!r} is not a job record ({kind}: {str(value)[:80]!r}); {remedy}"
        )
    if isinstance(value["format"], int) and value["format"] > FORMAT:
        raise RecordUnreadable(
            f"the job record under {key!r} has format {value['format']}, this version reads up to {FORMAT}: "
            "run this task where the newer airflow-resumable is installed, or upgrade here; nothing was "
            "submitted"
        )
    try:
        # JSON mode: the store holds dates as text, which strict Python-mode models would refuse.
        return JobRecord.model_validate_json(json.dumps(value))
    except ValidationError as error:
        where = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])
        raise RecordUnreadable(f"the job record under {key!r} can't be read ({where}); {remedy}") from error


def spec_hash(spec: Any) -> str:
    """Return the hash that tells two rendered jobs apart, from their canonical JSON.

    It never fails: what JSON can't hold counts by its class alone.
    """
    text = json.dumps(_plain(spec, 8), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    name = type(value).__qualname__
    if depth == 0:
        return name
    if isinstance(value, Mapping):
        return {str(key): _plain(part, depth - 1) for key, part in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(str(_plain(part, depth - 1)) for part in value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(part, depth - 1) for part in value]
    # A default repr holds a memory address, which would make every attempt look like a changed job.
    parts = getattr(value, "__dict__", {})
    return {"class": name, **{key: _plain(part, min(depth, 4) - 1) for key, part in parts.items()}}
