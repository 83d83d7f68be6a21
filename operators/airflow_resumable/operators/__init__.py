# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Operators for external services, each in a module of its own so that only its own provider is imported."""

from __future__ import annotations
