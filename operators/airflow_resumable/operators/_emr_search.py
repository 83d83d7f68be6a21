# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Finding the steps of one task instance: where they were going to be added, and where they would be now."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.adapter import FoundJob
from airflow_resumable.operators._aws_errors import code_of, message_of
from airflow_resumable.operators._emr_arguments import external_id_of
from airflow_resumable.operators._emr_cluster import EmrCluster, MarkedSteps
from airflow_resumable.operators._emr_names import Mark

if TYPE_CHECKING:
    from pydantic import JsonValue

    from airflow_resumable.operators._aws_clients import AwsClients

_log = logging.getLogger(__name__)


def find(
    aws: AwsClients,
    before: JsonValue,
    target: Callable[[], str],
    wanted: Callable[[Mark], bool],
    since: datetime,
) -> list[FoundJob]:
    """Return what was added with a wanted mark at `since` or later, the lowest start first.

    Args:
        aws: Clients of EMR.
        before: Region and cluster as the intent has them, or None.
        target: Returns the cluster that is meant now; raises `AirflowException` where there is none.
        wanted: Says of a mark whether it is looked for.
        since: Steps that were created earlier are not looked at.
    """
    found: list[tuple[MarkedSteps, FoundJob]] = []
    for number, (region, cluster) in enumerate(_places(aws, before, target)):
        try:
            listed = EmrCluster(aws.elsewhere(region), cluster).marked(wanted, since)
        except Exception as error:
            # The first is where steps were going to be added; to a cluster that isn't there none were.
            if number == 0 or code_of(error) != "InvalidRequestException":
                raise
            _log.warning("no steps of this task in %s, %s: %s", region, cluster, message_of(error))
            continue
        for steps in listed:
            job = external_id_of(cluster, steps.ids)
            found.append((steps, FoundJob(job, steps.state, steps.token, {"region": region})))
    found.sort(key=lambda pair: (pair[0].created, pair[0].ids))
    return [job for _, job in found]


def _places(aws: AwsClients, before: JsonValue, target: Callable[[], str]) -> list[tuple[str, str]]:
    places: list[tuple[str, str]] = []
    if isinstance(before, dict):
        places.append((str(before["region"]), str(before["job_flow_id"])))
    try:
        now = (aws.region, target())
    except AirflowException as error:
        if not places:
            raise
        _log.warning("%s; looking in %s, where steps were going to be added", error, places[0][1])
    else:
        if now not in places:
            places.append(now)
    return places
