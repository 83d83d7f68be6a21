# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableEmrAddStepsOperator`: steps of an EMR cluster, added once and watched to their end."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_resumable.jobs.adapter import FoundJob, SubmitWindow
from airflow_resumable.jobs.errors import JobNotSettled, ResumableJobError, ResumableJobFatal
from airflow_resumable.jobs.link import JobLink
from airflow_resumable.jobs.transient import patiently
from airflow_resumable.operators import _emr_links
from airflow_resumable.operators import _emr_states as states
from airflow_resumable.operators._aws_adapter import AwsAdapter
from airflow_resumable.operators._aws_errors import code_of, message_of, part_of
from airflow_resumable.operators._aws_parent import BASE_OPERATOR, HOOK, check
from airflow_resumable.operators._emr_arguments import external_id_of, parsed, parts
from airflow_resumable.operators._emr_cluster import EmrCluster
from airflow_resumable.operators._emr_facts import FACTS
from airflow_resumable.operators._emr_names import Mark, marked
from airflow_resumable.operators._emr_search import find
from airflow_resumable.operators._emr_watch import StepsWatch
from airflow_resumable.operators._facts import ServiceFacts

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

check(EmrAddStepsOperator, (*BASE_OPERATOR, "_inject_openlineage_parent_job_information"))
check(EmrAddStepsOperator.aws_hook_class, (*HOOK, "get_cluster_id_by_name"))

RACE_BUDGET = 30.0
"""Seconds for which the list is asked for after steps were added."""
_WATCHED = "watched by the triggerer"


