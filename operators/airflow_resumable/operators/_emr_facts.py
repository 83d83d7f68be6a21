# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `ResumableEmrAddStepsOperator` says of EMR."""

from __future__ import annotations

from datetime import timedelta

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.operators._facts import Permission, ServiceFacts

_CLUSTER = "cluster/CLUSTER"

FACTS: tuple[ServiceFacts, ...] = (
    ServiceFacts(
        service="Amazon EMR steps",
        submit_window=SubmitWindow.NARROWED,
        window=(
            "EMR takes no token. A step's name carries the mark, and the list of steps is read before "
            "another request and after it; steps that two attempts add at once are there twice until the "
            "later attempt has read the list and cancels its own."
        ),
        token="the end of each step's name: `[token place/of call]`",
        memory="as long as the cluster is listed: two months after its end",
        cancel="CancelSteps; a running step is interrupted on EMR 5.28 and newer, earlier ones finish it",
        retries=2,
        retry_delay=timedelta(seconds=30),
        retries_why="one for a lost worker and one for steps that failed; all of them are added again",
        permissions=(
            Permission(
                "elasticmapreduce",
                _CLUSTER,
                ("AddJobFlowSteps", "ListSteps", "DescribeCluster"),
                "add, find and watch steps; tell a cluster that has ended",
            ),
            Permission("elasticmapreduce", _CLUSTER, ("CancelSteps",), "end steps"),
            Permission("elasticmapreduce", "*", ("ListClusters",), "only with `job_flow_name`"),
        ),
    ),
)
