# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The console script ``airflow-resumable``, and ``airflow resumable`` on Airflow 3.2 and newer."""

from __future__ import annotations
