# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The links of the provider's EMR operators, there from the moment the steps are on record."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.providers.amazon.aws.links.emr import EmrClusterLink, EmrLogsLink, get_log_uri

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_resumable.operators._aws_clients import AwsClients

_log = logging.getLogger(__name__)


def push(operator: BaseOperator, cluster: str, aws: AwsClients, context: Context) -> None:
    """Push what the parent pushes for its links, and the links, which Airflow does at a task's end.

    Args:
        operator: Whose links they are.
        cluster: The cluster's id.
        aws: Clients of EMR.
        context: The task's context.
    """
    where: dict[str, Any] = {"region_name": aws.region, "aws_partition": aws.reading.meta.partition}
    ti = context["ti"]
    EmrClusterLink.persist(context=context, operator=operator, job_flow_id=cluster, **where)
    ti.xcom_push(key=EmrClusterLink().xcom_key, value=console(cluster, aws))
    try:
        logs = get_log_uri(emr_client=aws.reading, job_flow_id=cluster)
    except Exception as error:
        _log.warning("the logs of cluster %s can't be linked to: %s", cluster, error)
        return
    EmrLogsLink.persist(context=context, operator=operator, job_flow_id=cluster, log_uri=logs, **where)
    if url := EmrLogsLink().format_link(**_parts(cluster, aws), log_uri=logs):
        ti.xcom_push(key=EmrLogsLink().xcom_key, value=url)


def console(cluster: str, aws: AwsClients) -> str:
    """Return the address of a cluster's page."""
    return EmrClusterLink().format_link(**_parts(cluster, aws))


def _parts(cluster: str, aws: AwsClients) -> dict[str, Any]:
    domain = EmrClusterLink.get_aws_domain(aws.reading.meta.partition)
    return {"region_name": aws.region, "aws_domain": domain, "job_flow_id": cluster}
