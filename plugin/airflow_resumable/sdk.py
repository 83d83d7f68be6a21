# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Everything a Dag author imports, under Airflow's own names; loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_resumable.jobs.adapter import FoundJob, JobAdapter, Observation, SubmitWindow
    from airflow_resumable.jobs.errors import (
        JobAmbiguous,
        JobFailed,
        JobKept,
        JobMissing,
        JobNotCancelled,
        JobNotFound,
        JobNotSettled,
        JobSuperseded,
        RecordUnreadable,
        ResumableJobError,
        StatusBudgetExhausted,
        StoreUnavailable,
        TokenConflict,
    )
    from airflow_resumable.jobs.events import ResumeDecision, add_decision_hook
    from airflow_resumable.jobs.mixin import ResumableJobMixin
    from airflow_resumable.jobs.policies import ResumePolicy
    from airflow_resumable.jobs.taskflow import ExternalJob, resumable_job

__all__ = [
    "ExternalJob",
    "FoundJob",
    "JobAdapter",
    "JobAmbiguous",
    "JobFailed",
    "JobKept",
    "JobMissing",
    "JobNotCancelled",
    "JobNotFound",
    "JobNotSettled",
    "JobSuperseded",
    "Observation",
    "RecordUnreadable",
    "ResumableJobError",
    "ResumableJobMixin",
    "ResumeDecision",
    "ResumePolicy",
    "StatusBudgetExhausted",
    "StoreUnavailable",
    "SubmitWindow",
    "TokenConflict",
    "add_decision_hook",
    "resumable_job",
]

_HOMES = {
    "FoundJob": "adapter",
    "JobAdapter": "adapter",
    "Observation": "adapter",
    "SubmitWindow": "adapter",
    "ResumableJobMixin": "mixin",
    "ResumePolicy": "policies",
    "ResumeDecision": "events",
    "add_decision_hook": "events",
    "ExternalJob": "taskflow",
    "resumable_job": "taskflow",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"airflow_resumable.jobs.{_HOMES.get(name, 'errors')}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
