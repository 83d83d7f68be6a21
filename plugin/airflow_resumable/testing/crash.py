# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The harness's side of the crash points: decides what happens to the process that reached one.

::

    with CrashController() as crash, AirflowStack(home, env=crash.env) as stack:
        crash.on("after_accept", "kill_task", task_id="load")
        run = stack.trigger("nightly")
        crash.wait("after_accept", try_number=2)
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from airflow_resumable.jobs.crashpoints import SOCKET_VARIABLE, check_point
from airflow_resumable.testing.crash_rules import SIGNALS, Action, CrashError, Event, Rule, Which

__all__ = ["Action", "CrashController", "CrashError", "Event"]

log = logging.getLogger(__name__)

# sun_path of sockaddr_un, see unix(7); the last byte is the terminating zero.
_LONGEST_SOCKET_PATH = 107
_LEAVES_WITHIN = 10.0


class CrashController:
    """Listens on a Unix socket for processes at crash points and applies rules to them.

    Only processes below this one are ever signalled, and only those that still are what they were when
    they reported.

    Args:
        socket_path: Where to listen; None for a fresh place in the system's temporary directory.

    Raises:
        ValueError: When the path is too long for a Unix socket.
        CrashError: From `wait`, `reset` and the end of the ``with`` block, when a rule could not be
            carried out.
    """

    def __init__(self, socket_path: Path | None = None) -> None:
        self._folder = None if socket_path else tempfile.mkdtemp(prefix="crash-")
        self.socket_path = socket_path or Path(str(self._folder), "s")
        length = len(os.fsencode(self.socket_path))
        if length > _LONGEST_SOCKET_PATH:
            raise ValueError(
                f"socket_path {str(self.socket_path)!r} has {length} bytes, a Unix socket takes "
                f"{_LONGEST_SOCKET_PATH}; leave socket_path out or use a shorter directory"
            )
        self.events: list[Event] = []
        """Every process that reached a point, in order, once its rule was carried out."""
        self._changed = threading.Condition()
        self._rules: list[Rule] = []
        self._held: set[Event] = set()
        self._stopped: dict[Event, list[int]] = {}
        self._errors: list[CrashError] = []
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def env(self) -> dict[str, str]:
        """The environment that makes processes report here."""
        return {SOCKET_VARIABLE: str(self.socket_path)}

    def __enter__(self) -> Self:
        """Begin to listen."""
        self.socket_path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.socket_path))
        self._listener.listen(128)
        self._spawn(self._accept, self._listener)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let every process go on and stop listening."""
        self.release()
        self.resume()
        assert self._listener is not None
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            open_connections = list(self._connections)
        for connection in open_connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_LEAVES_WITHIN)
        self.socket_path.unlink(missing_ok=True)
        if self._folder:
            shutil.rmtree(self._folder)
        if kind is None:
            self._raise_errors()

    def on(
        self,
        point: str,
        action: Action,
        *,
        dag_id: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
        map_index: int | None = None,
        try_number: int | None = 1,
        times: int = 1,
        hold: bool = False,
    ) -> None:
        """Add a rule; the first one that matches and isn't used up decides.

        Args:
            point: One of `airflow_resumable.jobs.crashpoints.POINTS`.
            action: ``kill_task``, ``kill_supervisor``, ``kill_both`` send SIGKILL. ``term_task`` and
                ``term_supervisor`` let the task leave the point and then send SIGTERM, or with `hold` send it
                to a task that stays there. ``stop_task`` and ``stop_both`` send SIGSTOP, see `resume`.
                ``hold`` waits for `release`. ``raise:<text>`` raises RuntimeError in the task, ``exit`` ends
                it with code 9. A callable gets the event and returns the answer to send, None for ``go``.
            dag_id: Of this Dag alone; None for any. Likewise `task_id`, `run_id` and `map_index`.
            task_id: Of this task alone.
            run_id: Of this run alone.
            map_index: Of this map index alone.
            try_number: In this try alone, None for any.
            times: How often the rule applies.
            hold: Keep a process that outlives the action at the point until `release`.

        Raises:
            ValueError: For an unknown point or action, naming the known ones, and for a `times` below 1.
        """
        which = Which(check_point(point), dag_id, task_id, run_id, map_index, try_number)
        if isinstance(action, str) and action not in SIGNALS and not action.startswith("raise:"):
            known = ", ".join(SIGNALS)
            raise ValueError(f"action={action!r} is not known; use {known}, raise:<text> or a callable")
        if times < 1:
            raise ValueError(f"times={times!r} must be 1 or more")
        with self._changed:
            self._rules.append(Rule(which, action, times, hold or action == "hold"))

    def wait(
        self,
        point: str | None = None,
        *,
        dag_id: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
        map_index: int | None = None,
        try_number: int | None = None,
        count: int = 1,
        timeout: float = 60.0,
    ) -> Event:
        """Wait until a process reached the point and its rule was carried out; earlier events count.

        Args:
            point: The point; None for any.
            dag_id: Of this Dag alone; None for any. Likewise `task_id`, `run_id`, `map_index`, `try_number`.
            task_id: Of this task alone.
            run_id: Of this run alone.
            map_index: Of this map index alone.
            try_number: In this try alone.
            count: Return the n-th such event.
            timeout: Seconds.

        Raises:
            TimeoutError: Naming what was waited for and every event so far.
        """
        which = Which(point and check_point(point), dag_id, task_id, run_id, map_index, try_number)

        def found() -> list[Event]:
            return [event for event in self.events if which.matches(event)]

        with self._changed:
            self._changed.wait_for(lambda: self._errors or len(found()) >= count, timeout)
            self._raise_errors()
            events = found()
            seen = "".join(f"\n  {event}" for event in self.events) or " none"
        if len(events) < count:
            raise TimeoutError(
                f"{len(events)} of {count} events with {which} within {timeout} s; events so far:{seen}"
            )
        return events[count - 1]

    def release(self, event: Event | None = None) -> int:
        """Let a held process go on, or all of them; return how many were held."""
        with self._changed:
            going = {event} & self._held if event else set(self._held)
            self._held -= going
            self._changed.notify_all()
        return len(going)

    def resume(self, event: Event | None = None) -> None:
        """Send SIGCONT to the processes that an event's rule stopped, or to all that any rule stopped."""
        with self._changed:
            chosen = [event] if event else list(self._stopped)
            stopped = [(one, pid) for one in chosen for pid in self._stopped.pop(one, [])]
        for one, pid in stopped:
            one.signal(pid, signal.SIGCONT)

    def reset(self) -> None:
        """Forget rules and events, and let every held or stopped process go on.

        Raises:
            CrashError: After that, when a rule could not be carried out and nobody was told.
        """
        with self._changed:
            self._rules.clear()
        self.release()
        self.resume()
        with self._changed:
            self.events.clear()
        self._raise_errors()

    def _raise_errors(self) -> None:
        errors, self._errors = self._errors, []
        if errors:
            raise CrashError("; ".join(map(str, errors)))

    def _spawn(self, work: Callable[[socket.socket], None], connection: socket.socket) -> None:
        thread = threading.Thread(target=work, args=(connection,), name="crash-controller", daemon=True)
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self._changed:
                self._connections.add(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                report = _read_line(connection)
                if report:
                    self._handle(connection, json.loads(report))
            except OSError as error:
                log.info("crash controller: a process was gone before its answer: %s", error)
            except (ValueError, KeyError, psutil.Error) as error:
                self._fail(CrashError(f"a report was not understood: {type(error).__name__}: {error}"))
            finally:
                with self._changed:
                    self._connections.discard(connection)

    def _handle(self, connection: socket.socket, report: dict[str, Any]) -> None:
        event = Event.of(_peer(connection) or int(report["pid"]), report)
        with self._changed:
            rule = self._rule_for(event)
            if rule:
                event = replace(event, action=rule.name)
            if rule and rule.hold:
                self._held.add(event)
        answer: str | None = "go"
        try:
            answer = self._carry_out(rule, event, connection) if rule else answer
        except CrashError as error:
            self._fail(error)
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()
            self._changed.wait_for(lambda: event not in self._held)
        if answer is not None:
            connection.sendall(answer.encode() + b"\n")

    def _rule_for(self, event: Event) -> Rule | None:
        for rule in self._rules:
            if rule.left and rule.which.matches(event):
                rule.left -= 1
                return rule
        return None

    def _carry_out(self, rule: Rule, event: Event, connection: socket.socket) -> str | None:
        """Do what the rule says; return the answer to send, None when it has been sent."""
        if not isinstance(rule.action, str):
            try:
                return rule.action(event) or "go"
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
                raise CrashError(f"the rule {rule.name} at {event.point} raised {told}") from error
        if rule.action == "exit" or rule.action.startswith("raise:"):
            return rule.action
        targets = [
            (event.pid if who == "task" else event.ppid, number) for who, number in SIGNALS[rule.action]
        ]
        answered = rule.action.startswith("term_") and not rule.hold
        if answered:
            connection.sendall(b"go\n")
            connection.settimeout(_LEAVES_WITHIN)
            _read_line(connection)
        if rule.action.startswith("stop_"):
            self._stopped[event] = [pid for pid, _ in targets]
        for pid, number in targets:
            event.signal(pid, number)
        return None if answered else "go"

    def _fail(self, error: CrashError) -> None:
        log.error("crash controller: %s; the process goes on", error)
        with self._changed:
            self._errors.append(error)
            self._changed.notify_all()


def _peer(connection: socket.socket) -> int | None:
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


def _read_line(connection: socket.socket) -> str:
    received = b""
    while not received.endswith(b"\n"):
        chunk = connection.recv(1 << 16)
        if not chunk:
            return ""
        received += chunk
    return received.decode()
