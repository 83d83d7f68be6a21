# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `ResumableBigQueryInsertJobOperator` says of BigQuery."""

from __future__ import annotations

from datetime import timedelta

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.operators._facts import Permission, ServiceFacts

MEMORY = timedelta(days=180)
"""BigQuery keeps a job's metadata for six months, https://cloud.google.com/bigquery/docs/managing-jobs."""

FACTS: tuple[ServiceFacts, ...] = (
    ServiceFacts(
        service="BigQuery",
        submit_window=SubmitWindow.CLOSED,
        window="Nothing, while the job's location stays the same: an id is taken once in each location. One "
        "that nobody names is asked for before the submit.",
        token="the end of the job's id, unless `force_rerun=False`; the label `airflow-resumable-token`",
        memory="six months",
        cancel="jobs.cancel; what the job has billed so far stays billed",
        retries=2,
        retry_delay=timedelta(seconds=30),
        retries_why="one for a lost worker and one for a job that failed for BigQuery's own reasons",
        permissions=(
            Permission(
                "bigquery",
                "jobs",
                ("create",),
                "on the project: start a job; its own jobs a user may look at and cancel with no more",
            ),
            Permission(
                "bigquery",
                "jobs",
                ("get", "update"),
                "only where a retry runs as another user than the first try",
            ),
            Permission(
                "bigquery",
                "tables, datasets",
                ("getData", "updateData", "create"),
                "what the job itself reads and writes, as with the provider's operator",
            ),
        ),
    ),
)
