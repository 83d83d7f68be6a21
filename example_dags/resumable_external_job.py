# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""An external job made resumable: started once, watched to its end, whatever dies in between.

The job runs in a small service on this machine, which stands for Spark, EMR or BigQuery. Start it first:

    python -m airflow_resumable.testing.jobservice --data-dir /tmp/jobs --port 8765

What happens when the worker is killed: the job runs on. The next try looks it up, by the id on record or,
when the worker died before it could write that down, by the token that went with the submit. It watches the
same job to its end: one job runs, and `report` gets its result as if nothing had happened. A job that failed
by itself is started again by the next try. A user's clear starts a new one.

For an operator that you use already, the change is one import; what stands below it stays as it is:

    from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator as SparkSubmitOperator
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_resumable.testing.local_job import LocalJobOperator

with DAG(
    "resumable_external_job",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=2)},
    params={"service_url": "http://127.0.0.1:8765", "script": """sleep 30; echo '{"rows": 42}'"""},
    doc_md=__doc__,
):
    job = LocalJobOperator(
        task_id="job",
        service_url="{{ params.service_url }}",
        command=["sh", "-c", "{{ params.script }}"],
    )

    @task
    def report(result: Any) -> str:
        """Use the job's result."""
        return f"the job wrote {result['rows']} rows"

    report(job.output)
