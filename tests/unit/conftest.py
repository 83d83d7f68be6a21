# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A job service and one task instance that uses it, for tests of the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_resumable.testing.jobservice.process import JobService
from tests.attempts import SUCCEED, TaskInstance


@pytest.fixture
def service(tmp_path: Path) -> Iterator[JobService]:
    """A local job service of the test's own."""
    with JobService(tmp_path / "service") as service:
        yield service


@pytest.fixture
def instance(service: JobService, tmp_path: Path) -> TaskInstance:
    """A task instance whose job succeeds at once."""
    return TaskInstance(service.url, tmp_path / "store", SUCCEED)
