# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One external job, exactly once: record, token, decision, attempt, kill and mixin."""
