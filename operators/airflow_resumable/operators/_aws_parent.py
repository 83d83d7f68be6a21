# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What is used of the provider's AWS operators and hooks beyond their documented interface."""

from __future__ import annotations

from airflow_resumable.operators._parent import Provider

BASE_OPERATOR = ("_hook_parameters", "hook")
"""Of every operator of the provider."""
HOOK = ("config", "conn_config", "get_client_type", "get_session", "region_name", "service_name", "verify")
"""Of every hook of the provider."""

check = Provider(
    "apache-airflow-providers-amazon",
    ("9.39.0",),
    "the operators of airflow_resumable.operators.emr",
).check
