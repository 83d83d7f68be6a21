# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The Airflow plugin of this package."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from airflow_resumable.integration import listener


class AirflowResumablePlugin(AirflowPlugin):
    """Makes the package known to ``airflow plugins``; loaded by the API server and the scheduler."""

    name = "airflow_resumable"
    listeners = [listener]  # noqa: RUF012 - Airflow's own class declares it as a plain list
