# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Time that passes only when an attempt sleeps: the one seam through which the protocol's clocks go."""

from __future__ import annotations

import contextlib
import datetime as real
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import tenacity
import tenacity.nap

from airflow_resumable.jobs import (
    attempt,
    kill,
    ledger,
    outcome,
    record,
    service,
    submission,
    transient,
    watch,
)

EPOCH = real.datetime(2026, 11, 29, 12, 0, tzinfo=real.UTC)
_MODULES = (attempt, kill, ledger, outcome, service, submission, transient, watch, tenacity, tenacity.nap)


class Clock:
    """Seconds since the run began.

    Args:
        sleep: Called with the seconds of each sleep; it moves the clock.
        signal_after: Called with the seconds after which the sleeper's process signals itself.
    """

    def __init__(self, sleep: Callable[[float], None], signal_after: Callable[[float], None]) -> None:
        self.now = 0.0
        self._sleep = sleep
        self._signal_after = signal_after

    def wall(self, zone: Any = None) -> real.datetime:
        """Return the moment as a worker's clock shows it."""
        return EPOCH + real.timedelta(seconds=self.now)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Make this the clock of every module of the protocol, and of tenacity.

        The two helpers that a dying task runs beside itself become part of its own thread, so that
        nothing moves unless it has the baton.
        """
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        after = self._signal_after

        class Inline:
            def __init__(self, target: Callable[[], None], **_: Any) -> None:
                self.start = target

            def join(self, timeout: float) -> None:
                """Nothing: `start` has run it to its end."""

        class Timer:
            def __init__(self, seconds: float, *_: Any) -> None:
                self.start = lambda: after(seconds)

            def cancel(self) -> None:
                """Nothing: a stop that comes after all finds that the attempt is over, as in a process."""

        with contextlib.ExitStack() as stack:
            for module in _MODULES:
                if getattr(module, "time", None) is time:
                    stack.enter_context(mock.patch.object(module, "time", clock))
                if getattr(module, "datetime", None) is real.datetime and module is not record:
                    stack.enter_context(mock.patch.object(module, "datetime", SimpleNamespace(now=self.wall)))
            stack.enter_context(
                mock.patch.object(kill, "threading", SimpleNamespace(Thread=Inline, Timer=Timer))
            )
            yield
