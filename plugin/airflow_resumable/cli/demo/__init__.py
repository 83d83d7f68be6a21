# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo: real workers of a real Airflow are killed, and the service's own list counts the jobs."""
