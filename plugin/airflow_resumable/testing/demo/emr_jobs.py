# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One step of an EMR cluster, through the provider's operator (`stock`) and through ours (`ours`).

Each case of the demo is a run of one of these Dags. The run's conf has, for each of the two tasks, the
cluster's id.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import Any

from airflow.providers.amazon.aws.hooks.emr import EmrHook
from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator
from airflow.sdk import DAG

from airflow_resumable.jobs.crashpoints import reach
from airflow_resumable.operators.emr import ResumableEmrAddStepsOperator

STEP = {
    "Name": "demo",
    "ActionOnFailure": "CONTINUE",
    "HadoopJarStep": {"Jar": "command-runner.jar", "Args": ["spark-submit", "job.py"]},
}


class TellingEmrHook(EmrHook):
    """The provider's hook, with nothing added but the two points at which the demo kills."""

    @cached_property
    def conn(self) -> Any:
        """The provider's client, which says that steps were added and that one runs."""
        client: Any = super().conn
        client.meta.events.register("after-call.emr.AddJobFlowSteps", _added)
        client.meta.events.register("after-call.emr.DescribeStep", _described)
        return client


def _added(parsed: dict[str, Any], **_: Any) -> None:
    if parsed.get("StepIds"):
        reach("after_accept")


def _described(parsed: dict[str, Any], **_: Any) -> None:
    if parsed.get("Step", {}).get("Status", {}).get("State") == "RUNNING":
        reach("mid_poll")


class StockEmrAddStepsOperator(EmrAddStepsOperator):
    """The provider's operator, with that hook."""

    aws_hook_class = TellingEmrHook


def _arguments(side: str) -> dict[str, Any]:
    return {
        "task_id": side,
        "job_flow_id": f"{{{{ dag_run.conf['{side}']['owner'] }}}}",
        "steps": [STEP],
        "wait_for_completion": True,
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
        StockEmrAddStepsOperator(**_arguments("stock"))
        ResumableEmrAddStepsOperator(**_arguments("ours"))
    return dag


demo_emr = _make_dag("demo_emr")
demo_emr_time_out = _make_dag("demo_emr_time_out", execution_timeout=timedelta(seconds=15))
