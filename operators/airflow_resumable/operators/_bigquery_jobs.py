# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of BigQuery: where one is, what it is called, and requests about it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from google.api_core.exceptions import NotFound

from airflow_resumable.jobs.errors import JobNotFound
from airflow_resumable.operators import _bigquery_parent as _parent

if TYPE_CHECKING:
    from airflow.providers.google.cloud.hooks.bigquery import BigQueryHook

_log = logging.getLogger(__name__)

TOKEN_LABEL = "airflow-resumable-token"
LONGEST_ID = 1024
"""Characters, https://cloud.google.com/bigquery/docs/reference/rest/v2/JobReference."""
CANCEL_LIMIT = 1.5
"""Seconds that a cancel may take: a task that dies has two."""
REQUEST_LIMIT = 60.0
"""Seconds for any other request, beyond what it is told to wait."""

_FIRST_PAUSE, _PAUSE_GROWTH, _LONGEST_PAUSE = 1.0, 1.5, 20.0
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job is: a part of its name, as BigQuery has it.

    Args:
        project: The project that runs it.
        location: Region or multi-region; None where nobody has said so far.
    """

    project: str
    location: str | None = None

    @classmethod
    def of(cls, recorded: Any) -> Self | None:
        """Return what was put on record with `recorded`, None where that is something else."""
        if not isinstance(recorded, Mapping) or not recorded.get("project"):
            return None
        return cls(str(recorded["project"]), recorded.get("location"))

    @classmethod
    def of_job(cls, job: Any) -> Self:
        """Return where a job of Google's client is."""
        return cls(job.project, job.location)

    @property
    def recorded(self) -> dict[str, Any]:
        """The place as JSON."""
        return asdict(self)


def named(prefix: str, token: str) -> str:
    """Return a job's id.

    Raises:
        ValueError: BigQuery doesn't take such an id; says which part of it is wrong.
    """
    job_id = f"{prefix}_{token}"
    if bad := sorted(set(_NOT_IN_AN_ID.findall(prefix))):
        raise ValueError(
            f"job_id={prefix!r} is not allowed: {' '.join(bad)!r} can't be in a BigQuery job's id; use "
            "letters, digits, '_' and '-'"
        )
    if len(job_id) > LONGEST_ID:
        raise ValueError(
            f"job_id={prefix!r} is not allowed: with the token the id has {len(job_id)} characters, and "
            f"BigQuery takes {LONGEST_ID}; use {LONGEST_ID - 1 - len(token)} at most"
        )
    return job_id


def stock_prefix(dag_id: str, task_id: str, moment: Any) -> str:
    """Return the beginning of the id that the provider's operator gives a job without `job_id`."""
    stamp = moment.isoformat() if moment is not None else ""
    return _NOT_IN_AN_ID.sub("_", f"airflow_{dag_id}_{task_id}_{stamp}").replace("-", "_")


def status_of(job: Any) -> str:
    """Return a job's status in a word: its state, or how it ended, with the reason of a failure."""
    if job.state != "DONE":
        return str(job.state)
    if not job.error_result:
        return "success"
    reason = job.error_result.get("reason")
    return f"error: {reason}" if reason else "error"


class JobClient:
    """Requests about jobs, each sent once: repeating is the protocol's part.

    Args:
        hook: The connection.
        retry: A `google.api_core.retry.Retry` of the user's own, None for none.
        timeout: Seconds for a request; `REQUEST_LIMIT` unless given.
    """

    def __init__(self, hook: BigQueryHook, retry: Any = None, timeout: float | None = None) -> None:
        self.hook = hook
        self._retry = retry
        self._timeout = timeout or REQUEST_LIMIT
        self._clients: dict[str, Any] = {}

    def get(self, job_id: str, place: Place) -> Any:
        """Return a job.

        Raises:
            JobNotFound: There is none of this id in this place.
        """
        client = self._client(place.project)
        try:
            return client.get_job(
                job_id,
                project=place.project,
                location=place.location,
                retry=self._retry,
                timeout=self._timeout,
            )
        except NotFound as error:
            raise JobNotFound(f"job {job_id!r} in {place}: {error}") from error

    def cancel(self, job_id: str, place: Place) -> None:
        """Ask for a job's end, within `CANCEL_LIMIT` seconds.

        Raises:
            JobNotFound: There is none of this id in this place.
        """
        # The one at hand may have been stopped in the middle of a request.
        client: Any = self.hook.get_client(project_id=place.project)
        try:
            client.cancel_job(
                job_id, project=place.project, location=place.location, retry=None, timeout=CANCEL_LIMIT
            )
        except NotFound as error:
            raise JobNotFound(f"job {job_id!r} in {place}: {error}") from error
        finally:
            client.close()

    def await_query(self, job_id: str, place: Place, seconds: float) -> bool:
        """Wait for a query's end and say whether it came, by ``jobs.getQueryResults`` without rows.

        How the query ended isn't told here: an answer may be the failure of the query or of the request.
        """
        client = self._client(place.project)
        found = client._get_query_results(
            job_id,
            retry=None,
            project=place.project,
            timeout_ms=int(seconds * 1000),
            location=place.location,
            timeout=seconds + self._timeout,
        )
        return bool(found.complete)

    def close(self) -> None:
        """Let go of the connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _client(self, project: str) -> Any:
        if project not in self._clients:
            client: Any = self.hook.get_client(project_id=project)
            _parent.check_client(client, _parent.CLIENT)
            self._clients[project] = client
        return self._clients[project]


class Pause:
    """The time between two looks at a running job.

    A query is waited for by a request that BigQuery itself keeps waiting; any other job by pauses that grow
    from one second to twenty, as with Google's own client. Never more requests than the provider sends.

    Args:
        job_id, place: The job.
        long_poll: Seconds for a query's request to wait.
    """

    def __init__(self, job_id: str, place: Place, long_poll: float) -> None:
        self._job_id = job_id
        self._place = place
        self._long_poll = long_poll
        self._next = _FIRST_PAUSE

    def __call__(self, client: JobClient, *, is_query: bool) -> None:
        """Wait once."""
        started, seconds = time.monotonic(), self._next
        if is_query:
            seconds = min(seconds, self._long_poll)
            try:
                if client.await_query(self._job_id, self._place, self._long_poll):
                    seconds = 0.0 if self._next == _FIRST_PAUSE else seconds
            except Exception as error:
                # Whatever it is, the next look says whether it was the query's end or the request's.
                _log.debug("waiting for query %s: %s: %s", self._job_id, type(error).__name__, error)
        self._next = min(self._next * _PAUSE_GROWTH, _LONGEST_PAUSE)
        left = seconds - (time.monotonic() - started)
        if left > 0:
            time.sleep(left)
