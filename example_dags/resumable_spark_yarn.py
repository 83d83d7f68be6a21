# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A Spark application on YARN in cluster mode: submitted once, and watched to its end.

It needs spark-submit on the worker's PATH, a Hadoop configuration, and a connection of type ``spark`` with
the name ``spark_yarn``, host ``yarn`` and this extra (of several ResourceManagers the addresses of all,
comma-separated):

    {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": "http://rm.example.com:8088"}

What happens when the worker is killed: the application runs on. It carries a token among its tags, so the
next try finds it at the ResourceManager, by the id on record or by that tag, and watches the same application
to its end. One that failed is started again by the next try. A user's clear kills what runs and starts a new
one. A worker without a network and the next try, both inside spark-submit at the same moment, can start two:
the try that finds both alive fails and names them.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator

with DAG(
    "resumable_spark_yarn",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10)},
    params={"application": "hdfs:///apps/report.py", "day": "2026-11-30"},
    doc_md=__doc__,
):
    ResumableSparkSubmitOperator(
        task_id="report",
        conn_id="spark_yarn",
        application="{{ params.application }}",
        application_args=["--day", "{{ params.day }}"],
        name="report-{{ params.day }}",
        # Eight tags at most are yours: YARN takes ten, and two are the operator's.
        conf={"spark.yarn.tags": "nightly,reports"},
        deploy_mode="cluster",
    )
