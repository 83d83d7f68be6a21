# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One query of BigQuery, through the provider's operator (`stock`) and through ours (`ours`).

Each case of the demo is a run of one of these Dags. The run's conf has, for each of the two tasks, the query
and the beginning of the job's id, by which the emulator's log tells the lanes apart.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.google.cloud.operators.bigquery import BigQueryInsertJobOperator
from airflow.sdk import DAG

from airflow_resumable.jobs.crashpoints import reach
from airflow_resumable.operators.bigquery import ResumableBigQueryInsertJobOperator


class StockBigQueryInsertJobOperator(BigQueryInsertJobOperator):
    """The provider's operator, with nothing added but the two points at which the demo kills."""

    def submit_job(self, context: Any) -> str:
        """Submit, and say so before the id is stored."""
        job_id = super().submit_job(context)
        reach("after_accept")
        return job_id

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        """Wait for the job's end, and say so at each look at it."""
        job: Any = self._job
        reload = job.reload

        def reload_and_reach(*args: Any, **options: Any) -> None:
            reload(*args, **options)
            if job.state != "DONE":
                reach("mid_poll")

        # The loop that waits is Google's own client's; it reads the job once a round.
        job.reload = reload_and_reach
        super().poll_until_complete(external_id, context)


def _arguments(side: str) -> dict[str, Any]:
    conf = f"dag_run.conf['{side}']"
    return {
        "task_id": side,
        "job_id": f"{{{{ {conf}['job_id'] }}}}",
        "configuration": {"query": {"query": f"{{{{ {conf}['sql'] }}}}", "useLegacySql": False}},
        "gcp_conn_id": "bigquery_demo",
        "location": "US",
    }


def _make_dag(dag_id: str, **task: Any) -> DAG:
    with DAG(
        dag_id,
        schedule=None,
        max_active_runs=100,
        max_active_tasks=100,
        default_args={"retries": 2, "retry_delay": timedelta(seconds=1), **task},
    ) as dag:
        StockBigQueryInsertJobOperator(**_arguments("stock"))
        ResumableBigQueryInsertJobOperator(**_arguments("ours"))
    return dag


demo_bigquery = _make_dag("demo_bigquery")
demo_bigquery_time_out = _make_dag("demo_bigquery_time_out", execution_timeout=timedelta(seconds=25))
