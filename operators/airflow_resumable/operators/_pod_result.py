# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a pod's main container left for an XCom, in a sidecar that holds it until the result is on record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.utils.pod_manager import EMPTY_XCOM_RESULT
from airflow.providers.cncf.kubernetes.utils.xcom_sidecar import PodDefaults
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.operators import _pod_state as state
from airflow_resumable.operators._pod_log import PodLog

if TYPE_CHECKING:
    from airflow.sdk import Context


class PodResult(PodLog):
    """Reads a pod's result, and ends the sidecar once nobody needs it any more."""

    if TYPE_CHECKING:
        _push_xcom_with_fan_out: Any

    def _read_xcom(self, pod: Any, why: str) -> Any:
        from airflow_resumable.jobs.errors import JobNotFound
        from airflow_resumable.operators._kubernetes_api import is_status, said_by_stream

        try:
            text = self.pod_manager.extract_xcom_json(pod)
        except Exception as raised:
            error = said_by_stream(raised)
            # A result that is no JSON stays so; a connection may come back, and fresh credentials help.
            may_help = self.is_transient_error(error) or is_status(error, 401)
            if may_help and not isinstance(error, ValueError):
                raise error from raised
            attempt = self._resumable_attempt
            if attempt is not None and attempt.record is not None and attempt.record.phase == "succeeded":
                # An earlier try has read it: its clean-up has begun to take the pod away.
                raise JobNotFound(f"{why}: {type(error).__name__}: {error}") from error
            if attempt is not None:
                # Left as it is, the sidecar would keep the pod running for ever.
                attempt.record_failure(f"{state.FAILED}: {why}")
            raise AirflowException(f"{why}: {type(error).__name__}: {error}") from error
        return None if text.rstrip() == EMPTY_XCOM_RESULT else json.loads(text)

    def _push_result_of_failure(self, pod: Any, context: Context) -> None:
        try:
            text = self.pod_manager.extract_xcom_json(pod)
            value = None if text.rstrip() == EMPTY_XCOM_RESULT else json.loads(text)
            self._push_xcom_with_fan_out(context["ti"], value)
        except Exception as error:
            name = self._name_of_seen()
            self.log.warning("The XCom of the failed pod %s can't be read: %s", name, error)

    def _sidecar_runs(self, pod: Any) -> bool:
        from airflow.providers.cncf.kubernetes.utils.container import container_is_running

        return bool(container_is_running(pod, PodDefaults.SIDECAR_CONTAINER_NAME))

    def _sidecar_is_yet_to_start(self, pod: Any) -> bool:
        statuses = pod.status.container_statuses or ()
        found = [one for one in statuses if one.name == PodDefaults.SIDECAR_CONTAINER_NAME]
        return bool(found and found[0].state and found[0].state.waiting)

    def _end_sidecar(self, pod: Any) -> None:
        try:
            self.pod_manager.extract_xcom_kill(pod)
        except Exception as error:
            self.log.warning(
                "The XCom sidecar of pod %s can't be ended (%s: %s); it runs until the pod is deleted",
                self._name_of_seen(),
                type(error).__name__,
                error,
            )
