# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a Job's main containers left for an XCom, and what they wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.utils.pod_manager import EMPTY_XCOM_RESULT
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.operators import _job_pods as its
from airflow_resumable.operators import _job_state as state
from airflow_resumable.operators._job_object import JobObject

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue


class JobResult(JobObject):
    """Reads the results of a Job's pods, each of them held by a sidecar until they are on record."""

    pods: Sequence[Any]

    _watches: bool
    """Whether this is the triggerer's operator, which has no record and whose task has."""

    if TYPE_CHECKING:
        container_logs: Any
        do_xcom_push: bool
        get_logs: bool
        unwrap_single: bool

        @property
        def _only_starts(self) -> bool: ...

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
