# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The seams between this package and Airflow: provider info, plugin, policy hook, configuration, version."""

from __future__ import annotations
