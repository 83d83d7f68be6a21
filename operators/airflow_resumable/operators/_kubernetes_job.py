# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableKubernetesJobOperator`: a Kubernetes Job, created once and watched to its end."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
from airflow.providers.cncf.kubernetes.utils.pod_manager import EMPTY_XCOM_RESULT, PodManager
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.adapter import Capabilities, FoundJob, Observation, SubmitWindow
from airflow_resumable.operators import _job_pods as its
from airflow_resumable.operators import _job_state as state
from airflow_resumable.operators import _kubernetes_parent as _parent
from airflow_resumable.operators._arguments import refusal
from airflow_resumable.operators._facts import Permission, ServiceFacts
from airflow_resumable.operators._kubernetes_adapter import KubernetesAdapter
from airflow_resumable.operators._kubernetes_arguments import check_job, check_template
from airflow_resumable.operators._pod_state import PodReader

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
_END_LIMIT = 60.0
"""Seconds that a Job may take to end once its main containers have and its sidecars were told to."""


class ResumableKubernetesJobOperator(KubernetesAdapter, KubernetesJobOperator):
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
    service_facts: ClassVar[tuple[ServiceFacts, ...]] = (
        ServiceFacts(
            service="Kubernetes Job",
            submit_window=SubmitWindow.CLOSED,
            window="Nothing, while the Job of a generation exists: its name is taken.",
            token="the end of `metadata.name`, unless an exact name is asked for; a label of Job and pods",
            memory="until the Job is deleted: by `ttl_seconds_after_finished`, or by hand",
            cancel="the Job of this uid is deleted, its pods with it",
            retries=2,
            retry_delay=timedelta(seconds=30),
            retries_why="one for a lost worker and one for a Job that was deleted; where "
            "`ttl_seconds_after_finished` is set, it has to be longer than this delay",
            permissions=(
                Permission("batch", "jobs", ("create", "get", "list", "delete"), "run, find, end the Job"),
                Permission("", "pods", ("list",), "what a Job that is gone or has failed left at work"),
                Permission("", "pods", ("get", "patch", "delete"), "`on_finish_action`"),
                Permission("", "pods/log", ("get",), "`get_logs`"),
                Permission("", "pods/exec", ("create", "get"), "`do_xcom_push`"),
            ),
        ),
    )

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
        from airflow_resumable.jobs.decision import was_cleared

        attempt = self._resumable_attempt
        if self.wait_until_job_complete or attempt is None:
            return False
        # After a clear the Jobs of before are to be ended, so how they are counts.
        return attempt.record is None or not was_cleared(attempt.facts, attempt.record)

    def get_job_spec(self, context: Context) -> Any:
        """Return what makes two Jobs the same: the template fields, and what else shapes a Job."""
        return {**super().get_job_spec(context), **{name: getattr(self, name) for name in _SPEC}}

    # --- a Job as the shared adapter wants it ---

    def _build(self, context: Context) -> Any:
        return self.build_job_request_obj(context)

    def _create(self, namespace: str, body: Any, **options: Any) -> Any:
        plain = self.job_client.api_client.sanitize_for_serialization(body)
        return self.job_client.create_namespaced_job(namespace=namespace, body=plain, **options)

    def _read(self, name: str, namespace: str, **options: Any) -> tuple[Any, Any]:
        found, _, headers = self.job_client.read_namespaced_job_with_http_info(name, namespace, **options)
        return found, headers

    def _listing(self) -> Any:
        return self.job_client.list_namespaced_job

    def _delete(self, name: str, namespace: str, uid: str, **options: Any) -> None:
        from airflow_resumable.operators._kubernetes_api import delete_options

        # In the foreground the Job stays until its pods are gone. Orphans would go on working.
        asked = self.on_kill_propagation_policy
        body = delete_options(uid, propagation_policy="Background" if asked == "Background" else "Foreground")
        self.job_client.delete_namespaced_job(name, namespace, body=body, **options)

    def _may_still_run(self, found: Any) -> bool:
        return not state.is_final(found)

    def _mark(self, body: Any, labels: Mapping[str, str]) -> None:
        from kubernetes.client import V1ObjectMeta

        template = body.spec.template
        template.metadata = template.metadata or V1ObjectMeta()
        for meta in (body.metadata, template.metadata):
            meta.labels = {**(meta.labels or {}), **labels}

    def _state_of(self, found: Any, now: datetime | None) -> str:
        return state.state_of(found)

    @cached_property
    def _reader(self) -> PodReader:
        return PodReader(self.base_container_name)

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

    def _make_room(self, job: Any) -> None:
        """End the sidecars that keep the Job from starting its next pod, once what they hold is kept."""
        more_to_come = (job.spec.completions or 0) > (job.spec.parallelism or 1)
        good = state.succeeded(self.pods, self._reader)
        for pod in self.pods:
            if self._reader.ended(pod) is None or not its.sidecar_runs(pod):
                continue
            if pod in good and not more_to_come:
                continue
            attempt = self._resumable_attempt
            if attempt is not None:
                attempt.ledger.check_owner()
            elif not self._watches:
                return
            if pod in good:
                text = self._in_sidecar(self.pod_manager.extract_xcom_json, pod)
                about = {"uid": pod.metadata.uid, "annotations": {its.RESULT_ANNOTATION: text}}
                self.client.patch_namespaced_pod(
                    pod.metadata.name, pod.metadata.namespace, {"metadata": about}
                )
            self.log.info("Ending the XCom sidecar of pod %s: the Job has more to do", pod.metadata.name)
            self._in_sidecar(self.pod_manager.extract_xcom_kill, pod)

    @staticmethod
    def _in_sidecar(call: Callable[[Any], Any], pod: Any) -> Any:
        from airflow_resumable.operators._kubernetes_api import said_by_stream

        try:
            return call(pod)
        except Exception as raised:
            error = said_by_stream(raised)
            if error is raised:
                raise
            raise error from raised

    def _left_at_work(self, external_id: Any) -> list[Any]:
        _, namespace, uid = self._parts(external_id)
        if uid is None:
            return []
        return state.at_work(its.pods_without_job(self.client, namespace, uid), self._reader)

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

    # --- end ---

    def get_job_result(self, external_id: JsonValue, context: Context) -> Any:
        """Return what the main containers left for an XCom, in the order of their pods' names.

        The sidecars that hold it are not ended by this: only once the result is on record.

        Raises:
            JobNotFound: The Job or one of its pods is gone, or a sidecar has ended.
            AirflowException: What was left isn't JSON, or may not be read; the Job is on record as failed.
        """
        from airflow_resumable.jobs.errors import JobNotFound

        if self._only_starts:
            return None
        try:
            job = self._as_ended(external_id)
        except JobNotFound as error:
            if self.do_xcom_push:
                raise
            self.log.warning("%s: its logs are lost, its outcome is on record", error)
            return None
        self.pods = its.pods_of(self.client, job)
        self._write_logs_of_pods(job)
        if not self.do_xcom_push:
            return None
        good = state.succeeded(self.pods, self._reader)
        if len(good) < ((job.status and job.status.succeeded) or 1):
            raise JobNotFound(f"pods of the Job {job.metadata.name} are gone, and their results with them")
        values = [self._result_of(pod) for pod in good]
        return values[0] if self.unwrap_single and len(values) == 1 else values

    def _as_ended(self, external_id: Any) -> Any:
        """Return the Job, as it was seen if that was its end."""
        seen, uid = self.seen, self._parts(external_id)[2]
        if seen is not None and seen.metadata.uid == uid and state.is_final(seen):
            return seen
        try:
            return self._look(external_id)
        except Exception:
            self.seen = None
            raise

    def _result_of(self, pod: Any) -> Any:
        from airflow_resumable.jobs.errors import JobNotFound
        from airflow_resumable.operators._kubernetes_api import is_status

        name = pod.metadata.name
        text = (pod.metadata.annotations or {}).get(its.RESULT_ANNOTATION)
        if text is None:
            sidecar = its.sidecar_state(pod)
            if sidecar is None or sidecar.terminated is not None:
                raise JobNotFound(f"the XCom sidecar of pod {name} has ended")
            if sidecar.running is None:
                self.pod_manager.await_xcom_sidecar_container_start(pod)
        why = f"the result of pod {name} can't be read"
        try:
            if text is None:
                text = self._in_sidecar(self.pod_manager.extract_xcom_json, pod)
            return None if text.rstrip() == EMPTY_XCOM_RESULT else json.loads(text)
        except Exception as error:
            # A result that is no JSON stays so; a connection may come back, and fresh credentials help.
            may_help = self.is_transient_error(error) or is_status(error, 401)
            if may_help and not isinstance(error, ValueError):
                raise
            attempt = self._resumable_attempt
            if attempt is not None and attempt.record is not None and attempt.record.phase == "succeeded":
                # An earlier try has read it: what is on record counts.
                raise JobNotFound(f"{why}: {error}") from error
            if attempt is not None:
                # Left as it is, the sidecar would keep the Job running for ever.
                attempt.record_failure(f"{state.FAILED}: {why}")
            raise AirflowException(f"{why}: {type(error).__name__}: {error}") from error

    def _write_logs_of_pods(self, job: Any) -> None:
        if not self.get_logs or not self._once("logs"):
            return
        if not self.pods:
            self.log.warning("The pods of the Job %s are gone, and their logs with them", job.metadata.name)
        for pod in self.pods:
            try:
                self.pod_manager.fetch_requested_container_logs(
                    pod=pod, containers=self.container_logs, follow_logs=False
                )
            except Exception as error:
                # An evicted pod has none: 400.
                self.log.warning("The log of pod %s can't be read: %s", pod.metadata.name, error)

    def clean_up_job(self, external_id: JsonValue, observation: Observation, context: Context) -> None:
        """Do what the parent does with pods of a Job that has ended: label them, `on_finish_action`.

        A Job whose other containers keep it from ending is deleted.
        """
        from airflow_resumable.jobs.errors import JobNotFound

        if not self.wait_until_job_complete:
            return
        failed = observation is not Observation.SUCCEEDED
        try:
            job = self._as_ended(external_id)
        except JobNotFound as error:
            self.log.info("%s: nothing to tidy up", error)
            return
        self.pods = its.pods_of(self.client, job)
        self._write_logs_of_pods(job)
        if self.do_xcom_push:
            for pod in filter(its.sidecar_runs, self.pods):
                try:
                    self._in_sidecar(self.pod_manager.extract_xcom_kill, pod)
                except Exception as error:
                    self.log.warning(
                        "The XCom sidecar of pod %s can't be ended: %s", pod.metadata.name, error
                    )
        if self._comes_to_its_end(external_id):
            self._finish_pods(context)
        else:
            self._end_lingering(failed)
        if failed:
            self._push_job(context)

    def _comes_to_its_end(self, external_id: Any) -> bool:
        """Wait until the controller says so: of a Job that goes on, each pod that is deleted is replaced."""
        deadline = time.monotonic() + _END_LIMIT
        pause = min(1.0, self.job_poll_interval) if self.do_xcom_push else self.job_poll_interval
        while not state.is_final(self.seen):
            if time.monotonic() > deadline or self.seen.metadata.deletion_timestamp:
                return False
            time.sleep(pause)
            self._look(external_id)
        return True

    def _finish_pods(self, context: Context) -> None:
        for pod in its.pods_of(self.client, self.seen):
            try:
                self.post_complete_action(pod=pod, remote_pod=pod, context=context, result=None)
            except Exception as error:
                # The parent's own clean-up raises for a pod that has failed; the Job's end is what counts.
                self.log.info("Pod %s: %s", pod.metadata.name, error)

    def _end_lingering(self, failed: bool) -> None:
        meta = self.seen.metadata
        if meta.deletion_timestamp:
            return
        attempt = self._resumable_attempt
        contested = attempt is not None and attempt.token_may_be_contested
        if not failed and (contested or self.on_finish_action.value == "keep_pod"):
            self.log.warning(
                "The Job %s/%s has done its work, and other containers keep its pods running: delete it (%s)",
                meta.namespace,
                meta.name,
                "its name may still be asked for until the Dag run is over" if contested else "keep_pod",
            )
            return
        self.log.warning(
            "Deleting the Job %s/%s, uid %s: its outcome is on record, and other containers keep its pods "
            "running",
            meta.namespace,
            meta.name,
            meta.uid,
        )
        name, namespace, uid = meta.name, meta.namespace, meta.uid
        self._patiently("deleting a Job that lingers", lambda: self._delete(name, namespace, uid))

    # --- kill ---

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Delete the Job of this uid and its pods, within 1.5 s; of one that is gone, the pods at work.

        Raises:
            JobNotFound: It is gone, or another one has its name, and none of its pods is at work.
        """
        from airflow_resumable.jobs.errors import JobNotFound
        from airflow_resumable.operators._kubernetes_api import KILL_TIMEOUT

        try:
            super().cancel_job(external_id, context)
        except JobNotFound:
            pods = self._left_at_work(external_id)
            if not pods:
                raise
            for pod in pods:
                self.log.info("Deleting pod %s, which has outlived its Job", pod.metadata.name)
                self._delete_pod(pod, _request_timeout=KILL_TIMEOUT)

    def _delete_pod(self, pod: Any, **options: Any) -> None:
        from airflow_resumable.operators._kubernetes_api import delete_options

        body = delete_options(pod.metadata.uid, grace_period_seconds=self.termination_grace_period)
        self.client.delete_namespaced_pod(pod.metadata.name, pod.metadata.namespace, body=body, **options)

    @cached_property
    def pod_manager(self) -> PodManager:
        """The parent's manager; what it deletes is the pod of the uid that it was shown."""
        return its.manager_of_uids(self.client, self.callbacks, self._delete_pod)

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
