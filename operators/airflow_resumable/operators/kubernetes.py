# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes operators: a pod or a Job, created once and watched to its end."""

from __future__ import annotations

from airflow_resumable.operators._kubernetes_job import ResumableKubernetesJobOperator
from airflow_resumable.operators._kubernetes_pod import ResumableKubernetesPodOperator

__all__ = ["ResumableKubernetesJobOperator", "ResumableKubernetesPodOperator"]
