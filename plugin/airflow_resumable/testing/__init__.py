# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Real systems for tests and the demo: an Airflow deployment, a Spark cluster, a job service, a crash kit."""
