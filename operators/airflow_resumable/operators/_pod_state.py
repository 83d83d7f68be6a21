# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a pod is doing, in words: by its main container, by its phase, by the time that it takes to start.

See https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

PENDING = "Pending"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
SKIPPED = "Skipped"
TERMINATING = "Terminating"

ACTIVE = frozenset({PENDING, RUNNING})


def has_failed(state: str) -> bool:
    """Say whether a state means an end without success."""
    return state.partition(":")[0] == FAILED


def has_succeeded(state: str) -> bool:
    """Say whether a state means success, or an exit code that is to skip the task."""
    return state == SUCCEEDED or state.partition(":")[0] == SKIPPED


@dataclass(frozen=True, slots=True)
class PodReader:
    """Reads the state of pods of one operator.

    Args:
        container: The main container, which decides: a sidecar may keep its pod Running, or fail after it.
        schedule_timeout: Seconds that a pod may take until it has a node.
        startup_timeout: Seconds that it may take from there until it runs.
        skip_codes: Exit codes that skip the task.
    """

    container: str
    schedule_timeout: float = 120.0
    startup_timeout: float = 120.0
    skip_codes: Container[int] = ()

    def state(self, pod: Any, now: datetime | None) -> str:
        """Return a pod's state.

        Args:
            pod: The pod.
            now: By the API server's clock; None: a pod that doesn't start is Pending for ever.
        """
        ended, phase = self.ended(pod), pod.status.phase
        if was_ended_as_a_whole(pod) and (ended is None or ended.exit_code == 0):
            # Evicted, say: what traps SIGTERM and exits with 0 has not done its work.
            return f"{FAILED}: {pod.status.reason}"
        if ended is not None and ended.exit_code == 0 and was_ended_by_its_deletion(pod, ended):
            return TERMINATING
        if ended is not None:
            return self._by_exit(ended)
        if phase == SUCCEEDED:
            return SUCCEEDED
        if phase == FAILED:
            return f"{FAILED}: {pod.status.reason or pod.status.message or 'no reason was given'}"
        if pod.metadata.deletion_timestamp:
            return TERMINATING
        problem = _cannot_start(pod)
        if problem:
            return f"{FAILED}: {problem}"
        if phase == PENDING and now is not None and (late := self._late(pod, now)):
            return f"{FAILED}: {late}"
        return str(phase)

    def ended(self, pod: Any) -> Any:
        """Return how the main container has ended, None before that."""
        status = self._status(pod)
        return status.state.terminated if status is not None and status.state else None

    def _status(self, pod: Any) -> Any:
        statuses = pod.status.container_statuses or ()
        return next((one for one in statuses if one.name == self.container), None)

    def _by_exit(self, ended: Any) -> str:
        if ended.exit_code == 0:
            return SUCCEEDED
        kind = SKIPPED if ended.exit_code in self.skip_codes else FAILED
        reason = f" ({ended.reason})" if ended.reason else ""
        return f"{kind}: exit code {ended.exit_code}{reason}"

    def _late(self, pod: Any, now: datetime) -> str | None:
        scheduled = next(
            (
                one
                for one in pod.status.conditions or ()
                if one.type == "PodScheduled" and one.status == "True"
            ),
            None,
        )
        if scheduled is None:
            waited, limit, what = now - pod.metadata.creation_timestamp, self.schedule_timeout, "scheduled"
        else:
            since = scheduled.last_transition_time or pod.metadata.creation_timestamp
            waited, limit, what = now - since, self.startup_timeout, "started"
        return f"not {what} within {limit:g} s" if waited.total_seconds() > limit else None


def was_ended_as_a_whole(pod: Any) -> bool:
    """Say whether a pod was ended from outside: evicted, preempted, past its deadline, with its node."""
    return pod.status.phase == FAILED and bool(pod.status.reason)


def was_ended_by_its_deletion(pod: Any, ended: Any) -> bool:
    """Say whether a container has ended since its pod's deletion was asked for: a drain, say.

    Times are in whole seconds; an end in the same second counts as one by the deletion.
    """
    until = pod.metadata.deletion_timestamp
    if until is None or ended.finished_at is None:
        return False
    grace = pod.metadata.deletion_grace_period_seconds or 0
    return bool(ended.finished_at >= until - timedelta(seconds=grace))


def _cannot_start(pod: Any) -> str | None:
    from airflow.providers.cncf.kubernetes.utils.pod_manager import detect_pod_terminate_early_issues

    problem = detect_pod_terminate_early_issues(pod)
    return " ".join(problem.split()) if problem else None
