# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes API server for tests, with a stand-in for the node that runs the pods."""
