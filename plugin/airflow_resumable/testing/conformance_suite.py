# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What every behaviour of the conformance suite starts from: a service, an operator, one task instance."""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest

from airflow_resumable.jobs.adapter import Capabilities
from airflow_resumable.testing.conformance_service import ServiceUnderTest
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.task_tries import CrashBy, TaskTries

Outcome = Literal["runs", "succeeds", "fails"]
LOOKS = 200
"""Looks at a job that is stopping or in an unknown state, after which a bounded wait would have ended."""


class StillWaiting(BaseException):
    """A wait that should have had an end."""


class ConformanceSuite:
    """The fixtures and helpers of the behaviours; `airflow_resumable.testing.conformance` has the whole."""

    crash_by: CrashBy = "exception"
    short: float = 0.2
    patience: float = 30.0

    @pytest.fixture
    def service(self) -> ServiceUnderTest:
        """Return the service, with no job in it; override this fixture."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture service(self)")

    @abstractmethod
    def make(self, service: Any, outcome: Outcome) -> Any:
        """Return a fresh operator, or a fresh `ExternalJob`, with a short poll interval.

        Args:
            service: What the fixture gave.
            outcome: ``runs`` (until `ServiceUnderTest.release`, then success), ``succeeds`` or ``fails``.
        """

    @pytest.fixture
    def tries(self, tmp_path: Path) -> TaskTries:
        """One task instance, whose tries share a store of files."""
        return TaskTries(FileTaskStateStore(tmp_path / "store"))

    def _can(self, service: Any) -> Capabilities:
        can: Capabilities = self.make(service, "runs").get_capabilities()
        return can

    def _crash(self, tries: TaskTries, service: Any, outcome: Outcome, point: str) -> None:
        if not tries.crash(lambda: self.make(service, outcome), point, by=self.crash_by):
            pytest.skip(f"this operator's own poll loop doesn't pass the crash point {point}")

    def _running(self, tries: TaskTries, service: Any) -> Any:
        """Leave a job running whose watcher is gone, and return its id."""
        self._crash(tries, service, "runs", "after_id")
        return tries.record(self.make(service, "runs"))["external_id"]

    def _live(self, service: ServiceUnderTest) -> list[Any]:
        return [job.external_id for job in service.jobs() if job.live]

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.patience
        while not holds():
            assert time.monotonic() < deadline, f"{what}: not within {self.patience:.0f} s"
            time.sleep(0.02)

    @contextlib.contextmanager
    def _raises(self, expected: type[Exception]) -> Iterator[None]:
        """Be `pytest.raises`, for which another error isn't one of the suite's but a failed behaviour."""
        try:
            yield
        except expected:
            return
        except Exception as error:
            pytest.fail(f"{expected.__name__} was to be raised, not {error!r}")
        pytest.fail(f"{expected.__name__} was to be raised, and nothing was")

    def _goes_well(self, tries: TaskTries, subject: Any) -> Any:
        """Run the next try, which the behaviour says must return."""
        try:
            return tries.run(subject)
        except Exception as error:
            pytest.fail(f"the try was to return, and raised {error!r}")

    def _bounded(self, subject: Any, status: str | None = None) -> Any:
        """Count the looks at a job, and let them show another status if one is given."""
        look, looks = subject.get_job_status, iter(range(LOOKS))

        def get_job_status(external_id: Any, context: Any) -> Any:
            if next(looks, None) is None:
                raise StillWaiting(f"{LOOKS} looks, and no end of the wait")
            return look(external_id, context) if status is None else status

        return mock.patch.object(subject, "get_job_status", get_job_status)
