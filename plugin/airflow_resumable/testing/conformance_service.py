# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What an operator's author tells the conformance suite about the service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from pydantic import JsonValue

Call = Literal["submit", "status", "find", "cancel"]
Fault = Literal["unavailable", "lost_reply", "denied"]


@dataclass(frozen=True, slots=True)
class SeenJob:
    """One job in the service's own book.

    Args:
        external_id: In the shape that `submit_job` returns.
        live: Whether it may still do work.
    """

    external_id: JsonValue
    live: bool


class ServiceUnderTest(ABC):
    """The service behind an operator, real or a fake of it, seen from the side that the operator doesn't see.

    The first two methods are needed. Each of the others adds behaviours that are skipped without it.
    """

    @abstractmethod
    def jobs(self) -> Sequence[SeenJob]:
        """Return every job that was ever started, oldest first, whatever the operator believes."""

    @abstractmethod
    def release(self) -> None:
        """Let every job that was made to run succeed, those to come too."""

    def forget(self, external_id: JsonValue) -> None:
        """Let the service know nothing of a job any more."""
        raise NotImplementedError

    def cancels(self) -> int:
        """Return how many cancel requests the service was sent."""
        raise NotImplementedError

    def stop_slowly(self, external_id: JsonValue) -> None:
        """Bring a running job into the state in which it is stopping, and keep it there."""
        raise NotImplementedError

    def fail(self, call: Call, fault: Fault, times: int) -> None:
        """Let the next calls of one kind fail.

        Args:
            call: What is called.
            fault: ``unavailable``: nothing is done, as a 503; ``lost_reply``: it is done, and the connection
                breaks; ``denied``: as a 403.
            times: How many calls.

        Raises:
            NotImplementedError: For a fault that this service can't have; the behaviour is skipped.
        """
        raise NotImplementedError


def need(service: ServiceUnderTest, *methods: str) -> None:
    """Skip a behaviour for which the author's service lacks a method, and say so."""
    for name in methods:
        if getattr(type(service), name) is getattr(ServiceUnderTest, name):
            pytest.skip(f"{type(service).__name__}.{name} is not defined, so this can't be shown")


def fail(service: ServiceUnderTest, call: Call, fault: Fault, times: int) -> None:
    """Let calls fail, or skip a behaviour for which the author's service can't."""
    need(service, "fail")
    try:
        service.fail(call, fault, times)
    except NotImplementedError as error:
        pytest.skip(f"{type(service).__name__}.fail({call!r}, {fault!r}): {error}")
