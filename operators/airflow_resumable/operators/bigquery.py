# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableBigQueryInsertJobOperator`: one job of BigQuery, started once and watched to its end."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.google.cloud.hooks.bigquery import BigQueryHook
from airflow.providers.google.cloud.operators.bigquery import BigQueryInsertJobOperator
from google.api_core.exceptions import Conflict

from airflow_resumable.jobs.policies import ResumePolicy, configured
from airflow_resumable.operators import _arguments
from airflow_resumable.operators import _bigquery_errors as errors
from airflow_resumable.operators import _bigquery_parent as _parent
from airflow_resumable.operators._bigquery_adapter import BigQueryAdapter
from airflow_resumable.operators._bigquery_conflict import Verdict, judge
from airflow_resumable.operators._bigquery_facts import FACTS
from airflow_resumable.operators._bigquery_jobs import MOST_LABELS, TOKEN_LABEL, Place
from airflow_resumable.operators._bigquery_plan import Plan, check_job_id, stock_prefix
from airflow_resumable.operators._facts import ServiceFacts

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

_parent.check(BigQueryInsertJobOperator, _parent.OPERATOR)
_parent.check(BigQueryHook, _parent.HOOK)


class ResumableBigQueryInsertJobOperator(BigQueryAdapter, BigQueryInsertJobOperator):
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

    service_facts: ClassVar[tuple[ServiceFacts, ...]] = FACTS

    def __init__(
        self,
        *,
        reattach_states: set[str] | None = None,
        poll_interval: float = 4.0,
        result_timeout: float | None = None,
        durable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(reattach_states, str):
            raise TypeError(_arguments.refusal("reattach_states", reattach_states, "a set of strings"))
        _arguments.check_seconds("poll_interval", poll_interval)
        if result_timeout is not None:
            _arguments.check_seconds("result_timeout", result_timeout)
        super().__init__(
            reattach_states=reattach_states,
            poll_interval=poll_interval,
            result_timeout=result_timeout,
            durable=True if durable is None else durable,
            **kwargs,
        )
        if isinstance(self.job_id, str) and "{" not in self.job_id:
            check_job_id(self.job_id)

    # --- run ---

    def execute(self, context: Context) -> Any:
        """Carry the job to its end.

        Returns:
            Its id; None of a dry run, which starts no job.
        """
        with self.looking(context):
            if self.durable:
                check_job_id(self._given[2])
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

    def _show_the_end(self, context: Context) -> None:
        # Where a query without a destination put its rows is known at its end.
        if not self._resumable_stock and self._job is not None and self._job.state == "DONE":
            self._publish(self._job, context)

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

    # --- submit ---

    def snapshot_before_submit(self, context: Context) -> JsonValue:
        """Return what the job's name is made of: the next try sends the same, whatever was edited since."""
        hook = self._hooked()
        job_id, place = self._given[2], self._planned_place
        started = hook.get_run_after_or_logical_date(context)
        if self.force_rerun:
            return Plan(job_id or stock_prefix(self.dag_id, self.task_id, started), place).recorded
        prefix = hook.generate_job_id(
            job_id=job_id,
            dag_id=self.dag_id,
            task_id=self.task_id,
            logical_date=None,
            configuration=self._labelled(None),
            run_after=started,
            force_rerun=False,
        )
        return Plan(prefix, place, exact=True).recorded

    def _plan(self, context: Context) -> Plan:
        record = self._resumable_attempt.record if self._resumable_attempt else None
        plan = Plan.of(record.before if record is not None else None)
        if plan is None:
            plan = Plan.of(self.snapshot_before_submit(context))
        assert plan is not None
        return plan

    def submit_job(self, context: Context) -> Any:
        """Start the job under the token's id, or take over the one that has that id already.

        Raises:
            ResumableJobError: With ``force_rerun=False`` another task's job has the id.
        """
        attempt = self._resumable_attempt
        if attempt is None or attempt.token is None:
            return super().submit_job(context)
        plan, self._created = self._plan(context), None
        if plan.exact and attempt.generation == 1:
            return self._submit_exact(context, plan, attempt.token)
        return self._submit_own(plan, attempt.token)

    def _submit_own(self, plan: Plan, token: str) -> str:
        job_id = plan.named(token)
        try:
            self._begin(job_id, token, plan.place)
        except Conflict as taken:
            self._took(job_id, errors.place_of(taken) or plan.place, created=False)
            self._named_at = time.monotonic()
            self.log.info("Job %s was started already, in %s", job_id, self._place)
        return job_id

    def _submit_exact(self, context: Context, plan: Plan, token: str) -> str:
        job_id = plan.prefix
        try:
            self._begin(job_id, token, plan.place)
        except Conflict as taken:
            there = errors.place_of(taken) or plan.place
            job = self._connected().get(job_id, there)
            first = context["ti"].try_number <= 1
            if judge(job, token, self.reattach_states, first_try=first) is Verdict.OWN_ID:
                return self._submit_own(plan, token)
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
        self._named_at = time.monotonic()

    def _labelled(self, token: str | None) -> dict[str, Any]:
        given, self.configuration = self.configuration, copy.deepcopy(self.configuration)
        try:
            self._add_job_labels(self._hooked())
            labels = self.configuration.get("labels", {})
            if token is not None and isinstance(labels, dict) and len(labels) < MOST_LABELS:
                self.configuration["labels"] = {**labels, TOKEN_LABEL: token}
            return self.configuration
        finally:
            self.configuration = given
