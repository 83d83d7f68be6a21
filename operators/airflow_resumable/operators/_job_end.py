# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What is done with a Job and its pods once the outcome is on record."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs.adapter import Observation
from airflow_resumable.operators import _job_pods as its
from airflow_resumable.operators import _job_state as state
from airflow_resumable.operators._job_result import JobResult

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

_END_LIMIT = 60.0
"""Seconds that a Job may take to end once its main containers have and its sidecars were told to."""


class JobEnd(JobResult):
    """Tidies up pods as the parent does, and a Job that other containers keep from ending."""

    if TYPE_CHECKING:
        job_poll_interval: float
        on_finish_action: Any
        post_complete_action: Any
        wait_until_job_complete: bool

        def _push_job(self, context: Context) -> None: ...

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
