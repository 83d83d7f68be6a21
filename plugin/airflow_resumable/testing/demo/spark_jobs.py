# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One Spark application, through the provider's operator (`stock`) and through ours (`ours`).

Each case of the demo is a Dag, since its connections may lead to another gateway. The application, its class
and, for each case, its Spark properties come in an environment variable; the run's conf has, for each of the
two tasks, the file whose appearance ends the application.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

from airflow_resumable.jobs.crashpoints import reach
from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator
from airflow_resumable.testing.demo import SPARK_VARIABLE

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

_LIVE = ("SUBMITTED", "RUNNING")


class StockSparkSubmitOperator(SparkSubmitOperator):
    """The provider's operator, with nothing added but the two points at which the demo kills."""

    def submit_job(self, context: Context) -> str | None:
        """Submit; the driver is accepted, and its id not stored yet."""
        driver = super().submit_job(context)
        reach("after_accept")
        return driver

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        read_answer = hook._process_spark_status_log

        def read_answer_and_reach(answer: Iterator[Any]) -> None:
            read_answer(answer)
            if hook._driver_status in _LIVE:
                reach("mid_poll")

        # The poll loop is one method of the hook; this is called once in each of its rounds.
        setattr(hook, "_process_spark_status_log", read_answer_and_reach)  # noqa: B010
        return hook


def _arguments(case: str, side: str, told: dict[str, Any]) -> dict[str, Any]:
    return {
        "task_id": side,
        "conn_id": f"spark_{case}_{side}",
        "application": told["application"],
        "java_class": told["java_class"],
        "application_args": [f"{{{{ dag_run.conf['{side}']['gate'] }}}}"],
        "conf": told["conf"][case],
        "name": case,
    }


def _make_dags(told: dict[str, Any]) -> None:
    for case in told["conf"]:
        with DAG(
            f"demo_spark_{case}",
            schedule=None,
            default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
        ) as dag:
            StockSparkSubmitOperator(**_arguments(case, "stock", told))
            ResumableSparkSubmitOperator(**_arguments(case, "ours", told))
        globals()[dag.dag_id] = dag


_make_dags(json.loads(os.environ.get(SPARK_VARIABLE, '{"conf": {}}')))
