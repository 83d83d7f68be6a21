# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The pods of a Job: found by the Job's own selector and uid, told apart by theirs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from airflow.providers.cncf.kubernetes.utils.pod_manager import PodManager
from airflow.providers.cncf.kubernetes.utils.xcom_sidecar import PodDefaults

RESULT_ANNOTATION = "airflow-resumable/result"
"""Where a pod's result waits once its XCom sidecar had to make room for the Job's next pod."""
JOB_UID_LABEL = "controller-uid"
"""See https://kubernetes.io/docs/reference/labels-annotations-taints/#controller-uid."""

_EVER = datetime(1970, 1, 1, tzinfo=UTC)


def pods_of(client: Any, job: Any) -> list[Any]:
    """Return a Job's pods, in the order of their names."""
    from airflow_resumable.operators._kubernetes_api import listed

    selector = selector_of(job)
    found = listed(client.list_namespaced_pod, job.metadata.namespace, selector, _EVER)
    uid = job.metadata.uid
    return [pod for pod in found if any(one.uid == uid for one in pod.metadata.owner_references or ())]


def pods_without_job(client: Any, namespace: str, uid: str) -> list[Any]:
    """Return the pods of a Job that is gone: they may outlive it, with an owner or as orphans."""
    from airflow_resumable.operators._kubernetes_api import listed

    return listed(client.list_namespaced_pod, namespace, f"{JOB_UID_LABEL}={uid}", _EVER)


def selector_of(job: Any) -> str:
    """Return the selector by which the Job controller finds the Job's pods, as a list call wants it."""
    selector = job.spec.selector
    parts = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    for one in selector.match_expressions or ():
        match one.operator:
            case "Exists":
                parts.append(one.key)
            case "DoesNotExist":
                parts.append(f"!{one.key}")
            case operator:
                parts.append(f"{one.key} {operator.lower()} ({','.join(one.values)})")
    return ",".join(parts)


def sidecar_state(pod: Any) -> Any:
    """Return the state of a pod's XCom sidecar; None before it has one."""
    statuses = (pod.status.container_statuses if pod.status else None) or ()
    return next((one.state for one in statuses if one.name == PodDefaults.SIDECAR_CONTAINER_NAME), None)


def sidecar_runs(pod: Any) -> bool:
    """Say whether a pod's XCom sidecar runs, so that its result can be read."""
    state = sidecar_state(pod)
    return state is not None and state.running is not None


def manager_of_uids(client: Any, callbacks: Any, delete: Callable[[Any], None]) -> PodManager:
    """Return the parent's manager; what it deletes is the pod of the uid that it was shown, or none."""

    class OfOneUid(PodManager):
        def delete_pod(self, pod: Any) -> None:
            from airflow_resumable.operators._kubernetes_api import is_status

            try:
                delete(pod)
            except Exception as error:
                if not is_status(error, 404, 409):
                    raise

    return OfOneUid(kube_client=client, callbacks=callbacks)
