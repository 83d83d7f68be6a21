# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes pod: created once, watched to its end, and its result used.

It needs a connection of type ``kubernetes`` with the name ``kubernetes_default``, whose user may do what the
operator's page in the documentation lists.

What happens when the worker is killed: the pod runs on. Its name ends with a token, so the next try finds it
by the name on record or is told by the API server that it is there already, and watches the same pod to its
end; `report` gets its result as if nothing had happened. A pod that failed, was evicted or was deleted is
followed by another one in the next try. A user's clear deletes what runs and starts a new one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_resumable.operators.kubernetes import ResumableKubernetesPodOperator

with DAG(
    "resumable_kubernetes_pod",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10)},
    params={"namespace": "default", "seconds": 60},
    doc_md=__doc__,
):
    count = ResumableKubernetesPodOperator(
        task_id="count",
        name="count",
        namespace="{{ params.namespace }}",
        image="busybox:1.36",
        cmds=["sh", "-c"],
        arguments=[
            "sleep {{ params.seconds }}; echo '{\"rows\": 42}' > /airflow/xcom/return.json",
        ],
        do_xcom_push=True,
        termination_grace_period=5,
    )

    @task
    def report(result: Any) -> str:
        """Use the pod's result."""
        return f"the pod counted {result['rows']} rows"

    report(count.output)
