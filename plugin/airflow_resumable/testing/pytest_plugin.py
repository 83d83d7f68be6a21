# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of operators on the job protocol.

Load it in a conftest.py: ``pytest_plugins = ["airflow_resumable.testing.pytest_plugin"]``. It is no entry
point, so that it costs nothing where nobody asks for it; Airflow is imported when a fixture is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow_resumable.testing.memory_store import InMemoryTaskStateStore
    from airflow_resumable.testing.task_tries import TaskTries

# So that a failing behaviour of the conformance suite shows the values of its assertion.
pytest.register_assert_rewrite(
    *(f"airflow_resumable.testing.conformance{part}" for part in ("", "_suite", "_deferral"))
)


@pytest.fixture
def task_state_store() -> InMemoryTaskStateStore:
    """Give a task state store in memory, JSON in and JSON out as Airflow's own."""
    from airflow_resumable.testing.memory_store import InMemoryTaskStateStore

    return InMemoryTaskStateStore()


@pytest.fixture
def task_tries(task_state_store: InMemoryTaskStateStore) -> TaskTries:
    """Give one task instance without an Airflow; each `TaskTries.context` is that of the next try."""
    from airflow_resumable.testing.task_tries import TaskTries

    return TaskTries(task_state_store)
