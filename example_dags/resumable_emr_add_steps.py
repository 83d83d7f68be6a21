# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Two steps of an EMR cluster: added once, and watched to their end by whichever worker is alive.

It needs ``pip install 'airflow-resumable[amazon]'``, a connection of type ``aws`` with the name
``aws_default``, and a cluster that waits for steps: fill in `cluster` when you trigger it.

What happens when the worker is killed: the steps run on in the cluster, under ids that are on record, or at
least under names that end with the task's token. The next try watches them and returns their ids. Where one
has failed, the next try adds both again. A user's clear cancels what runs and adds them anew.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_resumable.operators.emr import ResumableEmrAddStepsOperator

PI = "/usr/lib/spark/examples/src/main/python/pi.py"

with DAG(
    "resumable_emr_add_steps",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10)},
    params={"cluster": "j-CLUSTER"},
    doc_md=__doc__,
):
    add_steps = ResumableEmrAddStepsOperator(
        task_id="add_steps",
        job_flow_id="{{ params.cluster }}",
        steps=[
            {
                "Name": f"pi in {parts} parts",
                "ActionOnFailure": "CANCEL_AND_WAIT",
                "HadoopJarStep": {
                    "Jar": "command-runner.jar",
                    "Args": ["spark-submit", PI, parts],
                },
            }
            for parts in ("100", "1000")
        ],
        waiter_delay=20,
        waiter_max_attempts=180,
        deferrable=True,
    )

    @task
    def report(steps: Any) -> str:
        """Use the steps' ids."""
        return f"steps {', '.join(steps)} are completed"

    report(add_steps.output)
