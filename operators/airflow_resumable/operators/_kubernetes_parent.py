# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What is used of the provider's Kubernetes operators beyond their documented interface."""

from __future__ import annotations

from airflow_resumable.operators._parent import Provider

POD_OPERATOR = (
    "_get_ti_pod_labels",
    "_read_pod_container_states",
    "_read_pod_events",
    "_refresh_cached_properties",
    "_set_name",
    "_write_logs",
    "build_pod_request_obj",
    "patch_already_checked",
    "process_pod_deletion",
)
POD_MANAGER = (
    "await_xcom_sidecar_container_start",
    "extract_xcom_json",
    "extract_xcom_kill",
    "fetch_requested_container_logs",
    "fetch_requested_init_container_logs",
)
JOB_OPERATOR = (
    "_get_ti_pod_labels",
    "_set_name",
    "build_job_request_obj",
    "job_client",
    "post_complete_action",
)

check = Provider(
    "apache-airflow-providers-cncf-kubernetes",
    ("10.25.0",),
    "the operators of airflow_resumable.operators.kubernetes",
).check
