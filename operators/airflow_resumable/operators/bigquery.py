# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableBigQueryInsertJobOperator`: one job of BigQuery, started once and watched to its end."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow.exceptions import AirflowProviderDeprecationWarning
from airflow.providers.google.cloud.hooks.bigquery import BigQueryHook
from airflow.providers.google.cloud.operators.bigquery import BigQueryInsertJobOperator
from google.api_core.exceptions import Conflict
from google.cloud.bigquery import DEFAULT_RETRY

from airflow_resumable.jobs.adapter import FoundJob, SubmitWindow
from airflow_resumable.jobs.errors import JobNotFound
from airflow_resumable.jobs.mixin import ResumableJobMixin
from airflow_resumable.jobs.policies import ResumePolicy, configured
from airflow_resumable.jobs.token import family_of
from airflow_resumable.operators import _bigquery_errors as errors
from airflow_resumable.operators import _bigquery_parent as _parent
from airflow_resumable.operators._bigquery_conflict import Verdict, judge, token_on
from airflow_resumable.operators._bigquery_facts import FACTS, MEMORY
from airflow_resumable.operators._bigquery_jobs import (
    TOKEN_LABEL,
    JobClient,
    Pause,
    Place,
    named,
    status_of,
    stock_prefix,
)
from airflow_resumable.operators._bigquery_links import showing
from airflow_resumable.operators._facts import ServiceFacts

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

_parent.check(BigQueryInsertJobOperator, _parent.OPERATOR)
_parent.check(BigQueryHook, _parent.HOOK)

_WATCHED_WITH = ("project_id", "location", "gcp_conn_id", "impersonation_chain", "poll_interval")
_CLEARS, _GENERATIONS = 8, 64

_Arguments = tuple[str | None, str | None, str | None]
"""Project, location and job id."""


