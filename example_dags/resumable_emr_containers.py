# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A Spark job on EMR on EKS: started once, and watched to its end by whichever worker is alive.

It needs ``pip install 'airflow-resumable[amazon]'``, a connection of type ``aws`` with the name
``aws_default``, and a virtual cluster with a role for its jobs: fill in `cluster` and `role` when you trigger
it.

What happens when the worker is killed: the job runs on in its cluster, under an id that is on record. If the
worker dies before that, the job is found by its token, which is its client token and the end of its name. The
next try watches it and returns its id. A job that fails is started again by the next try, with a new token. A
user's clear cancels what runs and starts a new job.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_resumable.operators.emr_containers import ResumableEmrContainerOperator

with DAG(
    "resumable_emr_containers",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10)},
    params={"cluster": "00fcluster", "role": "arn:aws:iam::123456789012:role/job"},
    doc_md=__doc__,
):
    pi = ResumableEmrContainerOperator(
        task_id="pi",
        name="pi",
        virtual_cluster_id="{{ params.cluster }}",
        execution_role_arn="{{ params.role }}",
        release_label="emr-7.5.0-latest",
        job_driver={
            "sparkSubmitJobDriver": {
                "entryPoint": "local:///usr/lib/spark/examples/src/main/python/pi.py",
                "entryPointArguments": ["100"],
            }
        },
        poll_interval=20,
        deferrable=True,
    )

    @task
    def report(run: Any) -> str:
        """Use the job's id."""
        return f"job run {run} has ended well"

    report(pi.output)
