# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the job protocol asks of BigQuery, but for the submit."""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from airflow.exceptions import AirflowProviderDeprecationWarning
from google.cloud.bigquery import DEFAULT_RETRY

from airflow_resumable.jobs.adapter import FoundJob, SubmitWindow
from airflow_resumable.jobs.errors import JobNotFound, ResumableJobFatal
from airflow_resumable.jobs.mixin import ResumableJobMixin
from airflow_resumable.operators import _bigquery_errors as errors
from airflow_resumable.operators._bigquery_facts import MEMORY
from airflow_resumable.operators._bigquery_hook import LimitedHook
from airflow_resumable.operators._bigquery_jobs import SHOWN_WITHIN, JobClient, Place, status_of
from airflow_resumable.operators._bigquery_links import showing
from airflow_resumable.operators._bigquery_location import located
from airflow_resumable.operators._bigquery_pause import Pause
from airflow_resumable.operators._bigquery_search import MOST_NUMBERS, Search

if TYPE_CHECKING:
    from airflow.providers.google.cloud.hooks.bigquery import BigQueryHook
    from airflow.sdk import Context
    from pydantic import JsonValue

    from airflow_resumable.operators._bigquery_plan import Plan

_CLEARED = 24
"""By how much clears may have raised `max_tries` since a job that is looked for was started."""

_Arguments = tuple[str | None, str | None, str | None]
"""Project, location and job id."""


