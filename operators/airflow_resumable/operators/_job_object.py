# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A Job as the shared adapter wants it: made, read, marked and deleted, its pods with it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.utils.pod_manager import PodManager

from airflow_resumable.operators import _job_pods as its
from airflow_resumable.operators import _job_state as state
from airflow_resumable.operators._kubernetes_adapter import KubernetesAdapter
from airflow_resumable.operators._pod_state import PodReader

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue


class JobObject(KubernetesAdapter):
    """A Job and its pods, which may outlive it."""

    if TYPE_CHECKING:
        base_container_name: str
        build_job_request_obj: Any
        callbacks: Any
        client: Any
        job_client: Any
        on_kill_propagation_policy: Any
        termination_grace_period: int | None

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

    def _left_at_work(self, external_id: Any) -> list[Any]:
        _, namespace, uid = self._parts(external_id)
        if uid is None:
            return []
        return state.at_work(its.pods_without_job(self.client, namespace, uid), self._reader)

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
