# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One job run of EMR Serverless, through the provider's operator (`stock`) and through ours (`ours`).

Each case of the demo is a run of one of these Dags. The run's conf has, for each of the two tasks, the
application's id.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import Any

from airflow.providers.amazon.aws.hooks.emr import EmrServerlessHook
from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator
from airflow.sdk import DAG

from airflow_resumable.jobs.crashpoints import reach
from airflow_resumable.operators.emr_serverless import ResumableEmrServerlessStartJobOperator


class TellingEmrServerlessHook(EmrServerlessHook):
    """The provider's hook, with nothing added but the two points at which the demo kills."""

    @cached_property
    def conn(self) -> Any:
        """The provider's client, which says that a run was started and that it is at work."""
        client: Any = super().conn
        client.meta.events.register("after-call.emr-serverless.StartJobRun", _started)
        client.meta.events.register("after-call.emr-serverless.GetJobRun", _described)
        return client


def _started(parsed: dict[str, Any], **_: Any) -> None:
    if parsed.get("jobRunId"):
        reach("after_accept")


def _described(parsed: dict[str, Any], **_: Any) -> None:
    if parsed.get("jobRun", {}).get("state") == "RUNNING":
        reach("mid_poll")


class StockEmrServerlessStartJobOperator(EmrServerlessStartJobOperator):
    """The provider's operator, with that hook."""

    aws_hook_class = TellingEmrServerlessHook


def _arguments(side: str) -> dict[str, Any]:
    return {
        "task_id": side,
        "name": "demo",
        "application_id": f"{{{{ dag_run.conf['{side}']['owner'] }}}}",
        "execution_role_arn": "arn:aws:iam::123456789012:role/job",
        "job_driver": {"sparkSubmit": {"entryPoint": "s3://bucket/job.py"}},
        "waiter_delay": 1,
        "waiter_max_attempts": 600,
    }


def _make_dag(dag_id: str, **task: Any) -> DAG:
    with DAG(
        dag_id,
        schedule=None,
        max_active_runs=100,
        max_active_tasks=100,
        default_args={"retries": 2, "retry_delay": timedelta(seconds=1), **task},
    ) as dag:
        StockEmrServerlessStartJobOperator(**_arguments("stock"))
        ResumableEmrServerlessStartJobOperator(**_arguments("ours"))
    return dag


demo_emr_serverless = _make_dag("demo_emr_serverless")
demo_emr_serverless_time_out = _make_dag(
    "demo_emr_serverless_time_out", execution_timeout=timedelta(seconds=15)
)