class BigQueryAdapter(ResumableJobMixin):
    """Looks at jobs, finds them, tells of them and cancels them.

    An external id is the job's own; where the job is stands beside it on record.
    """

    external_id_key: str = "bigquery_job_id"
    submit_window: SubmitWindow = SubmitWindow.CLOSED
    token_memory: timedelta | None = MEMORY
    long_poll: float = 30.0
    """Seconds that BigQuery is asked to wait for a query's end before it answers."""

    _job: Any = None
    """The job as it was last read."""
    _place: Place | None = None
    """Where the job at hand is."""
    _created: bool | None = None
    _named_at: float | None = None
    """When the answer to a submit, 200 or 409, has named the job, until it was seen since; monotonic."""
    _asking: JobClient | None = None
    _hook_location: str | None = None
    _found: Mapping[str, Place] = MappingProxyType({})
    """Where jobs are that a lookup has found."""
    _derived: Place | None = None
    """Where BigQuery said that a new job will run."""
    _noted: _Arguments = (None, None, None)
    _written: _Arguments | None = None

    if TYPE_CHECKING:
        log: Any
        hook: Any
        project_id: Any
        location: str | None
        job_id: str | None
        configuration: dict[str, Any]
        gcp_conn_id: str
        impersonation_chain: Any
        result_retry: Any
        result_timeout: float | None
        cancel_on_kill: bool
        operator_extra_links: Any
        _configured_job_id: str | None

        def _handle_job_error(self, job: Any) -> None: ...
        def _persist_job_links(self, job: Any, context: Any) -> None: ...

    @abstractmethod
    def _plan(self, context: Context) -> Plan:
        """Return what this task's jobs are called."""

    # --- what the parent writes over ---

    @property
    def _given(self) -> _Arguments:
        # The parent puts the job's own id, project and location in the place of its arguments.
        now = (self.project_id, self.location, self.job_id)
        if now != self._written:
            self._noted = self._written = now
        return self._noted

    def _took(self, job_id: str, place: Place, *, created: bool | None, job: Any = None) -> None:
        self._noted = self._given
        self._created, self._place, self._job = created, place, job
        self.job_id, self.project_id, self.location = job_id, place.project, place.location
        self._written = (self.project_id, self.location, self.job_id)

    def was_job_created(self) -> bool | None:
        """Say whether the last `submit_job` started the job; False where BigQuery had it already."""
        return self._created

    # --- the connection ---

    def _connected(self) -> JobClient:
        if self._asking is None:
            # By what it holds: tasks are copied before they run.
            default = getattr(self.result_retry, "__dict__", None) == vars(DEFAULT_RETRY)
            own = None if default else self.result_retry
            self._asking = JobClient(self._hooked(), own, self.result_timeout)
        return self._asking

    def _hooked(self) -> BigQueryHook:
        if self.hook is None:
            # The configuration is sent as it is, so the connection's dialect says nothing.
            self.hook = LimitedHook(
                gcp_conn_id=self.gcp_conn_id,
                impersonation_chain=self.impersonation_chain,
                use_legacy_sql=False,
            )
            self._hook_location = self.hook.location
        hook: BigQueryHook = self.hook
        return hook

    @property
    def _asked_place(self) -> Place:
        """Where the operator's arguments and its connection want jobs to run."""
        project, location, _ = self._given
        project = project or self._hooked().project_id
        if not project:
            raise ResumableJobFatal(
                f"project_id is not given, and connection {self.gcp_conn_id!r} names no project; give one of "
                "them"
            )
        return Place(project, location or self._hook_location)

    @property
    def _planned_place(self) -> Place:
        """Where a new job will run: with no location named, the one that BigQuery derives, asked for once."""
        asked, known = self._asked_place, self._derived
        if asked.location is not None:
            return asked
        if known is None or known.project != asked.project:
            attempt = self._resumable_attempt
            service = attempt.service if attempt is not None else None
            known = self._derived = located(self._connected, asked, self.configuration, service)
        return known

    def refresh_credentials(self, context: Context) -> bool:
        """Make the hook anew, which reads the connection and its keys again."""
        client, self._asking, self.hook = self._asking, None, None
        if client is not None:
            client.close()
        return True

    def is_transient_error(self, error: BaseException) -> bool:
        """Say whether asking again may help: by BigQuery's own reason, where the error has one."""
        told = errors.is_transient(error)
        if told is None:
            return super().is_transient_error(error)
        return told or (errors.is_of_credentials(error) and self._has_new_keys())

    def _has_new_keys(self) -> bool:
        """Say whether the connection was edited since it was read; then it is read again."""
        old = self.hook
        self.refresh_credentials({})
        return old is not None and self._hooked().extras != old.extras

    @contextmanager
    def looking(self, context: Context) -> Iterator[None]:
        """Hold connections to BigQuery for as long as the block lasts."""
        self._configured_job_id = self._given[2]
        try:
            yield
        finally:
            client, self._asking = self._asking, None
            if client is not None:
                client.close()

    # --- look ---

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return PENDING or RUNNING, ``success``, or ``error`` with BigQuery's reason.

        Raises:
            JobNotFound: BigQuery has no such job, in this location.
        """
        if self._resumable_stock:
            return super().get_job_status(external_id, context)  # type: ignore[safe-super]
        return status_of(self._read(external_id))

    def _read(self, external_id: JsonValue) -> Any:
        try:
            job = self._connected().get(str(external_id), self._where_is(external_id))
        except JobNotFound as missing:
            named_at = self._named_at
            if named_at is None or time.monotonic() - named_at > SHOWN_WITHIN:
                raise
            raise TimeoutError(
                f"BigQuery has named this job, and doesn't show it yet: {missing}"
            ) from missing
        self._named_at = None
        self._job, self._place = job, Place.of_job(job)
        return job

    def _where(self) -> Place:
        if self._place is None:
            self._place = self._asked_place
        return self._place

    def _where_is(self, external_id: JsonValue) -> Place:
        return self._found.get(str(external_id)) or self._where()

    def is_job_active(self, status: str) -> bool:
        """Say whether the job is queued or at work."""
        return super().is_job_active(status) if self._resumable_stock else status in ("PENDING", "RUNNING")

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether the job has done all its work."""
        return status == "success"

    def is_job_failed(self, status: str) -> bool:
        """Say whether the job ended otherwise; one that was cancelled has the reason ``stopped``."""
        return status == "error" or status.startswith("error: ")

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> None:
        """Follow the job to its end.

        Raises:
            AirflowException: It failed; with BigQuery's own message, as by the parent.
        """
        if self._resumable_stock:
            super().poll_until_complete(external_id, context)
            return
        from airflow_resumable.jobs.watch import poll

        pause = Pause(str(external_id), self._where(), self.long_poll)

        def wait(status: str | None) -> None:
            if status in ("PENDING", "RUNNING"):
                pause(self._connected(), is_query=getattr(self._job, "job_type", None) == "query")
            else:
                time.sleep(self.get_poll_interval())

        if poll(self._attempt_for_polling(context), external_id, wait) is not None and self._job is not None:
            self._handle_job_error(self._job)

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> list[FoundJob]:
        """Return the job whose id, or whose label, carries `token`."""
        attempt = self._resumable_attempt
        record = attempt.record if attempt is not None else None
        # Where jobs of before are ended, the next one gets another token.
        sent_again = attempt is None or (
            record is not None and token == record.token and not attempt.service.is_sweeping
        )
        return self._note(self._search(context).by_token(token, sent_again=sent_again))

    def find_jobs_by_family(self, family: str, since: datetime, context: Context) -> list[FoundJob]:
        """Return the jobs of all generations, by the ids that they must have.

        Raises:
            ResumableJobFatal: It can't be said whether there are any: see `Search.by_family`.
        """
        attempt = self._resumable_attempt
        if attempt is None:
            raise ResumableJobFatal(
                f"jobs of family {family} are looked for by ids that only an attempt can tell, and this "
                "operator is not in one; call this from its execute()"
            )
        newest = max(attempt.max_tries, attempt.owner.try_number + attempt.facts.retries) + 1
        numbers = range(max(0, attempt.max_tries - _CLEARED, newest + 1 - MOST_NUMBERS), newest + 1)
        return self._note(self._search(context).by_family(attempt.mint, numbers))

    def _note(self, found: list[FoundJob]) -> list[FoundJob]:
        places = ((str(job.external_id), Place.of(job.location)) for job in found)
        self._found = {**self._found, **{job_id: place for job_id, place in places if place is not None}}
        return found

    def _search(self, context: Context) -> Search:
        plan, attempt = self._plan(context), self._resumable_attempt
        known = Place.of(attempt.record.location) if attempt is not None and attempt.record else None
        place = known or plan.place
        if place.location is None:
            # Of an intent that could not say it then.
            place = self._planned_place if self._asked_place.project == place.project else place
        return Search(self._connected(), plan, place)

    # --- the job on record ---

    def get_job_location(self, external_id: JsonValue, context: Context) -> JsonValue:
        """Return project and location of the job, asked for where they aren't known."""
        if self._job is None or self._job.job_id != external_id:
            if self._place is None or self._place.location is None:
                try:
                    self._read(external_id)
                except JobNotFound:
                    self.log.warning("Job %s is not known in %s", external_id, self._where())
            return self._where().recorded
        return Place.of_job(self._job).recorded

    def restore_job(
        self, external_id: JsonValue, location: JsonValue, uid: str | None, context: Context
    ) -> None:
        """Take over a job that another attempt started; it is looked for where it was started."""
        here = self._where()
        place = Place.of(location) or here
        if place.project != here.project:
            self.log.warning(
                "Job %s was started in project %s, this task names %s now; it is watched where it is",
                external_id,
                place.project,
                here.project,
            )
        self._took(str(external_id), place, created=self._created)

    def publish_job(self, external_id: JsonValue, context: Context) -> None:
        """Push the parent's links and its XCom ``job_id_path``, from the moment the job exists."""
        known = self._job is not None and self._job.job_id == external_id
        self._publish(self._job if known else self._read(external_id), context)

    def _publish(self, job: Any, context: Context) -> None:
        self._took(job.job_id, Place.of_job(job), created=self._created, job=job)
        with warnings.catch_warnings():
            # Of the XCom `job_id_path`, which nobody can switch off.
            warnings.simplefilter("ignore", AirflowProviderDeprecationWarning)
            self._persist_job_links(job, showing(context, self.operator_extra_links))
        self._written = (self.project_id, self.location, self.job_id)

    def get_job_url(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the job's page in Google's console."""
        from airflow.providers.google.cloud.links.bigquery import BigQueryJobDetailLink

        place = self._where()
        link: Any = BigQueryJobDetailLink()
        url: str = link._format_link(project_id=place.project, location=place.location, job_id=external_id)
        return url

    # --- end ---

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Ask BigQuery to end the job, see `JobClient.cancel`; one that has ended is none to end.

        Raises:
            JobNotFound: BigQuery has no such job, in this location.
        """
        self._connected().cancel(str(external_id), self._where_is(external_id))

    def on_kill(self) -> None:
        """Cancel the job of a task that is not durable; else the protocol decides."""
        if self.hook and self.job_id and self.cancel_on_kill and self.project_id:
            place = Place(self.project_id, self.location or self.hook.location)
            JobClient(self.hook).cancel(self.job_id, place)
        else:
            self.log.info("Skipping to cancel job %s", self.job_id)

    # --- in the triggerer ---

    def get_watch_arguments(self, context: Context) -> Mapping[str, JsonValue]:
        """Return what the triggerer needs: the connection, where the job is, and how often to look."""
        project, location, _ = self._given
        chain = self.impersonation_chain
        given = {
            "project_id": project,
            "location": location,
            "impersonation_chain": list(chain) if isinstance(chain, list | tuple) else chain,
        }
        return {"gcp_conn_id": self.gcp_conn_id, "poll_interval": self.poll_interval, **given}

    @classmethod
    def for_watching(cls, arguments: Mapping[str, Any]) -> Self:
        """Return an operator that looks at a job and can't start one."""
        return cls(task_id="watched", retries=1, configuration={}, deferrable=False, **arguments)
