# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The Dag files that `airflow-resumable demo` runs, each copied into a fresh Dags folder."""

from __future__ import annotations

from pathlib import Path

LOCAL_JOBS = Path(__file__).with_name("local_jobs.py")
"""One job of the local job service, through Airflow's own mixin and through ours."""

SPARK_JOBS = Path(__file__).with_name("spark_jobs.py")
"""One Spark application, through the provider's operator and through ours."""
SPARK_VARIABLE = "AIRFLOW_RESUMABLE_DEMO_SPARK"
"""Tells `SPARK_JOBS` in JSON what it is to run; see there."""

KUBERNETES_JOBS = Path(__file__).with_name("kubernetes_jobs.py")
"""One pod, through the provider's operator and through ours."""

BIGQUERY_JOBS = Path(__file__).with_name("bigquery_jobs.py")
"""One query of BigQuery, through the provider's operator and through ours."""

CONNECT_JOBS = Path(__file__).with_name("connect_jobs.py")
"""One statement on a Spark Connect server, as it is run without an operator for it, and through ours."""

EMR_SERVERLESS_JOBS = Path(__file__).with_name("emr_serverless_jobs.py")
"""One job run of EMR Serverless, through the provider's operator and through ours."""

EMR_JOBS = Path(__file__).with_name("emr_jobs.py")
"""One step of an EMR cluster, through the provider's operator and through ours."""
