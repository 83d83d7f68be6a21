# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What is used of the provider's Spark operator and hook beyond their documented interface."""

from __future__ import annotations

from airflow_resumable.operators._parent import Provider

TESTED_WITH = ("6.3.4",)
"""Versions of apache-airflow-providers-apache-spark that the tests run against."""

OPERATOR_CLASS = ("_get_hook",)
OPERATOR_SELF = ("_hook", "_java_class", "_status_poll_interval")
HOOK_CLASS = (
    "_build_spark_submit_command",
    "_mask_cmd",
    "_process_spark_submit_log",
    "_resolved_yarn_rm_auth",
    "_run_post_submit_commands",
    "_submit_log_tail",
    "_validate_yarn_track_via_rm_api_config",
)
HOOK_SELF = (
    "_conf",
    "_conn_id",
    "_connection",
    "_driver_id",
    "_driver_status",
    "_is_kubernetes",
    "_is_yarn_cluster_mode",
    "_properties_file",
    "_track_driver_via_k8s_api",
    "_yarn_application_id",
    "_yarn_rm_base_url",
    "_yarn_track_via_rm_api",
    "_should_track_driver_status",
)

check = Provider("apache-airflow-providers-apache-spark", TESTED_WITH, "ResumableSparkSubmitOperator").check
