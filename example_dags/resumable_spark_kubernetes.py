# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A Spark application on Kubernetes in cluster mode: submitted once, and watched to its end.

It needs spark-submit on the worker's PATH, the way to the API server in ``[kubernetes_executor]`` of the
Airflow configuration, and a connection of type ``spark`` with the name ``spark_kubernetes``, host
``k8s://https://kubernetes.default.svc``, port 443 and this extra:

    {"deploy-mode": "cluster", "namespace": "spark"}

What happens when the worker is killed: the driver pod runs on. Its name ends with a token, which is a label
of it too, so the next try finds it and watches the same pod to its end; a second spark-submit with that name
would be refused. A pod that failed, or that was deleted while it ran, is followed by another one in the next
try. A user's clear deletes what runs and starts a new one.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator

with DAG(
    "resumable_spark_kubernetes",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10)},
    params={"image": "apache/spark:4.0.1", "slices": "100"},
    doc_md=__doc__,
):
    ResumableSparkSubmitOperator(
        task_id="pi",
        conn_id="spark_kubernetes",
        application="local:///opt/spark/examples/jars/spark-examples.jar",
        java_class="org.apache.spark.examples.SparkPi",
        application_args=["{{ params.slices }}"],
        name="pi",
        conf={
            "spark.kubernetes.container.image": "{{ params.image }}",
            # The driver's own account, which makes the executors.
            "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
        },
        deploy_mode="cluster",
    )
