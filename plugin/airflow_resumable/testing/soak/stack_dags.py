# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A Dag for each grade, to be copied into the Dags folder of a real Airflow."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_resumable.testing.soak.graded_jobs import OPERATORS

for _grade, _operator in OPERATORS.items():
    with DAG(f"soak_{_grade}", schedule=None, max_active_runs=100, max_active_tasks=100) as _dag:
        _operator(
            task_id="job",
            service_url="{{ dag_run.conf['service_url'] }}",
            command=["/bin/sh", "-c", "{{ dag_run.conf['script'] }}"],
            poll_interval=0.2,
            retries=2,
            retry_delay=timedelta(seconds=1),
        )
    globals()[_dag.dag_id] = _dag