class ResumableEmrAddStepsOperator(AwsAdapter, EmrAddStepsOperator):
    """Adds steps to an EMR cluster once, and watches them to their end over a lost worker.

    It takes all arguments of the provider's `EmrAddStepsOperator` and returns the same list of step ids.

    The steps of one task are one job: it succeeds when all of them are COMPLETED. It has failed when all have
    ended and one is FAILED, CANCELLED or INTERRUPTED; until then the others go on, or not, by their
    ``ActionOnFailure``. The next try then adds **all** steps again: they may build on each other, and EMR
    can't say which of them may be left out.

    EMR takes no token. Each step's name gets a mark at its end, by which the next try finds the steps of one
    that died before it could write their ids down.

    With ``wait_for_completion=False``, the parent's default, all is done once the steps are added and on
    record: how they end is nobody's concern. With ``deferrable=True`` this package's own trigger watches.

    `waiter_max_attempts` looks per step, `waiter_delay` seconds apart, end a try. The steps go on, the next
    try watches them, and after the last one `on_final_failure` decides.

    Args:
        durable: False is the parent's own behaviour: every try adds the steps.
        resume_policy: See `airflow_resumable.sdk.ResumableJobMixin`.

    Raises:
        TypeError, ValueError: At parse time, naming the argument, the value and what is allowed.
        ImportError: The installed provider lacks something that is needed of it; names it.
    """

    external_id_key: str = "emr_steps"
    submit_window: SubmitWindow = SubmitWindow.NARROWED
    service_facts: ClassVar[tuple[ServiceFacts, ...]] = FACTS
    operator_extra_links: Any = (*EmrAddStepsOperator.operator_extra_links, JobLink())

    _found_cluster: str | None = None
    _created: bool | None = None
    _looks_left: int | None = None
    _told: str | None = None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._watches: dict[str, StepsWatch] = {}

    # --- run ---

    def execute(self, context: Context) -> Any:
        """Carry the steps through the protocol; with ``durable=False`` as the parent does.

        Returns:
            The ids of the steps, in their order.

        Raises:
            ValueError: `steps` was rendered to what EMR can't be sent.
        """
        with self.looking(context):
            return self.execute_resumable(context)

    def _execute_stock(self, context: Context) -> Any:
        self._go_unrecorded()
        return EmrAddStepsOperator.execute(self, context)

    def _watch_unrecorded(self, external_id: JsonValue, context: Context) -> Any:
        self.publish_job(external_id, context)
        if not self._waits:
            return self.get_job_result(external_id, context)
        return super()._watch_unrecorded(external_id, context)

    @property
    def _waits(self) -> bool:
        # The parent takes `wait_for_completion` back where it is deferrable.
        return bool(self.wait_for_completion or self.deferrable)

    @property
    def _only_adds(self) -> bool:
        """Whether steps that are on record are all that this attempt wants of them."""
        attempt = self._resumable_attempt
        return not self._waits and attempt is not None and not attempt.service.is_sweeping

    # --- steps and cluster ---

    def _target(self) -> str:
        """Return the id of the cluster that steps are added to."""
        if self._found_cluster is None:
            self._found_cluster = self.job_flow_id or self._cluster_by_name()
        return self._found_cluster

    def _cluster_by_name(self) -> str:
        def ask() -> Any:
            # The hook asks by the client that is made here.
            aws, _ = self.aws, self.aws.reading
            return aws.hook.get_cluster_id_by_name(str(self.job_flow_name), self.cluster_states)

        found = self._patiently(f"looking for cluster {self.job_flow_name!r}", ask)
        if not found:
            raise AirflowException(f"No cluster found for name: {self.job_flow_name}")
        return str(found)

    def _patiently(self, what: str, call: Callable[[], Any], budget: float | None = None) -> Any:
        seconds = self.resumable_policy().seconds("status_error_budget") if budget is None else budget
        return patiently(what, call, budget=seconds, may_retry=self.is_transient_error)

    def get_job_spec(self, context: Context) -> Any:
        """Return what makes two jobs the same: the template fields, with steps in their plain form."""
        return {**super().get_job_spec(context), "steps": parsed(self.steps)}

    # --- add ---

    def snapshot_before_submit(self, context: Context) -> JsonValue:
        """Return the cluster that is meant now, for lookups: its name may mean another one later."""
        try:
            return {"job_flow_id": self._target(), "region": self.aws.region}
        except Exception as error:
            self.log.warning(
                "cluster %r can't be told before its steps are added (%s: %s)",
                self.job_flow_name,
                type(error).__name__,
                error,
            )
            return None

    def submit_job(self, context: Context) -> JsonValue:
        """Add the steps and return their ids, with the cluster's.

        Raises:
            ResumableJobFatal: The cluster takes no steps any more, and no other one can be meant.
        """
        cluster, token = self._target(), self.idempotency_token
        steps = parsed(self.steps)
        if self.openlineage_inject_parent_job_info:
            self.log.info("Injecting OpenLineage parent job information into EMR Spark steps.")
            steps = self._inject_openlineage_parent_job_information(steps, context)
        if token is not None:
            steps = marked(steps, token, secrets.token_hex(3))
        request: dict[str, Any] = {"JobFlowId": cluster, "Steps": steps}
        if self.execution_role_arn:
            request["ExecutionRoleArn"] = self.execution_role_arn
        self.log.info("Adding steps to %s", cluster)
        self._created = None
        try:
            answer = self._send(
                f"adding steps to {cluster}", lambda: self.aws.sending.add_job_flow_steps(**request)
            )
        except Exception as error:
            self._explain(error, cluster)
            raise
        own = external_id_of(cluster, part_of(answer, "StepIds"))
        self._created = True
        return own if token is None else self._first(own, token, context)

    def _explain(self, error: Exception, cluster: str) -> None:
        if code_of(error) not in ("ValidationException", "InvalidRequestException"):
            return
        try:
            end = EmrCluster(self.aws.reading, cluster).end()
        except Exception as refused:
            self.log.warning("Cluster %s can't be described either: %s", cluster, refused)
            return
        if end:
            raise self._ended_cluster(f"{end} and takes no steps: {message_of(error)}") from error

    def _ended_cluster(self, what: str) -> ResumableJobError:
        if self.job_flow_id:
            return ResumableJobFatal(f"{what} Start another cluster, then clear this task")
        return ResumableJobError(f"{what} The next try looks for {self.job_flow_name!r} again")

    def _first(self, own: JsonValue, token: str, context: Context) -> JsonValue:
        """Return what was added first with the token; what this call has added later is cancelled.

        Two attempts may have read the list before either had added its steps.
        """
        attempt = self._resumable_attempt
        if attempt is None:
            return own
        try:
            listed = self._patiently(
                f"looking whether {token} was used twice",
                lambda: self.find_job_by_token(token, attempt.search_from, context),
                RACE_BUDGET,
            )
        except Exception as error:
            self.log.error(
                "Steps %s were added, and nobody could say whether another attempt has added them too (%s)",
                own,
                error,
            )
            return own
        if not listed or listed[0].external_id == own:
            return own
        first: JsonValue = listed[0].external_id
        self.log.warning("Another attempt has added %s with the same token; cancelling %s", first, own)
        self._created = False
        try:
            self._patiently(f"cancelling {own}", lambda: self.cancel_job(own, context), RACE_BUDGET)
        except Exception:
            self.log.exception("Steps %s were NOT cancelled; %s are watched. End them by hand", own, first)
        return first

    def was_job_created(self) -> bool | None:
        """Say whether the last `submit_job` returned steps of its own, not another attempt's."""
        return self._created

    # --- find ---

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> list[FoundJob]:
        """Return what was added with the token, the lowest start first."""
        attempt = self._resumable_attempt
        record = attempt.record if attempt is not None else None
        if record is not None and record.token == token:
            from airflow_resumable.jobs.decision import LOOKUP_SKEW

            # Nothing can carry a token that is older than its intent.
            since = max(since, record.intent_at - LOOKUP_SKEW)
        return self._find(lambda mark: mark.token == token, since)

    def find_jobs_by_family(self, family: str, since: datetime, context: Context) -> list[FoundJob]:
        """Return what was added for this task instance, the lowest start first."""
        return self._find(lambda mark: mark.family == family, since)

    def _find(self, wanted: Callable[[Mark], bool], since: datetime) -> list[FoundJob]:
        attempt = self._resumable_attempt
        record = attempt.record if attempt is not None else None
        before = record.before if record is not None else None
        return find(self.aws, before, self._target, wanted, since)

    # --- watch ---

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return one state for all the steps, by one request: see `_emr_states.together`.

        Raises:
            JobNotFound: EMR knows no such cluster or steps.
            JobNotSettled: In the triggerer, after as many looks as `waiter_max_attempts` allows.
        """
        if self._only_adds:
            return states.ADDED
        cluster, ids = parts(external_id)
        watch = self._watches.setdefault(repr(ids), StepsWatch(ids))
        status = watch.look(EmrCluster(self.aws.reading, cluster))
        if self._looks_left is not None and status in (states.RUNNING, states.PENDING):
            self._looks_left -= 1
            if self._looks_left < 0:
                raise self._too_long(external_id, status)
        return status

    def _looks(self, external_id: JsonValue) -> int:
        # As the parent: so many for each step, 60 unless set.
        return int(self.waiter_max_attempts or 60) * len(parts(external_id)[1])

    def _too_long(self, external_id: JsonValue, status: str | None) -> JobNotSettled:
        return JobNotSettled(
            f"steps {parts(external_id)[1]} are {status} after {self._looks(external_id)} looks, one "
            f"every {self.get_poll_interval():.0f} s (waiter_max_attempts is {self.waiter_max_attempts}, for "
            "each step); the next try watches them on. Set waiter_max_attempts higher for steps that take "
            "longer"
        )

    def is_job_active(self, status: str) -> bool:
        """Say whether a step may still run."""
        return states.is_active(status)

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether all steps are completed, or were added where nobody waits for their end."""
        return status in (states.COMPLETED, states.ADDED)

    def is_job_failed(self, status: str) -> bool:
        """Say whether all steps have ended, and not all of them well."""
        return states.is_failed(status)

    def is_job_stopping(self, status: str) -> bool:
        """Say whether all that is left are steps that were told to end."""
        return status == states.CANCEL_PENDING

    def get_poll_interval(self) -> float:
        """Return the seconds between two looks: `waiter_delay`."""
        return float(self.waiter_delay or 30)

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Look at the steps every `waiter_delay` seconds until they have ended.

        Raises:
            JobNotSettled: `waiter_max_attempts` looks were not enough; the steps go on.
            AirflowException: A step has failed; with EMR's own reason.
            AirflowFailException: And its cluster takes no other steps, so that no further try can help.
        """
        from airflow_resumable.jobs.watch import poll

        looks = self._looks(external_id)

        def pause(status: str | None) -> None:
            nonlocal looks
            looks -= 1
            if looks <= 0:
                raise self._too_long(external_id, status)
            time.sleep(self.get_poll_interval())

        status = poll(self._attempt_for_polling(context), external_id, pause)
        if status is not None and states.is_failed(status):
            raise self._failure(external_id, status)
        return None

    def _failure(self, external_id: JsonValue, status: str) -> AirflowException:
        cluster, ids = parts(external_id)
        watch = self._watches.get(repr(ids))
        said = "; ".join(watch.failures if watch is not None else ()) or f"steps {ids} are {status}"
        try:
            end = EmrCluster(self.aws.reading, cluster).end()
        except Exception as error:
            self.log.warning("Cluster %s can't be described: %s", cluster, error)
            end = ""
        if not end:
            return AirflowException(f"EMR Steps failed: {said}")
        if self.job_flow_id == cluster:
            return AirflowFailException(
                f"EMR Steps failed: {said}; {end}, so another try can add none. Start another cluster, then "
                "clear this task"
            )
        return AirflowException(f"EMR Steps failed: {said}; {end}")

    def get_job_result(self, external_id: JsonValue, context: Context) -> list[str]:
        """Return the ids of the steps, as the parent does."""
        return parts(external_id)[1]

    # --- end ---

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Ask EMR to cancel the steps, within 1.5 s; each that EMR refuses is logged.

        Raises:
            JobNotFound: EMR knows no such cluster or steps.
            ResumableJobError: Steps that EMR refused to cancel are alive.
        """
        cluster, ids = parts(external_id)
        EmrCluster(self.aws.stopping, cluster).cancel(ids)

    # --- tell ---

    def publish_job(self, external_id: JsonValue, context: Context) -> None:
        """Push the cluster's id and the links' parts as the parent does, and the links themselves at once."""
        cluster, _ = parts(external_id)
        # For a stop that may come at any moment: made then, it would use up the time.
        _ = self.aws.stopping
        if not self.do_xcom_push or self._told == cluster:
            return
        self._told = cluster
        context["ti"].xcom_push(key="job_flow_id", value=cluster)
        _emr_links.push(self, cluster, self.aws, context)

    def get_job_url(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the cluster's page in the console, where its steps are listed."""
        return _emr_links.console(parts(external_id)[0], self.aws)

    # --- triggerer ---

    def get_watch_arguments(self, context: Context) -> Mapping[str, JsonValue]:
        """Return what the triggerer needs: how EMR is reached, how often to look, and how often at most."""
        return {
            **super().get_watch_arguments(context),
            "waiter_delay": self.waiter_delay,
            "waiter_max_attempts": self.waiter_max_attempts,
            "looks": int(self.waiter_max_attempts or 60) * len(parsed(self.steps)),
        }

    @classmethod
    def for_watching(cls, arguments: Mapping[str, Any]) -> Self:
        """Return an operator that looks at steps and can't add any."""
        plain = {name: value for name, value in arguments.items() if name != "looks"}
        made = cls(task_id="watched", retries=1, job_flow_id=_WATCHED, wait_for_completion=True, **plain)
        made._looks_left = int(arguments["looks"])
        return made
