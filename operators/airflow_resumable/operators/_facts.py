# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What an operator says of its service: read by the docs, checked by tests against what it can do."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from airflow_resumable.jobs.adapter import SubmitWindow


@dataclass(frozen=True, slots=True)
class Permission:
    """One thing that the operator's user must be allowed.

    Args:
        group: API group, empty for Kubernetes' core; a service's own name elsewhere.
        resource: The resource, with a subresource after a slash.
        verbs: What is done with it.
        why: What needs it.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """What one service lets an operator promise.

    Args:
        service: The service.
        submit_window: How far it lets the gap between accepted and recorded be closed.
        window: What remains open, in a sentence.
        token: Where the token stands in the service.
        memory: How long the service remembers a job and its token.
        cancel: What a cancel does there.
        retries, retry_delay: The smallest sensible settings of a task.
        retries_why: Why these.
        permissions: What the operator's user must be allowed.
    """

    service: str
    submit_window: SubmitWindow
    window: str
    token: str
    memory: str
    cancel: str
    retries: int
    retry_delay: timedelta
    retries_why: str
    permissions: tuple[Permission, ...] = field(default=())
