# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One try as a process of its own, which dies at a crash point, or whose supervisor does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.task_tries import TaskTries, at_point

Death = Literal["SIGKILL task", "SIGKILL supervisor", "SIGTERM"]
Method = Literal["fork", "forkserver"]
DEATHS: tuple[Death, ...] = ("SIGKILL task", "SIGKILL supervisor", "SIGTERM")


class SeverableStore(FileTaskStateStore):
    """A store whose way can be cut: what a task sees of it once its supervisor is dead."""

    severed = False

    def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        """Read a value, while there is a supervisor."""
        self._check()
        return super().get(key, *args, **kwargs)

    def set(self, key: str, *args: Any, **kwargs: Any) -> Any:
        """Write a value, while there is a supervisor."""
        self._check()
        return super().set(key, *args, **kwargs)

    def delete(self, key: str, *args: Any, **kwargs: Any) -> Any:
        """Remove a value, while there is a supervisor."""
        self._check()
        return super().delete(key, *args, **kwargs)

    def _check(self) -> None:
        if self.severed:
            raise BrokenPipeError("the supervisor is dead")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a try ended.

    Attributes:
        how: ``returned``, the name of the exception that ended it, or ``killed``.
        value: What it returned.
        xcoms: What it has pushed, by key.
    """

    how: str
    value: Any = None
    xcoms: dict[str, Any] | None = None


class ForkedTry:
    """Starts the try at once; nothing of it runs in the caller's process.

    Args:
        make: Makes the operator, in the new process.
        store: The folder of the task instance's store.
        try_number: The try.
        point: Where it dies; None: nowhere.
        death: How.
        method: ``forkserver`` where this process has threads that a fork would break (gRPC); then `make` has
            to be picklable.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        store: Path,
        try_number: int,
        point: str | None = None,
        death: Death = "SIGKILL task",
        method: Method = "fork",
    ) -> None:
        context: Any = multiprocessing.get_context(method)
        self._events, theirs = context.Pipe(duplex=False)
        with warnings.catch_warnings():
            # From Python 3.12 on a fork of a process with threads warns; this child only runs the try.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = context.Process(
                target=_live,
                args=(theirs, dict(os.environ), make, store, try_number, point, death),
                daemon=True,
            )
            self._process.start()
        theirs.close()
        self._ended: Ended | None = None

    def reached(self, timeout: float = 120.0) -> bool:
        """Wait until it comes to its point; False when it ends before."""
        event = self._next(timeout)
        if event == "at":
            return True
        self._ended = event
        return False

    def end(self, timeout: float = 120.0) -> Ended:
        """Wait for its end.

        Raises:
            TimeoutError: It goes on.
        """
        while self._ended is None:
            event = self._next(timeout)
            self._ended = None if event == "at" else event
        self._process.join(timeout)
        return self._ended

    def _next(self, timeout: float) -> Any:
        if not self._events.poll(timeout):
            self._process.kill()
            raise TimeoutError(f"the try did nothing for {timeout:.0f} s")
        try:
            return self._events.recv()
        except EOFError:
            return Ended("killed")


def _live(
    pipe: Any,
    environment: dict[str, str],
    make: Callable[[], Any],
    folder: Path,
    try_number: int,
    point: str | None,
    death: Death,
) -> None:
    os.environ.update(environment)
    store = SeverableStore(folder)
    tries = TaskTries(store)
    # The run's start makes the token, so each try has to be told the same.
    tries._started = _run_start(folder)
    subject = make()
    passed: list[str] = []

    def _on_term(signum: int, frame: object) -> None:
        subject.on_kill()

    def act() -> None:
        if passed:
            return
        passed.append("")
        pipe.send("at")
        if death == "SIGKILL supervisor":
            store.severed = True
            tries.server_state = "nobody can be asked"
        else:
            os.kill(os.getpid(), signal.SIGKILL if death == "SIGKILL task" else signal.SIGTERM)

    signal.signal(signal.SIGTERM, _on_term)
    try:
        with at_point(point or "", act):
            value = tries.run(subject, try_number=try_number)
        ended = Ended("returned", value, dict(tries.xcoms))
    except BaseException as error:
        ended = Ended(type(error).__name__)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.send(ended)
    pipe.close()
    os._exit(0)


def _run_start(folder: Path) -> Any:
    from datetime import UTC, datetime

    file = folder.with_name(f"{folder.name}.started")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(datetime.now(UTC).isoformat(), encoding="utf-8")
    return datetime.fromisoformat(file.read_text(encoding="utf-8"))
