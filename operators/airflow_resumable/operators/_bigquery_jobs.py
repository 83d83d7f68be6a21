# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of BigQuery: where one is, and requests about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from google.api_core.exceptions import NotFound
from google.cloud.bigquery import QueryJobConfig

from airflow_resumable.jobs.errors import JobNotFound
from airflow_resumable.operators import _bigquery_parent as _parent

if TYPE_CHECKING:
    from airflow.providers.google.cloud.hooks.bigquery import BigQueryHook

TOKEN_LABEL = "airflow-resumable-token"
MOST_LABELS = 64
"""Of one job, https://cloud.google.com/bigquery/docs/labels-intro."""
CANCEL_LIMIT = (0.5, 1.0)
"""Seconds for a cancel to connect and to be answered: a task that dies has two."""
REQUEST_LIMIT = 60.0
"""Seconds for any other request, beyond what it is told to wait."""
SHOWN_WITHIN = 200.0
"""Seconds after which a job that BigQuery has named is missing if it is not found, as in Google's client."""
KNOWN_STATES = ("PENDING", "RUNNING", "DONE")
"""https://cloud.google.com/bigquery/docs/reference/rest/v2/Job#jobstatus"""


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


def status_of(job: Any) -> str:
    """Return a job's status in a word: its state, or how it ended, with the reason of a failure."""
    if job.state not in KNOWN_STATES:
        # In words of ours, which no state can be taken for.
        return f"state {job.state!r}"
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
        """Ask for a job's end, within `CANCEL_LIMIT`; a token that has to be renewed first has as long again.

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

    def location_of_query(self, query: Mapping[str, Any], place: Place) -> str | None:
        """Return where BigQuery would run a query, by a dry run of it."""
        # A session is begun by the job itself.
        asked = {name: value for name, value in query.items() if name != "createSession"}
        config = QueryJobConfig.from_api_repr({"query": asked, "dryRun": True})
        job = self._client(place.project).query(
            str(query.get("query", "")),
            job_config=config,
            project=place.project,
            retry=self._retry,
            job_retry=None,
            timeout=self._timeout,
        )
        location: str | None = job.location
        return location

    def location_of_dataset(self, dataset: str, place: Place) -> str | None:
        """Return where a dataset, named with its project, is."""
        found = self._client(place.project).get_dataset(dataset, retry=self._retry, timeout=self._timeout)
        location: str | None = found.location
        return location

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
