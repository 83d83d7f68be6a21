# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableKubernetesJobOperator`: a Kubernetes Job, created once and watched to its end."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
from airflow.providers.cncf.kubernetes.utils.pod_manager import PodManager
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.adapter import Capabilities, FoundJob
from airflow_resumable.operators import _job_pods as its
from airflow_resumable.operators import _job_state as state
from airflow_resumable.operators import _kubernetes_parent as _parent
from airflow_resumable.operators._arguments import refusal
from airflow_resumable.operators._facts import ServiceFacts
from airflow_resumable.operators._job_end import JobEnd
from airflow_resumable.operators._kubernetes_arguments import check_job, check_template
from airflow_resumable.operators._kubernetes_facts import JOB_FACTS

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

_parent.check(KubernetesJobOperator, _parent.JOB_OPERATOR)
_parent.check(PodManager, ("extract_xcom_json", "extract_xcom_kill", "fetch_requested_container_logs"))

_WATCHED_WITH = ("base_container_name", "do_xcom_push", "job_poll_interval")
_SPEC = (
    "backoff_limit",
    "completion_mode",
    "completions",
    "full_job_spec",
    "parallelism",
    "selector",
    "suspend",
    "ttl_seconds_after_finished",
)


class ResumableKubernetesJobOperator(JobEnd, KubernetesJobOperator):
    """`KubernetesJobOperator` whose Job survives its worker: created once, found again, watched to its end.

    Takes the place of the provider's operator: the same arguments, template fields, result and XComs.

    Where the parent adds a random suffix to the Job's name, the idempotency token is added, so that a second
    create of the same generation is refused. Token and family are labels of the Job and of its pods. Every
    look, every delete is about one uid. Pods are neither labelled nor deleted, nor are their XCom sidecars
    ended, before the outcome is on record; then the parent's `on_finish_action` applies to them.

    The Job's conditions tell its end. Where its pods have more than the main container, enough main
    containers that have ended with 0 are a success too: a sidecar can't keep the task waiting for ever. What
    such a sidecar keeps running afterwards is deleted with its Job, unless `on_finish_action` is
    ``keep_pod``.

    With ``wait_until_job_complete=False``, the parent's default, all is done once the Job is created and on
    record: it is created exactly once, and how it ends is nobody's concern.

    A cancel deletes the Job and its pods, also with ``on_kill_propagation_policy="Orphan"``, which would
    leave the pods at work, and with ``on_kill_action="keep_pod"``. A Job that is gone counts as stopping for
    as long as one of its pods is at work.

    Deferrable over this package's own trigger, which looks every `job_poll_interval` seconds.

    Args:
        adopt_stock_job: Whether a running Job that `KubernetesJobOperator` itself has started for this task
            instance is taken over. The parent keeps no record of it, so it is known by the names of Dag, run
            and task on its pod template; another installation that shares the namespace may have started it.
        durable: False, or the parent's deprecated `reattach_on_restart` False, is the parent's own
            behaviour.
        resume_policy: See `airflow_resumable.sdk.ResumableJobMixin`.

    Raises:
        TypeError, ValueError: At parse time, naming the argument, the value and what is allowed.
        ImportError: The installed provider lacks something that is needed of it; names it.
    """

    external_id_key = "job_identifier"
    kind = "Job"
    service_facts: ClassVar[tuple[ServiceFacts, ...]] = JOB_FACTS

    def __init__(
        self,
        *,
        adopt_stock_job: bool = False,
        durable: bool | None = None,
        reattach_on_restart: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(adopt_stock_job, bool):
            raise TypeError(refusal("adopt_stock_job", adopt_stock_job, "True or False"))
        if durable is None:
            durable = True if reattach_on_restart is None else reattach_on_restart
        super().__init__(durable=durable, reattach_on_restart=reattach_on_restart, **kwargs)
        # The parent is handed no `durable`, and sets both by its own default.
        self.durable = self.reattach_on_restart = durable
        self.adopt_stock_job = adopt_stock_job
        check_job(self)
        self.pods: Sequence[Any] = ()
        self._told: set[str] = set()
        self._watches = False
        self._turn_of_pods = False
        if durable:
            self._warn_of_short_memory()

    def _warn_of_short_memory(self) -> None:
        ttl, delay = self._ttl, self.retry_delay
        gap = max(float(self.job_poll_interval), delay.total_seconds() if self.retries else 0.0)
        if ttl is None or ttl > gap or not self.wait_until_job_complete:
            return
        warnings.warn(
            f"task {self.task_id!r}: ttl_seconds_after_finished={ttl}: the Job may be deleted before it is "
            f"looked at again, up to {gap:.0f} s later (job_poll_interval, retry_delay), and then nobody can "
            f"say how it ended and on_missing decides; set it to more than {gap:.0f}",
            UserWarning,
            stacklevel=4,
        )

    @property
    def _ttl(self) -> int | None:
        if self.ttl_seconds_after_finished is not None:
            return self.ttl_seconds_after_finished
        spec = getattr(self.full_job_spec, "spec", None)
        return getattr(spec, "ttl_seconds_after_finished", None)

    def get_capabilities(self) -> Capabilities:
        """Return what this very operator can do: a Job with a time to live is forgotten after it."""
        can, ttl = super().get_capabilities(), self._ttl
        if ttl is None:
            return can
        seen_in_time = ttl > 3 * self.job_poll_interval
        return replace(can, token_memory=timedelta(seconds=ttl), missing_is_failure=seen_in_time)

    # --- run ---

    def execute(self, context: Context) -> Any:
        """Carry the Job through the protocol; with ``durable=False`` as the parent does.

        Raises:
            AirflowException: As the parent's: the Job failed, or `parallelism` is below 1.
            TypeError, ValueError: An argument was rendered to what isn't allowed.
        """
        if self.durable:
            check_template(self, rendered=True)
            self._check_arguments()
        result = self.execute_resumable(context)
        if not self._resumable_stock:
            self._push_job(context)
        return result

    def _check_arguments(self) -> None:
        if not self.wait_until_job_complete:
            if self.deferrable:
                self.log.warning("deferrable=True has no effect without wait_until_job_complete=True")
                self.deferrable = False
            if self.get_logs or self.do_xcom_push:
                self.log.warning(
                    "get_logs and do_xcom_push have no effect without wait_until_job_complete=True"
                )
        given: int | None = self.parallelism
        if given is None:
            self.parallelism = 1
        elif self.wait_until_job_complete and self.parallelism < 1:
            raise AirflowException(
                f"parallelism={self.parallelism} is not allowed with wait_until_job_complete=True: no pod "
                "would be started; use 1 or more"
            )

    def _execute_stock(self, context: Context) -> Any:
        self._go_unrecorded()
        return KubernetesJobOperator.execute(self, context)

    def _watch_unrecorded(self, external_id: JsonValue, context: Context) -> Any:
        # Nobody comes back to this Job, so its pods are tidied up here.
        if not self.wait_until_job_complete:
            self._push_job(context)
            return None
        try:
            result = super()._watch_unrecorded(external_id, context)
        except Exception:
            self._tidy_up_unrecorded(external_id, context)
            raise
        self._tidy_up_unrecorded(external_id, context)
        self._push_job(context)
        return result

    @property
    def _only_starts(self) -> bool:
        """Whether a Job that is on record is all that this attempt wants of it."""
        attempt = self._resumable_attempt
        return not self.wait_until_job_complete and attempt is not None and not attempt.service.is_sweeping

    def get_job_spec(self, context: Context) -> Any:
        """Return what makes two Jobs the same: the template fields, and what else shapes a Job."""
        return {**super().get_job_spec(context), **{name: getattr(self, name) for name in _SPEC}}

    # --- start ---

    def _before_create(self, body: Any, context: Context) -> None:
        self.job_request_obj = body
        # What was told of a Job of an earlier generation is to be told of this one too.
        self._told, self._turn_of_pods, self.seen, self.pods = set(), False, None, ()

    def _taken(self, external_id: Any) -> None:
        from kubernetes.client import V1Job, V1ObjectMeta

        name, namespace, uid = self._parts(external_id)
        meta = V1ObjectMeta(name=name, namespace=namespace, uid=uid)
        self.job = self.seen if self.seen is not None else V1Job(metadata=meta)

    def publish_job(self, external_id: JsonValue, context: Context) -> None:
        """Push the XComs that the parent pushes as soon as it has a Job."""
        name, namespace, _ = self._parts(external_id)
        context["ti"].xcom_push(key="job_name", value=name)
        context["ti"].xcom_push(key="job_namespace", value=namespace)

    def _push_job(self, context: Context) -> None:
        """Push the Job itself as the parent does: as it ended, or as it was asked for."""
        if not self._once("job"):
            return
        if not self.wait_until_job_complete:
            if self.job_request_obj is None:
                self.job_request_obj = self._to_create(context)
            told = self.job_request_obj
        else:
            told = self.seen
        if told is None:
            self.log.warning("The Job is gone from the cluster, so the XCom 'job' is not pushed")
            return
        self.job = told
        context["ti"].xcom_push(key="job", value=told.to_dict())

    def _find_stock(self, since: datetime, context: Context) -> Sequence[FoundJob]:
        from airflow_resumable.operators._kubernetes_api import FAMILY_LABEL, listed

        if not self.adopt_stock_job:
            return ()
        namespace = self._plan(context).metadata.namespace
        labels = {**self.labels, **self._get_ti_pod_labels(context, include_try_number=False)}.items()
        found = [
            self._found(one)
            for one in listed(self._listing(), namespace, f"!{FAMILY_LABEL}", since)
            if labels <= (one.spec.template.metadata.labels or {}).items()
        ]
        return [one for one in found if not self.is_job_failed(one.status)]

    # --- states ---

    def is_job_active(self, status: str) -> bool:
        """Say whether the Job is yet to start, suspended, or at work."""
        return status in state.ACTIVE

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether the Job is complete, or was started where nobody waits for its end."""
        return state.has_succeeded(status)

    def is_job_failed(self, status: str) -> bool:
        """Say whether the Job has failed: too many failed pods, its deadline, a rule of its own."""
        return state.has_failed(status)

    def is_job_stopping(self, status: str) -> bool:
        """Say whether the Job is being deleted, or is gone or failed while a pod of it is at work."""
        return status == state.TERMINATING

    # --- watch ---

    def get_poll_interval(self) -> float:
        """Return the parent's interval, in seconds."""
        return float(self.job_poll_interval)

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the Job's state; by its main containers, where other ones keep it from ending.

        Raises:
            JobNotFound: There is none, and no pod of it is at work; or it is one of another uid.
        """
        from airflow_resumable.jobs.errors import JobNotFound

        if self._only_starts:
            return state.STARTED
        job, pods_turn = self.seen, self._turn_of_pods
        if not pods_turn or job is None:
            try:
                job = self._look(external_id)
            except JobNotFound:
                self.seen = None
                if self._left_at_work(external_id):
                    return state.TERMINATING
                raise
        said = state.state_of(job)
        if state.has_failed(said):
            # Its pods are told to end at about the same time; the next generation must not meet them.
            return state.TERMINATING if state.at_work(its.pods_of(self.client, job), self._reader) else said
        if said == state.RUNNING and state.has_other_containers(job):
            # One call a look, as many as the parent makes: the Job and its pods take turns. Where there are
            # XComs to come, the parent looks at the pods every second.
            self._turn_of_pods = not pods_turn and not self._once("pods") and not self.do_xcom_push
            if not self._turn_of_pods:
                return self._by_containers(job) or said
        return said

    def _by_containers(self, job: Any) -> str | None:
        now = self._server_now or datetime.now(UTC)
        self.pods = its.pods_of(self.client, job)
        said = state.by_containers(job, self.pods, self._reader, now)
        if said is None and self.do_xcom_push:
            self._make_room(job)
        return said

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Watch the Job until it has ended.

        Raises:
            AirflowException: It failed; as the parent says it.
        """
        from airflow_resumable.jobs.watch import poll

        said = poll(self._attempt_for_polling(context), external_id)
        if said is not None and self.is_job_failed(said):
            name = self._parts(external_id)[0]
            why = said.partition(": ")[2]
            raise AirflowException(f"Kubernetes job '{name}' is failed with error '{why}'")

    # --- small things ---

    def get_watch_arguments(self, context: Context) -> Mapping[str, Any]:
        """Return what tells the triggerer where the Job is, and when it has ended."""
        more = {name: getattr(self, name) for name in _WATCHED_WITH}
        return {**super().get_watch_arguments(context), **more}

    @classmethod
    def for_watching(cls, arguments: Mapping[str, Any]) -> Self:
        """Return an operator outside of any Dag, for the triggerer."""
        made = super().for_watching({**arguments, "wait_until_job_complete": True})
        made._watches = True
        return made
