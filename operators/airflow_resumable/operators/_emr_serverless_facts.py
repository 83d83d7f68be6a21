# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `ResumableEmrServerlessStartJobOperator` says of EMR Serverless."""

from __future__ import annotations

from datetime import timedelta

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.operators._facts import Permission, ServiceFacts

_APPLICATION = "applications/APPLICATION"
_RUN = f"{_APPLICATION}/jobruns/*"

FACTS: tuple[ServiceFacts, ...] = (
    ServiceFacts(
        service="EMR Serverless",
        submit_window=SubmitWindow.CLOSED,
        window="Nothing, while the service remembers a client token; how long that is, AWS doesn't state. A "
        "run is looked for by its name too, before a token is sent again.",
        token="`clientToken`, and the end of the run's `name`",
        memory="not stated by AWS",
        cancel="`CancelJobRun`; the run is CANCELLING for a while, and waited for",
        retries=2,
        retry_delay=timedelta(seconds=60),
        retries_why="one for a lost worker and one for a failed run",
        permissions=(
            Permission("emr-serverless", _APPLICATION, ("StartJobRun",), "start a run"),
            Permission("emr-serverless", _RUN, ("GetJobRun", "CancelJobRun"), "watch and end it"),
            Permission("emr-serverless", _APPLICATION, ("ListJobRuns",), "find a run whose id was lost"),
            Permission(
                "emr-serverless", _APPLICATION, ("GetApplication", "StartApplication"), "before a submit"
            ),
            Permission(
                "emr-serverless", _RUN, ("GetDashboardForJobRun",), "only with `enable_application_ui_links`"
            ),
            Permission("iam", "role/EXECUTION_ROLE", ("PassRole",), "start a run"),
        ),
    ),
)
