# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Where BigQuery will run a job for which nobody names a location, asked before it is submitted.

BigQuery derives the location from the datasets, and outside of US and EU finds a job again only by it:
https://cloud.google.com/bigquery/docs/locations#specify_locations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from google.api_core.exceptions import ClientError

from airflow_resumable.operators._bigquery_jobs import Place

if TYPE_CHECKING:
    from airflow_resumable.jobs.service import JobService
    from airflow_resumable.operators._bigquery_jobs import JobClient

_log = logging.getLogger(__name__)

_DATASET_OF = {
    "load": ("destinationTable",),
    "copy": ("destinationTable",),
    "extract": ("sourceTable", "sourceModel"),
}


def located(
    connected: Callable[[], JobClient],
    place: Place,
    configuration: Mapping[str, Any],
    service: JobService | None,
) -> Place:
    """Return `place` with the location in which a job will run, None where BigQuery refuses to tell.

    Args:
        connected: Returns what sends the request: a dry run of a query, which costs nothing, else one for the
            metadata of the dataset.
        place: Where the job is to run.
        configuration: The job's.
        service: Repeats the request after transient errors.
    """

    def ask() -> str | None:
        return _location(connected(), place, configuration)

    if place.location is not None:
        return place
    try:
        location = ask() if service is None else service.ask("asking where the job will run", ask)
    except ClientError as refused:
        _log.warning(
            "BigQuery doesn't tell where the job will run (%s); it is submitted without a location. Give "
            "`location`: a clear looks for the job there",
            refused,
        )
        return place
    return Place(place.project, location)


def _location(client: JobClient, place: Place, configuration: Mapping[str, Any]) -> str | None:
    query = configuration.get("query")
    if isinstance(query, Mapping):
        return client.location_of_query(query, place)
    for kind, names in _DATASET_OF.items():
        job = configuration.get(kind)
        tables = [job.get(name) for name in names] if isinstance(job, Mapping) else []
        for table in tables:
            if isinstance(table, Mapping) and table.get("datasetId"):
                project = table.get("projectId") or place.project
                return client.location_of_dataset(f"{project}.{table['datasetId']}", place)
    return None
