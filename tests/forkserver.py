# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Processes for attempts that die, forked from one that has loaded what they need."""

from __future__ import annotations

import multiprocessing
from typing import Any

_modules: list[str] = []


def processes(module: str) -> Any:
    """Return what makes such processes; they have this module, and those of earlier calls.

    Without it each process would import Airflow for itself, for seconds.
    """
    _modules.append(module)
    context = multiprocessing.get_context("forkserver")
    # Replaces what was set before, and counts until the first process is made.
    context.set_forkserver_preload(_modules)
    return context
