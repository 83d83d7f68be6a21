# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a Job is doing, in words: by its conditions, and where other containers linger by its main ones.

See https://kubernetes.io/docs/concepts/workloads/controllers/job/#terminal-job-conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow_resumable.operators._pod_state import PodReader, was_ended_as_a_whole, was_ended_by_its_deletion

COMPLETE = "Complete"
BY_CONTAINERS = "Complete: by its main containers"
"""Enough main containers have succeeded, while others keep their pods running."""
FAILED = "Failed"
PENDING = "Pending"
RUNNING = "Running"
SUSPENDED = "Suspended"
COMPLETING = "Completing"
FAILING = "Failing"
TERMINATING = "Terminating"
STARTED = "Started"
"""All that counts of a Job that nobody waits for."""

ACTIVE = frozenset({PENDING, RUNNING, SUSPENDED, COMPLETING, FAILING})

_INDEX = "batch.kubernetes.io/job-completion-index"

HELD_FOR = timedelta(minutes=2)
"""How long other containers may outlive a main one before its pod counts as one that doesn't end."""


def state_of(job: Any) -> str:
    """Return a Job's state by its conditions; an end counts also where the Job is being deleted."""
    conditions = (job.status.conditions if job.status else None) or ()
    true = {one.type: one for one in conditions if one.status == "True"}
    if "Complete" in true:
        return COMPLETE
    if "Failed" in true:
        return f"{FAILED}: {true['Failed'].reason or true['Failed'].message or 'no reason was given'}"
    if job.metadata.deletion_timestamp:
        return TERMINATING
    if "SuccessCriteriaMet" in true:
        return COMPLETING
    if "FailureTarget" in true:
        return FAILING
    if "Suspended" in true:
        return SUSPENDED
    return RUNNING if job.status and job.status.active else PENDING


def has_succeeded(state: str) -> bool:
    """Say whether a state means success, or that all was done that was asked for."""
    return state in (COMPLETE, BY_CONTAINERS, STARTED)


def has_failed(state: str) -> bool:
    """Say whether a state means an end without success."""
    return state.partition(":")[0] == FAILED


def is_final(job: Any) -> bool:
    """Say whether the Job controller has done with a Job."""
    said = state_of(job)
    return said == COMPLETE or has_failed(said)


def has_other_containers(job: Any) -> bool:
    """Say whether a Job's pods have more than the main container, which then decides."""
    return len(job.spec.template.spec.containers) > 1


def at_work(pods: Iterable[Any], reader: PodReader) -> list[Any]:
    """Return the pods whose main container may still do something."""
    return [pod for pod in pods if not _is_over(pod) and reader.ended(pod) is None]


def succeeded(pods: Iterable[Any], reader: PodReader) -> list[Any]:
    """Return the pods whose main container has ended with 0."""
    ended = ((pod, reader.ended(pod)) for pod in pods)
    return [
        pod
        for pod, end in ended
        if end is not None
        and end.exit_code == 0
        and not (was_ended_as_a_whole(pod) or was_ended_by_its_deletion(pod, end))
    ]


def by_containers(job: Any, pods: Sequence[Any], reader: PodReader, now: datetime) -> str | None:
    """Return the end of a Job whose pods don't end, for another container of theirs goes on; else None.

    Args:
        job: The Job, which has no condition that says its end.
        pods: All of its pods that there are.
        reader: Reads the main container's end.
        now: By the API server's clock.
    """
    spec, status = job.spec, job.status
    gone = max(0, ((status and status.succeeded) or 0) - sum(one.status.phase == "Succeeded" for one in pods))
    good, working = _count(job, succeeded(pods, reader), gone), at_work(pods, reader)
    if spec.completions is None:
        # A work queue: one success, and nobody at work any more.
        all_seen = len(pods) + gone >= (1 if spec.parallelism is None else spec.parallelism)
        if good and not working and all_seen:
            return BY_CONTAINERS
    elif good >= spec.completions:
        return BY_CONTAINERS
    held = {pod.metadata.name: reader.ended(pod) for pod in pods if not _is_over(pod)}
    if not held or working:
        return None
    if all(end.finished_at and now - end.finished_at > HELD_FOR for end in held.values()):
        name, end = next(iter(held.items()))
        return (
            f"{FAILED}: the main container of pod {name} has ended (exit code {end.exit_code}), and another "
            "one keeps the pod running, so the Job can't go on"
        )
    return None


def _count(job: Any, pods: Sequence[Any], gone: int) -> int:
    if job.spec.completion_mode != "Indexed":
        return len(pods) + gone
    # An index may be run twice; of pods that are gone nobody can say which they were.
    return len({(pod.metadata.annotations or {}).get(_INDEX) for pod in pods})


def _is_over(pod: Any) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")