class ResumableBigQueryInsertJobOperator(ResumableJobMixin, BigQueryInsertJobOperator):
    """`BigQueryInsertJobOperator` whose job survives its worker: started once, found again, watched.

    Takes the place of the provider's operator: the same arguments, template fields, links, XComs and result,
    and the job's id under the same key, so that a run can change from one to the other in mid-flight.

    Where the provider ends a job's id with a random number, the idempotency token ends it, so that BigQuery
    refuses a second submit of the same generation, and its answer names the job and the location. The token
    is a label of the job too.

    A query is waited for by requests that BigQuery keeps waiting, any other job by pauses that grow to twenty
    seconds. Deferrable over this package's own trigger, which looks every `poll_interval` seconds.

    Args:
        force_rerun: True (default): each generation is a job of its own. False: the id is the provider's,
            made of the configuration, and what another task has run under it isn't run again; see the docs.
        reattach_states: With ``force_rerun=False``, the states in which another task's job of the same
            configuration is watched as this task's. The task's own job is watched in any state.
        cancel_on_kill: False is ``on_user_stop=keep`` and ``on_final_failure=keep``, unless `resume_policy`
            says otherwise. A clear ends the job all the same.
        result_timeout: Seconds for one request; a limit for the job is `execution_timeout`.
        result_retry: Another one than Google's default is used within each request.
        durable: False is the parent's own behaviour.
        resume_policy: See `airflow_resumable.sdk.ResumableJobMixin`.

    Raises:
        TypeError, ValueError: At parse time, naming the argument, the value and what is allowed.
        ImportError: The installed provider lacks something that is needed of it; names it.
    """

    external_id_key: str = "bigquery_job_id"
    submit_window: SubmitWindow = SubmitWindow.CLOSED
    token_memory: timedelta | None = MEMORY
    service_facts: ClassVar[tuple[ServiceFacts, ...]] = FACTS
    long_poll: float = 30.0
    """Seconds that BigQuery is asked to wait for a query's end before it answers."""

    hook: BigQueryHook | None
    _job: Any = None
    """The job as it was last read."""
    _place: Place | None = None
    """Where the job at hand is."""
    _created: bool | None = None
    _asking: JobClient | None = None
    _hook_location: str | None = None
    _noted: _Arguments = (None, None, None)
    _written: _Arguments | None = None

    def __init__(
        self,
        *,
        reattach_states: set[str] | None = None,
        poll_interval: float = 4.0,
        durable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(reattach_states, str):
            raise TypeError(
                f"reattach_states={reattach_states!r} is not allowed; use a set of states, {{'RUNNING'}}"
            )
        if not 0 < poll_interval < float("inf"):
            raise ValueError(f"poll_interval={poll_interval!r} is not allowed; use seconds, more than 0")
        super().__init__(
            reattach_states=reattach_states,
            poll_interval=poll_interval,
            durable=True if durable is None else durable,
            **kwargs,
        )

    # --- run ---

    def execute(self, context: Context) -> Any:
        """Carry the job to its end.

        Returns:
            Its id; None of a dry run, which starts no job.
        """
        with self.looking(context):
            if self.durable and self.configuration.get("dryRun"):
                self.log.info("A dry run starts no job: run as by BigQueryInsertJobOperator")
                self._execute_unrecorded(context)
            else:
                self.execute_resumable(context)
                self._show_the_end(context)
        return self.job_id

    def _execute_stock(self, context: Context) -> Any:
        self._go_unrecorded()
        if self.deferrable:
            return BigQueryInsertJobOperator.execute(self, context)
        return super()._execute_stock(context)

    def _watch_unrecorded(self, external_id: JsonValue, context: Context) -> Any:
        if self._job is None and external_id is not None:
            self.get_job_status(external_id, context)
        return super()._watch_unrecorded(external_id, context)

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

    @property
    def _given(self) -> _Arguments:
        # The parent puts the job's own id, project and location in the place of its arguments.
        now = (self.project_id, self.location, self.job_id)
        if now != self._written:
            self._noted = self._written = now
        return self._noted

    def resumable_policy(self) -> ResumePolicy:
        """Return the operator's policy, in which `cancel_on_kill` counts as what it stands for."""
        policy = ResumePolicy.of(self.resume_policy)
        if not self.cancel_on_kill:
            policy = policy.filled(ResumePolicy(on_user_stop="keep", on_final_failure="keep"))
        return policy.filled(configured())

    def get_job_spec(self, context: Context) -> Any:
        """Return the template fields as they were given."""
        project, _, job_id = self._given
        return {**super().get_job_spec(context), "project_id": project, "job_id": job_id}

    # --- the connection ---

    def _connected(self) -> JobClient:
        if self._asking is None:
            own = None if self.result_retry is DEFAULT_RETRY else self.result_retry
            self._asking = JobClient(self._hooked(), own, self.result_timeout)
        return self._asking

    def _hooked(self) -> BigQueryHook:
        if self.hook is None:
            # The configuration is sent as it is, so the connection's dialect says nothing.
            self.hook = BigQueryHook(
                gcp_conn_id=self.gcp_conn_id,
                impersonation_chain=self.impersonation_chain,
                use_legacy_sql=False,
            )
            self._hook_location = self.hook.location
        return self.hook

    def refresh_credentials(self, context: Context) -> bool:
        """Make the hook anew, which reads the connection and its keys again."""
        client, self._asking, self.hook = self._asking, None, None
        if client is not None:
            client.close()
        return True

    def is_transient_error(self, error: BaseException) -> bool:
        """Say whether asking again may help: by BigQuery's own reason, where the error has one."""
        told = errors.is_transient(error)
        return super().is_transient_error(error) if told is None else told

    # --- submit ---

    def snapshot_before_submit(self, context: Context) -> JsonValue:
        """Return what the job's name is made of: the next try sends the same, whatever was edited since."""
        hook = self._hooked()
        project, location, job_id = self._given
        place = Place(project or hook.project_id, location or self._hook_location)
        if self.force_rerun:
            prefix = job_id or stock_prefix(
                self.dag_id, self.task_id, hook.get_run_after_or_logical_date(context)
            )
        else:
            prefix = hook.generate_job_id(
                job_id=job_id,
                dag_id=self.dag_id,
                task_id=self.task_id,
                logical_date=None,
                configuration=self._labelled(None),
                run_after=hook.get_run_after_or_logical_date(context),
                force_rerun=False,
            )
        return {**place.recorded, "prefix": prefix, "exact": not self.force_rerun}

    def _plan(self, context: Context) -> dict[str, Any]:
        record = self._resumable_attempt.record if self._resumable_attempt else None
        told = record.before if record is not None else None
        if not isinstance(told, dict) or "prefix" not in told:
            told = self.snapshot_before_submit(context)
        assert isinstance(told, dict)
        return told

    def submit_job(self, context: Context) -> Any:
        """Start the job under the token's id, or take over the one that has that id already.

        Raises:
            ResumableJobError: With ``force_rerun=False`` another task's job has the id.
            ValueError: `job_id` can't be a part of a job's id.
        """
        attempt = self._resumable_attempt
        if attempt is None or attempt.token is None:
            return super().submit_job(context)
        plan, self._created = self._plan(context), None
        place, token = Place(plan["project"], plan["location"]), attempt.token
        if plan["exact"] and attempt.generation == 1:
            return self._submit_exact(context, str(plan["prefix"]), token, place)
        return self._submit_own(named(str(plan["prefix"]), token), token, place)

    def _submit_own(self, job_id: str, token: str, place: Place) -> str:
        try:
            self._begin(job_id, token, place)
        except Conflict as taken:
            self._took(job_id, errors.place_of(taken) or place, created=False)
            self.log.info("Job %s was started already, in %s", job_id, self._place)
        return job_id

    def _submit_exact(self, context: Context, job_id: str, token: str, place: Place) -> str:
        try:
            self._begin(job_id, token, place)
        except Conflict as taken:
            there = errors.place_of(taken) or place
            job = self._connected().get(job_id, there)
            first = context["ti"].try_number <= 1
            if judge(job, token, self.reattach_states, first_try=first) is Verdict.OWN_ID:
                return self._submit_own(named(job_id, token), token, place)
            self._took(job_id, there, created=False, job=job)
            self.log.info("Reattaching to job %s in %s, in state %s", job_id, there, job.state)
        return job_id

    def _begin(self, job_id: str, token: str, place: Place) -> None:
        hook, given = self._hooked(), self.configuration
        # Before it is started: a stop may come in the middle.
        self._took(job_id, place, created=None)
        hook.location = place.location
        self.log.info("Executing: %s", given)
        if self.sql:
            self.log.info("SQL query:\n%s", self.sql)
        try:
            self.configuration = self._labelled(token)
            job = self._submit_job(hook, job_id)
        finally:
            self.configuration = given
        self._took(job_id, Place.of_job(job), created=True, job=job)

    def _labelled(self, token: str | None) -> dict[str, Any]:
        given, self.configuration = self.configuration, copy.deepcopy(self.configuration)
        try:
            self._add_job_labels(self._hooked())
            labels = self.configuration.get("labels", {})
            if token is not None and isinstance(labels, dict):
                self.configuration["labels"] = {**labels, TOKEN_LABEL: token}
            return self.configuration
        finally:
            self.configuration = given

    def _took(self, job_id: str, place: Place, *, created: bool | None, job: Any = None) -> None:
        assert self._given is not None  # noted, before it is written over
        self._created, self._place, self._job = created, place, job
        self.job_id, self.project_id, self.location = job_id, place.project, place.location
        self._written = (self.project_id, self.location, self.job_id)

    def was_job_created(self) -> bool | None:
        """Say whether the last `submit_job` started the job; False where BigQuery had it already."""
        return self._created

    # --- look ---

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return PENDING or RUNNING, ``success``, or ``error`` with BigQuery's reason.

        Raises:
            JobNotFound: BigQuery has no such job, in this location.
        """
        if self._resumable_stock:
            return super().get_job_status(external_id, context)
        return status_of(self._read(external_id))

    def _read(self, external_id: JsonValue) -> Any:
        job = self._connected().get(str(external_id), self._where())
        self._job, self._place = job, Place.of_job(job)
        return job

    def _where(self) -> Place:
        if self._place is None:
            project, location, _ = self._given
            self._place = Place(project or self._hooked().project_id, location or self._hook_location)
        return self._place

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
        plan = self._plan(context)
        prefix = str(plan["prefix"])
        found = self._look_up(named(prefix, token), plan, token)
        if found is None and plan["exact"]:
            found = self._look_up(prefix, plan, None)
            found = found if found is not None and found.token == token else None
        return [] if found is None else [found]

    def find_jobs_by_family(self, family: str, since: datetime, context: Context) -> list[FoundJob]:
        """Return the jobs of all generations, by the ids that they must have: BigQuery lists by no name.

        Generations of up to eight clears are looked for, which takes some two dozen requests at most.
        """
        attempt = self._resumable_attempt
        if attempt is None:
            return []
        plan, facts = self._plan(context), attempt.facts
        prefix, found = str(plan["prefix"]), []
        newest = max(attempt.max_tries, attempt.owner.try_number + facts.retries)
        generation = 1
        for number in range(max(0, attempt.max_tries - _CLEARS), newest + 2):
            # A sequence of tries goes on counting generations, or has lost the record of those before.
            for start in sorted({1, generation}):
                for one in range(start, start + _GENERATIONS):
                    token = attempt.mint.token(number, one)
                    job = self._look_up(named(prefix, token), plan, token)
                    if job is None:
                        break
                    found.append(job)
                    generation = max(generation, one + 1)
        if plan["exact"]:
            job = self._look_up(prefix, plan, None)
            if job is not None and job.token is not None and family_of(job.token) == family:
                found.append(job)
        return found

    def _look_up(self, job_id: str, plan: Mapping[str, Any], token: str | None) -> FoundJob | None:
        attempt = self._resumable_attempt
        record = attempt.record if attempt is not None else None
        place = (Place.of(record.location) if record is not None else None) or Place(
            plan["project"], plan["location"]
        )
        try:
            job = self._connected().get(job_id, place)
        except JobNotFound:
            return None
        return FoundJob(
            job_id, status_of(job), token=token or token_on(job), location=Place.of_job(job).recorded
        )

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

    def _show_the_end(self, context: Context) -> None:
        # Where a query without a destination put its rows is known at its end.
        if not self._resumable_stock and self._job is not None and self._job.state == "DONE":
            self._publish(self._job, context)

    def get_job_url(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the job's page in Google's console."""
        from airflow.providers.google.cloud.links.bigquery import BigQueryJobDetailLink

        place = self._where()
        link: Any = BigQueryJobDetailLink()
        url: str = link._format_link(project_id=place.project, location=place.location, job_id=external_id)
        return url

    # --- end ---

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Ask BigQuery to end the job, within 1.5 s; one that has ended is none to end.

        Raises:
            JobNotFound: BigQuery has no such job, in this location.
        """
        self._connected().cancel(str(external_id), self._where())

    def on_kill(self) -> None:
        """Cancel the job of a task that is not durable, within 1.5 s; else the protocol decides."""
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
        return {**{name: getattr(self, name) for name in _WATCHED_WITH}, **given}

    @classmethod
    def for_watching(cls, arguments: Mapping[str, Any]) -> Self:
        """Return an operator that looks at a job and can't start one."""
        return cls(task_id="watched", retries=1, configuration={}, deferrable=False, **arguments)
