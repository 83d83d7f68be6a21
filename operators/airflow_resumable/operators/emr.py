# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The EMR operator: steps of a cluster, added once and watched to their end."""

from __future__ import annotations

from airflow_resumable.operators._emr_steps import ResumableEmrAddStepsOperator

__all__ = ["ResumableEmrAddStepsOperator"]
