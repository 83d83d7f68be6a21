# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A statement and a DataFrame on a Spark Connect server: each run once, and watched to its end.

It needs ``pip install 'airflow-resumable[spark]'`` and a connection of type ``spark_connect`` with the name
``spark_connect_default``. Any server will do: the tables are made up of numbers.

What happens when the worker is killed: the operation runs on in the server, under an id that is on record
before it is started. The next try attaches to it and returns its rows. A server cancels what nobody attaches
to for 5 minutes, so the next try has to come sooner than that: mind the `retry_delay`. A statement that fails
is started again by the next try. A user's clear interrupts what runs and starts a new operation.

`build` describes the operation and runs nothing: it returns a DataFrame, or writes one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_resumable.operators.spark_connect import ResumableSparkConnectOperator


def remainders(spark: Any, size: int) -> Any:
    """Count the numbers below `size` by their remainder of 7."""
    return spark.range(int(size)).selectExpr("id % 7 AS remainder").groupBy("remainder").count()


with DAG(
    "resumable_spark_connect",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=2)},
    params={"size": 100_000_000},
    doc_md=__doc__,
):
    total = ResumableSparkConnectOperator(
        task_id="total", sql="SELECT sum(id) AS total FROM range({{ params.size }})"
    )
    counts = ResumableSparkConnectOperator(
        task_id="counts", build=remainders, op_kwargs={"size": "{{ params.size }}"}, deferrable=True
    )

    @task
    def report(total: Any, counts: Any) -> str:
        """Use the rows."""
        return f"the sum is {total[0]['total']}, and there are {len(counts)} remainders"

    report(total.output, counts.output)
