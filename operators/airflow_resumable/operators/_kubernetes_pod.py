# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableKubernetesPodOperator`: a pod, created once and watched to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import generic_api_retry
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.utils.pod_manager import PodManager
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from airflow_resumable.jobs.adapter import FoundJob, Observation
from airflow_resumable.jobs.policies import ResumePolicy
from airflow_resumable.operators import _kubernetes_parent as _parent
from airflow_resumable.operators import _pod_state as state
from airflow_resumable.operators._arguments import refusal
from airflow_resumable.operators._facts import ServiceFacts
from airflow_resumable.operators._job_pods import manager_of_uids
from airflow_resumable.operators._kubernetes_arguments import check_pod, check_template
from airflow_resumable.operators._kubernetes_facts import POD_FACTS
from airflow_resumable.operators._pod_result import PodResult

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

_parent.check(KubernetesPodOperator, _parent.POD_OPERATOR)
_parent.check(PodManager, _parent.POD_MANAGER)

_WATCHED_WITH = (
    "base_container_name",
    "poll_interval",
    "schedule_timeout_seconds",
    "startup_check_interval_seconds",
    "startup_timeout_seconds",
)


class ResumableKubernetesPodOperator(PodResult, KubernetesPodOperator):
    """`KubernetesPodOperator` whose pod survives its worker: created once, found again, watched to its end.

    Takes the place of the provider's operator: the same arguments, template fields, result and XComs, and
    the pod's name under the same key, so that a run can change from one to the other in mid-flight.

    Where the parent adds a random suffix to the pod's name, the idempotency token is added, so that a second
    create of the same generation is refused. Token and family are labels too. Every look, every delete is
    about one uid. The pod is neither labelled, nor are its sidecars ended, nor is it deleted, before its
    outcome is on record; then the parent's `on_finish_action` applies.

    A finished pod whose token another attempt may still send (this one was adopted, or its intent taken over)
    is kept, whatever `on_finish_action` says: deleting it would free the name that closes the window.

    A pod that doesn't start within `schedule_timeout_seconds` and `startup_timeout_seconds`, by the API
    server's clock, has failed and is deleted, so that it can't start later.

    Deferrable over this package's own trigger: it looks every `poll_interval` seconds, and logs are written
    when the pod has ended; `logging_interval` and `trigger_kwargs` have no effect.

    Args:
        adopt_stock_pod: Whether a pod that `KubernetesPodOperator` itself has started for this task
            instance is taken over where its name isn't in the task's state store either (Airflow before
            3.3, a cleared store). Such a pod carries the names of Dag, run and task and nothing of the
            installation: another one that shares the namespace may have started it.
        durable: False, or the parent's deprecated `reattach_on_restart` False, is the parent's own
            behaviour.
        resume_policy: See `airflow_resumable.sdk.ResumableJobMixin`. With the parent's
            ``on_kill_action="keep_pod"`` the default of `on_user_stop` is ``keep``.

    Raises:
        TypeError, ValueError: At parse time, naming the argument, the value and what is allowed.
        ImportError: The installed provider lacks something that is needed of it; names it.
    """

    external_id_key = "pod_identifier"
    kind = "pod"
    service_facts: ClassVar[tuple[ServiceFacts, ...]] = POD_FACTS

    def __init__(
        self,
        *,
        adopt_stock_pod: bool = False,
        durable: bool | None = None,
        reattach_on_restart: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(adopt_stock_pod, bool):
            raise TypeError(refusal("adopt_stock_pod", adopt_stock_pod, "True or False"))
        if durable is None:
            durable = True if reattach_on_restart is None else reattach_on_restart
        super().__init__(durable=durable, reattach_on_restart=reattach_on_restart, **kwargs)
        # The parent is handed no `durable`, and sets both by its own default.
        self.durable = self.reattach_on_restart = durable
        self.adopt_stock_pod = adopt_stock_pod
        check_pod(self)
        self._told = set()
        self._events_seen = set()
        self._events_failed = False
        self._other_logs_at = float("-inf")
        self._skipped: str | None = None

    # --- run ---

    def execute(self, context: Context) -> Any:
        """Carry the pod through the protocol; with ``durable=False`` as the parent does.

        Raises:
            TypeError, ValueError: An argument was rendered to what isn't allowed.
        """
        if self.durable:
            check_template(self, rendered=True)
        result = self.execute_resumable(context)
        attempt = self._resumable_attempt
        said = self._skipped or (attempt.record.last_status if attempt and attempt.record else None)
        if said and said.startswith(state.SKIPPED):
            raise AirflowSkipException(f"Pod {self._name_of_seen()} returned {said[9:]}. Skipping.")
        return result if self.do_xcom_push or self._resumable_stock else None

    def resumable_policy(self) -> ResumePolicy:
        """Return the operator's policy; the parent's ``on_kill_action="keep_pod"`` is part of it."""
        own = ResumePolicy.of(self.resume_policy)
        if self.on_kill_action.value == "keep_pod" and own.on_user_stop is None:
            from dataclasses import replace

            own = replace(own, on_user_stop="keep")
        from airflow_resumable.jobs.policies import configured

        return own.filled(configured())

    def _execute_stock(self, context: Context) -> Any:
        self._go_unrecorded()
        return KubernetesPodOperator.execute(self, context)

    def _watch_unrecorded(self, external_id: JsonValue, context: Context) -> Any:
        # Nobody comes back to this pod, so it is tidied up here.
        try:
            result = super()._watch_unrecorded(external_id, context)
        except Exception:
            self._tidy_up_unrecorded(external_id, context)
            raise
        self._tidy_up_unrecorded(external_id, context)
        return result

    # --- a pod as the shared adapter wants it ---

    def _build(self, context: Context) -> Any:
        return self.build_pod_request_obj(context)

    def _create(self, namespace: str, body: Any, **options: Any) -> Any:
        plain = self.client.api_client.sanitize_for_serialization(body)
        return self.client.create_namespaced_pod(namespace=namespace, body=plain, **options)

    def _read(self, name: str, namespace: str, **options: Any) -> tuple[Any, Any]:
        found, _, headers = self.client.read_namespaced_pod_with_http_info(name, namespace, **options)
        return found, headers

    def _listing(self) -> Any:
        return self.client.list_namespaced_pod

    def _delete(self, name: str, namespace: str, uid: str, **options: Any) -> None:
        from airflow_resumable.operators._kubernetes_api import delete_options

        body = delete_options(uid, grace_period_seconds=self.termination_grace_period)
        self.client.delete_namespaced_pod(name, namespace, body=body, **options)

    def _mark(self, body: Any, labels: Mapping[str, str]) -> None:
        body.metadata.labels = {**(body.metadata.labels or {}), **labels}

    def _state_of(self, found: Any, now: datetime | None) -> str:
        return self._reader.state(found, now)

    @cached_property
    def _reader(self) -> state.PodReader:
        return state.PodReader(
            self.base_container_name,
            self.schedule_timeout_seconds,
            self.startup_timeout_seconds,
            self.skip_on_exit_code,
        )

    def _may_still_run(self, found: Any) -> bool:
        unended = self._reader.ended(found) is None
        return unended and found.status.phase not in (state.SUCCEEDED, state.FAILED)

    def _before_create(self, body: Any, context: Context) -> None:
        # Another pod than the one before, of which all this may have been said.
        self._told, self._events_seen, self._events_failed = set(), set(), False
        self._other_logs_at, self._skipped, self.seen = float("-inf"), None, None
        self.pod_request_obj = body
        self._call_back("on_pod_manifest_created", context, pod_request=body)

    def _taken(self, external_id: Any) -> None:
        from kubernetes.client import V1ObjectMeta, V1Pod

        name, namespace, uid = self._parts(external_id)
        if self.seen is None:
            self.seen = V1Pod(metadata=V1ObjectMeta(name=name, namespace=namespace, uid=uid))
        self.pod = self.seen

    def publish_job(self, external_id: JsonValue, context: Context) -> None:
        """Push the XComs that the parent pushes as soon as it has a pod, and tell its callbacks."""
        name, namespace, _ = self._parts(external_id)
        context["ti"].xcom_push(key="pod_name", value=name)
        context["ti"].xcom_push(key="pod_namespace", value=namespace)
        self._call_back("on_pod_creation", context, pod=self.seen)

    def _find_stock(self, since: datetime, context: Context) -> Sequence[FoundJob]:
        from airflow_resumable.operators._kubernetes_api import FAMILY_LABEL

        if not self.adopt_stock_pod:
            return ()
        selector = f"{self._build_find_pod_label_selector(context)},!{FAMILY_LABEL}"
        found = self._find(selector, since, context)
        return [one for one in found if not self.is_job_failed(one.status)]

    # --- states ---

    def is_job_active(self, status: str) -> bool:
        """Say whether the pod is yet to start, or at work."""
        return status in state.ACTIVE

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether the main container has ended with 0, or with an exit code that skips the task."""
        return state.has_succeeded(status)

    def is_job_failed(self, status: str) -> bool:
        """Say whether the pod has failed, was evicted, or didn't start in time."""
        return state.has_failed(status)

    def is_job_stopping(self, status: str) -> bool:
        """Say whether the pod is being deleted."""
        return status == state.TERMINATING

    # --- watch ---

    def get_poll_interval(self) -> float:
        """Return the parent's interval, in seconds: for a pod that starts, for one that runs, deferred."""
        if self.deferrable:
            return float(self.poll_interval)
        pending = self.seen is not None and self.seen.status and self.seen.status.phase == state.PENDING
        return float(
            self.startup_check_interval_seconds if pending else self.base_container_status_polling_interval
        )

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Watch the pod, its events while it starts and its logs while it runs, until it has ended.

        Raises:
            AirflowException: It failed; as the parent says it.
        """
        from airflow_resumable.jobs.watch import poll

        attempt = self._attempt_for_polling(context)
        said = poll(attempt, external_id, lambda raw: self._pause(raw, context))
        if said is not None:
            self._tell_end(context)
            if self.is_job_failed(said):
                raise self._failure(said)

    def _pause(self, raw: str | None, context: Context) -> None:
        if raw == state.PENDING:
            self._show_events()
        elif raw == state.RUNNING:
            self._tell_start(context)
        if raw == state.RUNNING and self.get_logs and "log" not in self._told and self._follow():
            return
        time.sleep(self.get_poll_interval())

    def _failure(self, said: str) -> Exception:
        ended = self._reader.ended(self.seen)
        told = ended.message if ended is not None else None
        parts = [
            f"Pod {self._name_of_seen()} returned a failure ({said}).",
            told if isinstance(told, str) else None,
            f"remote_pod: {self.seen}" if self.log_pod_spec_on_failure else None,
        ]
        return AirflowException("\n".join(filter(None, parts)))

    # --- end ---

    def get_job_result(self, external_id: JsonValue, context: Context) -> Any:
        """Return what the main container left for an XCom, None without `do_xcom_push`.

        The sidecar that holds it is not ended by this: only once the result is on record.

        Raises:
            JobNotFound: The pod is gone, or its sidecar has ended.
            AirflowException: What it left isn't JSON, or may not be read; the pod is on record as failed.
        """
        from airflow_resumable.jobs.errors import JobNotFound

        try:
            pod = self._look(external_id)
        except JobNotFound as error:
            if self.do_xcom_push:
                raise
            self.log.warning("%s: its logs are lost, its outcome is on record", error)
            return None
        said = self._state_of(pod, None)
        if said.startswith(state.SKIPPED):
            self._skipped = said
        self._tell_end(context)
        if not self.do_xcom_push:
            return None
        if self._sidecar_is_yet_to_start(pod):
            self.pod_manager.await_xcom_sidecar_container_start(pod)
        elif not self._sidecar_runs(pod):
            raise JobNotFound(f"the XCom sidecar of pod {self._name_of_seen()} has ended")
        return self._read_xcom(pod, "the pod's result can't be read")

    def clean_up_job(self, external_id: JsonValue, observation: Observation, context: Context) -> None:
        """Do what the parent does with a pod that has ended: label, events, sidecars, `on_finish_action`."""
        from airflow_resumable.jobs.errors import JobNotFound

        try:
            pod = self._patiently("looking at a pod to tidy up", lambda: self._look(external_id))
        except JobNotFound as error:
            self.log.info("%s: nothing to tidy up", error)
            return
        self._tell_end(context)
        said = self._state_of(pod, self._server_now)
        failed = observation is not Observation.SUCCEEDED or said.startswith(state.SKIPPED)
        live = (
            not (self.is_job_failed(said) or self.is_job_succeeded(said)) or pod.status.phase == state.PENDING
        )
        if failed and self.log_events_on_failure:
            self._read_pod_container_states(pod, reraise=False)
            self._read_pod_events(pod, reraise=False)
        if self.do_xcom_push and self._sidecar_runs(pod):
            if failed:
                self._push_result_of_failure(pod, context)
            self._end_sidecar(pod)
        if failed and live and self._reader.ended(pod) is None:
            # It is on record as failed, so it must not start or go on, whatever on_finish_action says.
            self.log.warning("Deleting pod %s, which is %s", self._name_of_seen(), said)
            self._patiently("deleting a pod that has failed", lambda: self._delete(*self._named(pod)))
        elif self._is_contested:
            self.log.warning(
                "Pod %s is kept whatever on_finish_action says: another attempt may still try to create it, "
                "and its name must be taken then. Delete it once the Dag run is over",
                self._name_of_seen(),
            )
            self.patch_already_checked(pod, reraise=False)
        else:
            keeps = self.on_finish_action.value in ("keep_pod", "delete_active_pod")
            if failed or keeps:
                self.patch_already_checked(pod, reraise=False)
            self.process_pod_deletion(pod)
        self._call_back("on_pod_cleanup", context, pod=pod)

    def patch_already_checked(self, pod: Any, *, reraise: bool = True) -> None:
        """Label a pod that was dealt with as the parent does, but none that has taken its name."""
        body = {"metadata": {"uid": pod.metadata.uid, "labels": {self.POD_CHECKED_KEY: "True"}}}
        try:
            patch: Any = generic_api_retry(self.client.patch_namespaced_pod)  # type: ignore[no-untyped-call]
            patch(pod.metadata.name, pod.metadata.namespace, body=body)
        except Exception as error:
            if reraise:
                raise
            self.log.warning(
                "Pod %s can't be labelled %s=True: %s", self._name_of_seen(), self.POD_CHECKED_KEY, error
            )

    @property
    def _is_contested(self) -> bool:
        attempt = self._resumable_attempt
        return attempt is not None and attempt.token_may_be_contested

    @cached_property
    def pod_manager(self) -> PodManager:
        """The parent's manager; what it deletes is the pod of this uid."""
        return manager_of_uids(self.client, self.callbacks, lambda pod: self._delete(*self._named(pod)))

    # --- small things ---

    @staticmethod
    def _named(pod: Any) -> tuple[str, str, str]:
        return pod.metadata.name, pod.metadata.namespace, pod.metadata.uid

    def get_watch_arguments(self, context: Context) -> Mapping[str, Any]:
        """Return what tells the triggerer where the pod is, and when it has ended."""
        codes = self.skip_on_exit_code
        more = {name: getattr(self, name) for name in _WATCHED_WITH}
        if isinstance(codes, list | tuple | set | frozenset | range):
            more["skip_on_exit_code"] = list(codes)
        return {**super().get_watch_arguments(context), **more}
