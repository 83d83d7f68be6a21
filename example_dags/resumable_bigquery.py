# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Two jobs of BigQuery: each is started once, whatever dies, and watched to its end.

It needs ``apache-airflow-providers-google`` and a connection with the name ``google_cloud_default``, whose
user may create jobs in its project (``bigquery.jobs.create``). The queries read no table, so they are free.

What happens when the worker is killed: the job runs on in BigQuery, under an id that was put on record before
it was started. The next try finds it by that id and goes on watching; nothing is started again, also when the
worker died in the very moment of the submit. A job that has failed is started again by the next try. A user's
clear cancels what runs and starts a new job.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_resumable.operators.bigquery import ResumableBigQueryInsertJobOperator

SQL = "SELECT COUNT(*) AS n FROM UNNEST(GENERATE_ARRAY(1, {{ params.size }})) AS i WHERE MOD(i, 7) = 0"

with DAG(
    "resumable_bigquery",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10)},
    params={"size": 1_000_000},
    doc_md=__doc__,
):
    count = ResumableBigQueryInsertJobOperator(
        task_id="count", configuration={"query": {"query": SQL, "useLegacySql": False}}
    )
    again = ResumableBigQueryInsertJobOperator(
        task_id="again",
        configuration={"query": {"query": SQL, "useLegacySql": False, "priority": "BATCH"}},
        deferrable=True,
    )

    @task
    def report(first: Any, second: Any) -> str:
        """Use the jobs' ids, from which a task may read their rows."""
        return f"the rows are those of jobs {first} and {second}"

    report(count.output, again.output)
