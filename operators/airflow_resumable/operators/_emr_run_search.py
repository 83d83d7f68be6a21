# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the lists of job runs say: their states, and which of them carry a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from airflow_resumable.jobs.errors import ResumableJobFatal

MOST_PAGES = 400
"""Pages of runs that a lookup reads, at most: of EMR Serverless 20,000 runs."""


@dataclass(frozen=True, slots=True)
class RunStates:
    """The service's own words for a run's state.

    Args:
        active: Yet to start, or at work.
        succeeded: Has done its work.
        failed: Has ended without success.
        stopping: Was told to end, and has not ended yet.
    """

    active: frozenset[str]
    succeeded: str
    failed: frozenset[str]
    stopping: str


def carrying_tokens(
    pages: Iterator[Sequence[Mapping[str, Any]]],
    token_of: Callable[[Mapping[str, Any]], str | None],
    where: str,
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the runs of a list that carry a token, each with it.

    Args:
        pages: The list.
        token_of: Reads it from a run.
        where: What the list is of, for messages.

    Raises:
        ResumableJobFatal: The list is too long to be read to its end.
    """
    for page in islice(pages, MOST_PAGES):
        for run in page:
            token = token_of(run)
            if token is not None:
                yield run, token
    if next(pages, None):
        raise ResumableJobFatal(
            f"{where} has more job runs than are read ({MOST_PAGES} pages), so nobody can say whether this "
            "task's is among them; look for its name in the service, then clear the task"
        )
