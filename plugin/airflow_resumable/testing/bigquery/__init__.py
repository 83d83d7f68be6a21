# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A BigQuery emulator for tests, with a layer over it that restores what it lacks of the real service."""

from __future__ import annotations
