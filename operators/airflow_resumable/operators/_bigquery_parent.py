# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What is used of the provider's BigQuery operator, and of Google's client, beyond their interfaces."""

from __future__ import annotations

from airflow_resumable.operators._parent import Provider

OPERATOR = (
    "_add_job_labels",
    "_handle_job_error",
    "_persist_job_links",
    "_submit_job",
    "external_id_key",
    "submit_job",
)
HOOK = ("generate_job_id", "get_run_after_or_logical_date")
LINK = ("_format_link", "key")
CLIENT = ("_get_query_results", "_http")

check = Provider("apache-airflow-providers-google", ("22.8.0",), "ResumableBigQueryInsertJobOperator").check
check_client = Provider("google-cloud-bigquery", ("3.47.0",), "ResumableBigQueryInsertJobOperator").check
