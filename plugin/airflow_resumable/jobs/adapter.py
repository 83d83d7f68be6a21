# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the protocol asks of an external service: six methods it must have, a dozen it may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue


class SubmitWindow(StrEnum):
    """How far the service lets us close the gap between "accepted" and "its id is on record"."""

    CLOSED = "closed"
    """The service takes our token or our id: a crash anywhere starts one job while it remembers that."""
    NARROWED = "narrowed"
    """The job carries our mark and is looked up before another submit; two racing attempts can double."""
    OPEN = "open"
    """The service offers nothing better: a crash inside the window can start a second job."""


class Observation(StrEnum):
    """What one look at a job said, in the protocol's own words."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPING = "stopping"
    UNKNOWN = "unknown"
    MISSING = "missing"

    @property
    def is_live(self) -> bool:
        """Whether the job may still do work."""
        return self in (Observation.ACTIVE, Observation.STOPPING, Observation.UNKNOWN)


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that a lookup found.

    Args:
        external_id: The service's id, in the shape that `submit_job` returns.
        status: The service's raw status text.
        token: The idempotency token that the job carries, when the listing shows it.
        location, uid: As `get_job_location` and `get_job_uid` would give them.
    """

    external_id: JsonValue
    status: str
    token: str | None = None
    location: JsonValue = None
    uid: str | None = None


class JobAdapter(Protocol):
    """The seam between the protocol and a service; `ResumableJobMixin` makes an operator one.

    The first six methods are those of Airflow's own ``airflow.sdk.ResumableJobMixin``. All others
    have a default in our mixin that means "this service can't".
    """

    external_id_key: str
    submit_window: SubmitWindow
    token_memory: timedelta | None
    missing_while_running_is_failure: bool
    parent_cache_keys: tuple[str, ...]
    token_scope: str

    def submit_job(self, context: Context) -> JsonValue:
        """Start the job, with `idempotency_token` where the service takes one; return its id."""

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the raw status; raise `JobNotFound` when the service answers that it has no such job."""

    def is_job_active(self, status: str) -> bool:
        """Say whether the status means that the job may still run."""

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether the status means success."""

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Block until the job has ended; raise when it failed."""

    def get_job_result(self, external_id: JsonValue, context: Context) -> Any:
        """Return the job's result."""

    def is_job_failed(self, status: str) -> bool:
        """Say whether the status means that the job has ended without success."""

    def is_job_stopping(self, status: str) -> bool:
        """Say whether the job was told to end and has not ended yet."""

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return the jobs that carry `token`, submitted at `since` or later."""

    def find_jobs_by_family(self, family: str, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return the jobs of every generation of one task instance, submitted at `since` or later."""

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Ask the service to stop the job; return when it has taken the request."""

    def get_job_location(self, external_id: JsonValue, context: Context) -> JsonValue:
        """Return where the job lives (region, project, namespace, master URL), as recorded beside its id."""

    def get_job_uid(self, external_id: JsonValue, context: Context) -> str | None:
        """Return what tells this job from a later one of the same name."""

    def get_job_url(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the job's page in the service's own UI, for the extra link "Job"; None where it has none."""

    def publish_job(self, external_id: JsonValue, context: Context) -> None:
        """Tell others of the job (XComs that the parent pushes): it is on record, or was taken over."""

    def get_job_spec(self, context: Context) -> Any:
        """Return what makes two jobs the same job; its hash goes on record."""

    def restore_job(
        self, external_id: JsonValue, location: JsonValue, uid: str | None, context: Context
    ) -> None:
        """Take over a job that another attempt started: fill links, kill handle and the like."""

    def looking(self, context: Context) -> AbstractContextManager[Any]:
        """Have ready, for as long as the block lasts, what the methods above need when nothing is executed.

        The ``jobs`` commands and the triggerer ask so: make hooks and clients that `execute` would make,
        close them after.
        """

    def clean_up_job(self, external_id: JsonValue, observation: Observation, context: Context) -> None:
        """Tidy up; called once the outcome is on record and this attempt still owns it."""

    def snapshot_before_submit(self, context: Context) -> JsonValue:
        """Return what the service held before the submit; kept in the intent, for lookups."""

    def was_job_created(self) -> bool | None:
        """Say whether the last `submit_job` made a new job; None when the service doesn't tell."""

    def is_transient_error(self, error: BaseException) -> bool:
        """Say whether asking again may help."""

    def refresh_credentials(self, context: Context) -> bool:
        """Fetch fresh credentials after a 401; False when there is nothing to refresh."""

    def get_poll_interval(self) -> float:
        """Return the seconds between two looks at a job."""

    def id_to_parent_value(self, external_id: JsonValue) -> JsonValue:
        """Return the id in the shape in which the parent operator stores it."""

    def parent_value_to_id(self, value: JsonValue) -> JsonValue:
        """Return the id from the shape in which the parent operator stores it."""

    def get_watch_arguments(self, context: Context) -> Mapping[str, JsonValue]:
        """Return the JSON from which `for_watching` makes an adapter in the triggerer."""

    @classmethod
    def for_watching(cls, arguments: Mapping[str, Any]) -> JobAdapter:
        """Return an adapter that can ask for a job's status and cancel it, outside of any task."""

    @classmethod
    def resumable_capabilities(cls) -> Capabilities:
        """Return what adapters of this class can do."""

    def get_capabilities(self) -> Capabilities:
        """Return what this very adapter can do: an operator may serve several kinds of clusters."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an adapter can do, as the decision needs to know it."""

    submit_window: SubmitWindow = SubmitWindow.OPEN
    find_by_token: bool = False
    find_by_family: bool = False
    cancel: bool = False
    tells_failed: bool = False
    token_memory: timedelta | None = None
    missing_is_failure: bool = False
    snapshots: bool = False
    deferrable: bool = False


def observe(adapter: JobAdapter, status: str | None, capabilities: Capabilities) -> Observation:
    """Translate a raw status; anything that no method of the adapter claims is UNKNOWN.

    An operator written for Airflow's own mixin has no `is_job_failed`; there, as in Airflow,
    what is neither active nor succeeded has failed.
    """
    if status is None or status == "":
        return Observation.UNKNOWN
    if adapter.is_job_succeeded(status):
        return Observation.SUCCEEDED
    if adapter.is_job_stopping(status):
        return Observation.STOPPING
    if adapter.is_job_active(status):
        return Observation.ACTIVE
    if not capabilities.tells_failed or adapter.is_job_failed(status):
        return Observation.FAILED
    return Observation.UNKNOWN
