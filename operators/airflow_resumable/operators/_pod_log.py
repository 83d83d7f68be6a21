# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a pod tells while it starts, runs and ends: its events, its containers' logs, the callbacks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.utils.xcom_sidecar import PodDefaults

from airflow_resumable.operators._kubernetes_adapter import KubernetesAdapter

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_resumable.operators._pod_state import PodReader

_OTHER_LOGS_EVERY = 30.0
"""Seconds between two looks at logs that can't be followed to the main container's end."""


class PodLog(KubernetesAdapter):
    """Writes each log once, and never lets one that can't be read end anything."""

    _events_seen: set[str]
    _events_failed: bool
    _other_logs_at: float

    if TYPE_CHECKING:
        base_container_name: str
        callbacks: Any
        client: Any
        container_logs: Any
        container_name_log_prefix_enabled: bool
        get_logs: bool
        init_container_logs: Any
        log_events_on_startup: bool
        log_formatter: Any
        pod_manager: Any
        _write_logs: Any

        @cached_property
        def _reader(self) -> PodReader: ...

    def _tell_start(self, context: Context) -> None:
        if self._once("starting"):
            self._show_init_logs()
            self._call_back("on_pod_starting", context, pod=self.seen)

    def _follow(self) -> bool:
        """Write the container's log for as long as it runs; False where that broke off."""
        from airflow_resumable.operators._kubernetes_api import is_status

        if "log refused" in self._told:
            return False
        followed = self.container_logs
        if followed is not True and self.base_container_name not in _names(followed):
            # Another container may outlive the main one, so it isn't followed.
            if time.monotonic() - self._other_logs_at >= _OTHER_LOGS_EVERY:
                self._other_logs_at = time.monotonic()
                self._write_other_logs()
            return False
        try:
            self.pod_manager.fetch_requested_container_logs(
                pod=self.seen,
                containers=self.base_container_name,
                follow_logs=True,
                container_name_log_prefix_enabled=self.container_name_log_prefix_enabled,
                log_formatter=self.log_formatter,
            )
        except Exception as error:
            name = self._name_of_seen()
            if is_status(error, 403):
                self._told.add("log refused")
                self.log.warning("The log of pod %s is refused (%s); watching without it", name, error)
            else:
                self.log.warning("The log of pod %s broke off (%s); watching the pod on", name, error)
            return False
        self._told.add("log")
        return True

    def _write_other_logs(self) -> None:
        others: Any = self.container_logs
        if others is not True:
            others = [name for name in _names(others) if name != self.base_container_name]
            if not others:
                return
        elif len(self.seen.spec.containers) == 1:
            return
        try:
            self.pod_manager.fetch_requested_container_logs(
                pod=self.seen,
                containers=[name for name in self._containers() if others is True or name in others],
                follow_logs=False,
                container_name_log_prefix_enabled=self.container_name_log_prefix_enabled,
                log_formatter=self.log_formatter,
            )
        except Exception as error:
            self.log.warning("Logs of pod %s can't be read: %s", self._name_of_seen(), error)

    def _containers(self) -> list[str]:
        sidecar = PodDefaults.SIDECAR_CONTAINER_NAME
        names = [one.name for one in self.seen.spec.containers if one.name != sidecar]
        return [name for name in names if name != self.base_container_name]

    def _show_events(self) -> None:
        if not self.log_events_on_startup or self._events_failed:
            return
        try:
            for event in self.pod_manager.read_pod_events(self.seen).items:
                if event.metadata.uid not in self._events_seen:
                    self._events_seen.add(event.metadata.uid)
                    self.log.info("The pod has an event: %s", event.message)
        except Exception as error:
            self._events_failed = True
            self.log.warning("Events of pod %s are not read any more: %s", self._name_of_seen(), error)

    def _show_init_logs(self) -> None:
        if not self.init_container_logs:
            return
        try:
            self.pod_manager.fetch_requested_init_container_logs(
                pod=self.seen,
                init_containers=self.init_container_logs,
                follow_logs=True,
                container_name_log_prefix_enabled=self.container_name_log_prefix_enabled,
                log_formatter=self.log_formatter,
            )
        except Exception as error:
            self.log.warning("Logs of init containers of pod %s: %s", self._name_of_seen(), error)

    def _tell_end(self, context: Context) -> None:
        """Write what the logs still hold and tell the callbacks, once an operator."""
        if not self._once("end"):
            return
        if not self.deferrable and self.seen is not None and self._reader.ended(self.seen) is not None:
            # It was faster than two looks.
            self._tell_start(context)
        if self.get_logs and self.seen is not None and self.seen.spec is not None:
            if "log" not in self._told and self._reader.ended(self.seen) is not None:
                self._write_whole_log()
            self._write_other_logs()
        self._call_back("on_pod_completion", context, pod=self.seen)
        self._call_back("on_pod_teardown", context, pod=self.seen)

    def _write_whole_log(self) -> None:
        try:
            self._write_logs(self.seen)
        except Exception as error:
            # An evicted pod has none: 400.
            self.log.warning("The log of pod %s can't be read: %s", self._name_of_seen(), error)

    def _name_of_seen(self) -> str:
        return str(self.seen.metadata.name) if self.seen is not None else "?"

    def _call_back(self, what: str, context: Context, **about: Any) -> None:
        from airflow.providers.cncf.kubernetes.callbacks import ExecutionMode

        for callback in self.callbacks:
            getattr(callback, what)(
                client=self.client, mode=ExecutionMode.SYNC, context=context, operator=self, **about
            )


def _names(logs: Any) -> Sequence[str]:
    return [logs] if isinstance(logs, str) else list(logs or ())
