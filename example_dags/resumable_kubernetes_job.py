# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes Job of several pods: created once, and watched to its end.

It needs a connection of type ``kubernetes`` with the name ``kubernetes_default``, whose user may do what the
operator's page in the documentation lists.

What happens when the worker is killed: the Job runs on. Its name ends with a token, so the next try finds it
by the name on record or is told by the API server that it is there already, and watches the same Job to its
end. A Job that failed is followed by another one in the next try. A user's clear deletes what runs, its pods
with it, and starts a new one.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_resumable.operators.kubernetes import ResumableKubernetesJobOperator

with DAG(
    "resumable_kubernetes_job",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10)},
    params={"namespace": "default", "day": "2026-11-30"},
    doc_md=__doc__,
):
    ResumableKubernetesJobOperator(
        task_id="convert",
        name="convert",
        namespace="{{ params.namespace }}",
        image="busybox:1.36",
        cmds=["sh", "-c", "echo converting {{ params.day }}; sleep 60"],
        parallelism=2,
        completions=2,
        backoff_limit=1,
        wait_until_job_complete=True,
        # Longer than the retry delay, so that the next try still sees how the Job ended.
        ttl_seconds_after_finished=3600,
    )
