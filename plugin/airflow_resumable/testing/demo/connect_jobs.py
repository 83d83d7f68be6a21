# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One statement on a Spark Connect server, in an operator as people write it (`stock`) and in ours (`ours`).

The provider has a hook for Spark Connect and no operator. Each case of the demo is a run of one of these
Dags. The run's conf has, for each of the two tasks, the connection and the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator

from airflow_resumable.jobs.crashpoints import reach
from airflow_resumable.operators.spark_connect import ResumableSparkConnectOperator

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pyspark.sql import SparkSession


class StockSparkConnectOperator(BaseOperator):
    """Runs a statement in a session of the provider's connection, and interrupts it when it is stopped.

    Args:
        sql: The statement.
        conn_id: A connection of type ``spark_connect``.
    """

    template_fields: Sequence[str] = ("sql", "conn_id")

    _spark: SparkSession | None = None

    def __init__(self, *, sql: str, conn_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sql = sql
        self.conn_id = conn_id

    def execute(self, context: Context) -> Any:
        """Run the statement and return its rows."""
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
        from pyspark.sql import SparkSession

        url = SparkConnectHook(self.conn_id).get_connection_url()
        self._spark = SparkSession.builder.remote(url).getOrCreate()
        points: Any = _Points()
        self._spark.registerProgressHandler(points)
        rows = [row.asDict() for row in self._spark.sql(self.sql).collect()]
        self._spark.stop()
        return rows

    def on_kill(self) -> None:
        """Interrupt what the session runs."""
        if self._spark is not None:
            self._spark.interruptAll()


class _Points:
    """The two points at which the demo kills.

    `collect` calls it, in its own thread, each time the server says how far the statement is.
    """

    _accepted = False

    def __call__(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        if done:
            return
        if not self._accepted:
            self._accepted = True
            reach("after_accept")
        reach("mid_poll")


def _arguments(side: str) -> dict[str, Any]:
    conf = f"dag_run.conf['{side}']"
    return {
        "task_id": side,
        "sql": f"{{{{ {conf}['sql'] }}}}",
        "conn_id": f"{{{{ {conf}['conn_id'] }}}}",
    }


def _make_dag(dag_id: str, **task: Any) -> DAG:
    with DAG(
        dag_id,
        schedule=None,
        max_active_runs=100,
        max_active_tasks=100,
        default_args={"retries": 2, "retry_delay": timedelta(seconds=1), **task},
    ) as dag:
        StockSparkConnectOperator(**_arguments("stock"))
        ResumableSparkConnectOperator(**_arguments("ours"), status_poll_interval=1.0)
    return dag


demo_connect = _make_dag("demo_connect")
demo_connect_time_out = _make_dag("demo_connect_time_out", execution_timeout=timedelta(seconds=45))
