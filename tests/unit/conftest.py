# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A job service and a task instance that uses it, for tests of the protocol; a stand-in for YARN."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_resumable.testing.jobservice.process import JobService
from tests.attempts import SUCCEED, TaskInstance

if TYPE_CHECKING:
    from airflow_resumable.testing.yarn_stand_in import YarnStandIn
    from tests.yarn_service import YarnService, YarnTask


@pytest.fixture
def service(tmp_path: Path) -> Iterator[JobService]:
    """A local job service of the test's own."""
    with JobService(tmp_path / "service") as service:
        yield service


@pytest.fixture
def instance(service: JobService, tmp_path: Path) -> TaskInstance:
    """A task instance whose job succeeds at once."""
    return TaskInstance(service.url, tmp_path / "store", SUCCEED)


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnStandIn]:
    """Start the stand-in: two ResourceManagers."""
    from airflow_resumable.testing.yarn_stand_in import YarnStandIn

    # What is there by now needn't be looked through after each test.
    gc.freeze()
    with YarnStandIn(tmp_path_factory.mktemp("yarn"), managers=2) as running:
        yield running
    gc.unfreeze()


@pytest.fixture
def yarn_service(yarn: YarnStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[YarnService]:
    """The stand-in, as this test sees it, and a connection to it."""
    from tests.yarn_service import CONNECTION, YarnService, connection

    monkeypatch.setenv(CONNECTION, connection(yarn.address))
    service = YarnService(yarn, tmp_path)
    yield service
    yarn.heal()
    service.release()
    gc.collect()


@pytest.fixture
def yarn_task(yarn_service: YarnService, tmp_path: Path) -> Callable[..., YarnTask]:
    """Make a task; its application runs until the service's gate is opened, unless told otherwise."""
    from tests.yarn_service import YarnTask

    def of(plan: dict[str, Any] | None = None, **more: Any) -> YarnTask:
        plan = plan or yarn_service.plan("runs")
        return YarnTask.of(yarn_service, tmp_path / "store", plan, **more)

    return of
