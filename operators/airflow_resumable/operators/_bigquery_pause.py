# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The time between two looks at a running job of BigQuery."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_resumable.operators._bigquery_jobs import JobClient, Place

_log = logging.getLogger(__name__)

_FIRST, _GROWTH, _LONGEST = 1.0, 1.5, 20.0
"""Seconds, as Google's own client waits for a job that is no query."""


class Pause:
    """Waits for one job, between two looks at it.

    A query is waited for by a request that BigQuery itself keeps waiting, and looked at once that is
    answered. Answers that come early, again and again, while the query runs on, are slowed down like the
    looks at any other job: by pauses that grow from one second to twenty. Never more requests than the
    provider's.

    Args:
        job_id, place: The job.
        long_poll: Seconds for a query's request to wait.
    """

    def __init__(self, job_id: str, place: Place, long_poll: float) -> None:
        self._job_id = job_id
        self._place = place
        self._long_poll = long_poll
        self._early = 0
        self._next = _FIRST

    def __call__(self, client: JobClient, *, is_query: bool) -> None:
        """Wait once."""
        if is_query and self._await(client):
            self._early, self._next = 0, _FIRST
            return
        self._early += 1
        if is_query and self._early == 1:
            # It has ended, most likely: the look that follows says so.
            return
        seconds, self._next = self._next, min(self._next * _GROWTH, _LONGEST)
        time.sleep(min(seconds, self._long_poll) if is_query else seconds)

    def _await(self, client: JobClient) -> bool:
        """Say whether the request has waited for as long as it was to, and the query runs on."""
        started = time.monotonic()
        try:
            ended = client.await_query(self._job_id, self._place, self._long_poll)
        except Exception as error:
            # The end of the query or of the request alone: the next look tells.
            _log.info("waiting for query %s: %s: %s; looking", self._job_id, type(error).__name__, error)
            return False
        return not ended and time.monotonic() - started >= self._long_poll / 2
