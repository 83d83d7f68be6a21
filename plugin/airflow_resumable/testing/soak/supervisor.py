# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Supervises one attempt's process: serves its store, passes on where it is, signals it."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from airflow_resumable.testing.soak.attempt_process import Order, run

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([run.__module__])


@dataclass(frozen=True, slots=True)
class Report:
    """What an attempt says: it has begun, is at a crash point and waits there, has ended; or it is dead."""

    attempt: Supervised
    kind: Literal["begun", "at", "end", "dead"]
    word: str = ""
    value: Any = None


class Supervised:
    """An attempt that runs.

    Args:
        order: What it is to run.
        answer: Answers its calls: given this object and the call, returns (error's name or "", value).
        reports: Where its reports go.
    """

    def __init__(
        self,
        order: Order,
        answer: Callable[[Supervised, tuple[Any, ...]], tuple[str, Any]],
        reports: queue.SimpleQueue[Report],
    ) -> None:
        self.order = order
        self.calls = 0
        """How many calls to the store it has made."""
        self._answer = answer
        self._reports = reports
        self._calls, their_calls = _processes.Pipe()
        self._points, their_points = _processes.Pipe()
        self._process = _processes.Process(target=run, args=(order, their_calls, their_points), daemon=True)
        self._process.start()
        their_calls.close()
        their_points.close()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def go_on(self, word: str = "go") -> None:
        """Let it leave the point at which it waits."""
        with suppress(OSError):
            self._points.send(word)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid or 0, number)

    def wait(self, seconds: float) -> bool:
        """Wait for its death; say whether it died in time."""
        self._process.join(seconds)
        return self._process.exitcode is not None

    def close(self) -> None:
        """Kill it, if it still lives, and free what it holds."""
        self.signal(signal.SIGKILL)
        self._process.join()
        self._thread.join()
        self._process.close()
        self._calls.close()
        self._points.close()

    def _serve(self) -> None:
        open_pipes: list[Connection] = [self._calls, self._points]
        while open_pipes:
            for pipe in wait(open_pipes):
                assert isinstance(pipe, Connection)
                try:
                    message = pipe.recv()
                except (EOFError, OSError):
                    open_pipes.remove(pipe)
                    continue
                if pipe is self._points:
                    self._reports.put(Report(self, *message))
                else:
                    with suppress(OSError):
                        pipe.send(self._answer(self, message))
        self._process.join()
        self._reports.put(Report(self, "dead"))


def now() -> float:
    """Return the time by the clock that the service's log has."""
    return time.time()
