# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The optional methods of an adapter, each with the default that means "this service can't"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from airflow_resumable.jobs.adapter import Capabilities, FoundJob, Observation, SubmitWindow
from airflow_resumable.jobs.transient import is_transient

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue


class AdapterDefaults:
    """What `ResumableJobMixin` and `ExternalJob` share; see `airflow_resumable.jobs.adapter.JobAdapter`."""

    submit_window: SubmitWindow = SubmitWindow.OPEN
    """How far the service lets us close the gap between accepted and recorded."""
    token_memory: timedelta | None = None
    """How long the service remembers a token; None: for as long as it remembers the job."""
    missing_while_running_is_failure: bool = False
    """Whether a job that vanishes while it is watched was deleted (a pod on a drained node)."""
    parent_cache_keys: tuple[str, ...] = ()
    """Keys under which the parent operator caches what it saw of an earlier job."""

    token_scope: str = ""
    """Tells the jobs of one task instance apart in their tokens; empty where there is only one."""

    poll_interval: float = 5.0
    """Seconds between two looks, for operators without a poll loop of their own."""

    if TYPE_CHECKING:

        def is_job_active(self, status: str) -> bool:
            """Say whether the status means that the job may still run."""

        def is_job_succeeded(self, status: str) -> bool:
            """Say whether the status means success."""

    @classmethod
    def resumable_capabilities(cls) -> Capabilities:
        """Return what this adapter can do, read from the optional methods that it defines."""
        base = AdapterDefaults

        def has(name: str) -> bool:
            return getattr(cls, name) is not getattr(base, name)

        return Capabilities(
            submit_window=cls.submit_window,
            find_by_token=has("find_job_by_token"),
            find_by_family=has("find_jobs_by_family"),
            cancel=has("cancel_job"),
            tells_failed=has("is_job_failed"),
            token_memory=cls.token_memory,
            missing_is_failure=cls.missing_while_running_is_failure,
            snapshots=has("snapshot_before_submit"),
            deferrable=has("get_watch_arguments"),
        )

    def get_capabilities(self) -> Capabilities:
        """Return what this very adapter can do; undefined: what its class can."""
        return self.resumable_capabilities()

    def get_poll_interval(self) -> float:
        """Return the seconds between two looks at a job: the operator's `poll_interval`."""
        return float(self.poll_interval)

    def is_job_failed(self, status: str) -> bool:
        """Say whether the status means an end without success; undefined: what is nothing else has failed."""
        return not self.is_job_active(status) and not self.is_job_succeeded(status)

    def is_job_stopping(self, status: str) -> bool:
        """Say whether the job was told to end and has not ended yet; undefined: never."""
        return False

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return the jobs that carry `token`, submitted at `since` or later; undefined: can't."""
        raise NotImplementedError

    def find_jobs_by_family(self, family: str, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return the jobs of all generations, submitted at `since` or later; undefined: can't."""
        raise NotImplementedError

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Ask the service to stop the job; undefined: can't."""
        raise NotImplementedError

    def get_job_location(self, external_id: JsonValue, context: Context) -> JsonValue:
        """Return where the job lives, as recorded beside its id; undefined: None."""
        return None

    def get_job_uid(self, external_id: JsonValue, context: Context) -> str | None:
        """Return what tells this job from a later one of the same name; undefined: None."""
        return None

    def get_job_url(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the job's page in the service's own UI; undefined: None."""
        return None

    def publish_job(self, external_id: JsonValue, context: Context) -> None:
        """Tell others of the job, once it is on record or taken over; undefined: nobody."""

    def get_job_spec(self, context: Context) -> Any:
        """Return what makes two jobs the same; undefined: the rendered template fields."""
        return {name: getattr(self, name, None) for name in sorted(getattr(self, "template_fields", ()))}

    def restore_job(
        self, external_id: JsonValue, location: JsonValue, uid: str | None, context: Context
    ) -> None:
        """Take over a job that another attempt started; undefined: nothing to fill."""

    def clean_up_job(self, external_id: JsonValue, observation: Observation, context: Context) -> None:
        """Tidy up once the outcome is on record; undefined: nothing to do."""

    def looking(self, context: Context) -> AbstractContextManager[Any]:
        """Be ready to be asked outside of `execute`; undefined: an adapter is, once it is rendered."""
        return nullcontext()

    def snapshot_before_submit(self, context: Context) -> JsonValue:
        """Return what the service held before the submit, kept in the intent; undefined: None."""
        return None

    def was_job_created(self) -> bool | None:
        """Say whether the last submit made a new job; undefined: can't be told."""
        return None

    def is_transient_error(self, error: BaseException) -> bool:
        """Say whether asking again may help; undefined: connection, time-out, 429, 5xx, throttling."""
        return is_transient(error)

    def refresh_credentials(self, context: Context) -> bool:
        """Fetch fresh credentials after a 401; undefined: there is nothing to refresh."""
        return False

    def id_to_parent_value(self, external_id: JsonValue) -> JsonValue:
        """Return the id in the shape that the parent operator stores; undefined: as it is."""
        return external_id

    def parent_value_to_id(self, value: JsonValue) -> JsonValue:
        """Return the id from the shape that the parent operator stores; undefined: as it is."""
        return value

    def get_watch_arguments(self, context: Context) -> Mapping[str, JsonValue]:
        """Return what `for_watching` needs, for ``deferrable=True``; undefined: can't be deferred."""
        raise NotImplementedError

    @classmethod
    def for_watching(cls, arguments: Mapping[str, Any]) -> Self:
        """Return an adapter for the triggerer, made from `get_watch_arguments`; undefined: by keyword."""
        return cls(**arguments)
