# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `ResumableEmrContainerOperator` says of EMR on EKS."""

from __future__ import annotations

from datetime import timedelta

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.operators._facts import Permission, ServiceFacts

_CLUSTER = "virtualclusters/CLUSTER"
_RUN = f"{_CLUSTER}/jobruns/*"

FACTS: tuple[ServiceFacts, ...] = (
    ServiceFacts(
        service="EMR on EKS",
        submit_window=SubmitWindow.CLOSED,
        window="Nothing, while the service remembers a client token; how long that is, AWS doesn't state. A "
        "run is looked for by its token too, before that is sent again.",
        token="`clientToken`, which the service's list shows, and the end of the run's `name`",
        memory="not stated by AWS",
        cancel="`CancelJobRun`; the run is CANCEL_PENDING for a while, and waited for",
        retries=2,
        retry_delay=timedelta(seconds=60),
        retries_why="one for a lost worker and one for a failed run",
        permissions=(
            Permission("emr-containers", _CLUSTER, ("StartJobRun",), "start a run"),
            Permission("emr-containers", _CLUSTER, ("ListJobRuns",), "find a run whose id was lost"),
            Permission("emr-containers", _RUN, ("DescribeJobRun", "CancelJobRun"), "watch and end it"),
        ),
    ),
)
