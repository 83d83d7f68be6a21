# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What an attempt may be told to do next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_resumable.jobs.adapter import FoundJob


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do next, with the reason that goes into the log."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stand(Step):
    """Superseded: do nothing at all to the record or the job."""


@dataclass(frozen=True, slots=True)
class Import(Step):
    """Take the job under the parent operator's key for the current one."""

    external_id: Any
    generation: int
    max_tries: int


@dataclass(frozen=True, slots=True)
class AskStatus(Step):
    """Ask the service for the status of a job."""

    external_id: Any


@dataclass(frozen=True, slots=True)
class LookUpToken(Step):
    """Find the jobs that carry a token."""

    token: str
    since: datetime


@dataclass(frozen=True, slots=True)
class LookUpFamily(Step):
    """Find the jobs of all generations of this task instance."""

    since: datetime


@dataclass(frozen=True, slots=True)
class Sweep(Step):
    """Cancel what is alive of the earlier generations, or only wait for it, until it is gone."""

    ids: tuple[Any, ...]
    tokens: tuple[str, ...]
    since: datetime
    whole_family: bool
    cancels: bool = True


@dataclass(frozen=True, slots=True)
class Settle(Step):
    """Wait until a job that is stopping has ended."""

    external_id: Any


@dataclass(frozen=True, slots=True)
class Submit(Step):
    """Start a job: write the intent (again, when the token is an old one), then submit."""

    generation: int
    token: str
    same_token: bool = False


@dataclass(frozen=True, slots=True)
class Adopt(Step):
    """Put a job that was found on record as the current one; `max_tries` None is the attempt's own."""

    found: FoundJob
    generation: int
    token: str
    max_tries: int | None = None


@dataclass(frozen=True, slots=True)
class Watch(Step):
    """Follow the job on record to its end."""

    external_id: Any


@dataclass(frozen=True, slots=True)
class Finish(Step):
    """Return the result of a job that has succeeded."""

    external_id: Any


@dataclass(frozen=True, slots=True)
class Fail(Step):
    """End the attempt without a submit; `error` names a class of `airflow_resumable.jobs.errors`."""

    error: str
    external_id: Any = None
