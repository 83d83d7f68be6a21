# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a job of BigQuery is called, put together before it is submitted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

from airflow_resumable.operators._arguments import refusal
from airflow_resumable.operators._bigquery_jobs import Place

LONGEST_ID = 1024
"""Characters, https://cloud.google.com/bigquery/docs/reference/rest/v2/JobReference."""
TOKEN_LENGTH = 33

_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Plan:
    """Name and place of a task's jobs, kept with the intent: the next try sends the same, edited or not.

    Args:
        prefix: The beginning of each id.
        place: Where they are to run.
        exact: Whether the first generation's id is the prefix itself: the provider's own, with no token.
    """

    prefix: str
    place: Place
    exact: bool = False

    @classmethod
    def of(cls, recorded: Any) -> Self | None:
        """Return what was put on record with `recorded`, None where that is something else."""
        place = Place.of(recorded)
        if place is None or not isinstance(recorded.get("prefix"), str):
            return None
        return cls(recorded["prefix"], place, recorded.get("exact") is True)

    @property
    def recorded(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {**self.place.recorded, "prefix": self.prefix, "exact": self.exact}

    def named(self, token: str) -> str:
        """Return the id that a token completes."""
        return f"{self.prefix}_{token}"


def check_job_id(job_id: Any) -> None:
    """Refuse what can't be the beginning of a job's id; None and nothing are fine.

    Raises:
        TypeError, ValueError: Naming the argument, the value and what is allowed.
    """
    if not job_id:
        return
    if not isinstance(job_id, str):
        raise TypeError(refusal("job_id", job_id, "a string of letters, digits, '_' and '-'"))
    longest = LONGEST_ID - 1 - TOKEN_LENGTH
    if _NOT_IN_AN_ID.search(job_id) or len(job_id) > longest:
        raise ValueError(
            refusal("job_id", job_id, f"letters, digits, '_' and '-', {longest} characters at most")
        )


def stock_prefix(dag_id: str, task_id: str, moment: Any) -> str:
    """Return the beginning of the id that the provider's operator gives a job without `job_id`.

    Names of Dags and tasks may have letters of any alphabet; the provider sends them, and BigQuery refuses.
    """
    stamp = moment.isoformat() if moment is not None else ""
    return _NOT_IN_AN_ID.sub("_", f"airflow_{dag_id}_{task_id}_{stamp}").replace("-", "_")
