# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One job as the service remembers it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_resumable.testing.jobservice.payload import JobSpec

JobId = str | int


class Status(StrEnum):
    """The states of a job."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def finished(self) -> bool:
        """Whether a job in this state stays in it."""
        return self in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the service remembers it."""

    number: int
    id: JobId
    spec: JobSpec
    status: Status
    exit_code: int | None
    result: Any
    reason: str | None
    pid: int | None
    pid_ticks: int | None
    submitted_at: float
    started_at: float | None
    finished_at: float | None
    forgotten: bool

    def public(self) -> dict[str, Any]:
        """Return the job as replies show it; times are epoch seconds."""
        return {
            "id": self.id,
            "status": str(self.status),
            "exit_code": self.exit_code,
            "result": self.result,
            "reason": self.reason,
            "pid": self.pid,
            "token": self.spec.token,
            "family": self.spec.family,
            "name": self.spec.name,
            "location": self.spec.location,
            "submitted_at": self.submitted_at,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
        }
