# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Process trees that a harness can always stop, whatever died in between."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from airflow_resumable.testing.errors import StackError

_KEEPER = Path(__file__).with_name("keeper.py")
_ANSWER_WITHIN = 30.0

_keepers: set[int] = set()


def is_keeper(pid: int) -> bool:
    """Tell whether `pid` is a keeper of this harness: the parent of orphans, never to be killed."""
    return pid in _keepers


@dataclass(frozen=True, eq=False)
class Managed:
    """One started process.

    Attributes:
        name: What the process is called in errors.
        pid: Its process id, which is its session id too.
        log: The file its standard output and error go to.
        tree: The tree it belongs to.
    """

    name: str
    pid: int
    log: Path
    tree: ProcessTree = field(repr=False)

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self.tree.exit_code(self.pid)

    @property
    def alive(self) -> bool:
        """Whether the process itself still runs; its children aren't asked."""
        return self.returncode is None

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to the process alone; return False when it has ended."""
        return self.tree.send(self, number)

    def wait(self, timeout: float) -> int | None:
        """Wait up to `timeout` seconds for the end; return the exit code, None when it still runs."""
        return self.tree.wait(self, timeout)

    def tail(self, lines: int = 30) -> str:
        """Return the last lines of the log."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join(text.rstrip().splitlines()[-lines:]) or "(the log is empty)"


class ProcessTree:
    """Processes that belong to one harness and end with it.

    A small keeper process (`airflow_resumable.testing.keeper`) starts them, each in its own session,
    and adopts what they orphan. All of them, descendants included, are gone after `close`, at the
    interpreter's exit, and moments after the harness died by SIGTERM or SIGKILL: the keeper sees its
    socket close.

    Args:
        logs: Directory for log files; it is made when missing.

    Raises:
        StackError: From `start`, when the keeper or the program can't be started.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._owner = os.getpid()
        self._ids = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._exits: dict[int, int] = {}
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._gone = False
        self._keeper: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._reader: threading.Thread | None = None
        self._started: list[Managed] = []
        self._since = time.time()

    def __enter__(self) -> Self:
        """Start the keeper."""
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self.close()

    @property
    def keeper_pid(self) -> int | None:
        """The keeper's pid, None before the first start and after `close`."""
        return self._keeper.pid if self._keeper else None

    def _open(self) -> None:
        if self._keeper is not None:
            return
        self.logs.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
        with theirs, open(self.logs / "keeper.log", "ab") as log:
            self._keeper = subprocess.Popen(
                # -P: the modules beside keeper.py must not shadow anything it imports.
                [sys.executable, "-P", str(_KEEPER), str(theirs.fileno()), str(self._owner)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        _keepers.add(self._keeper.pid)
        self._control, self._gone = ours, False
        self._reader = threading.Thread(target=self._read, args=(ours,), name="process-tree", daemon=True)
        self._reader.start()
        atexit.register(self.close)

    def _read(self, control: socket.socket) -> None:
        received = b""
        while True:
            try:
                chunk = control.recv(1 << 16)
            except OSError:
                chunk = b""
            *lines, received = (received + chunk).split(b"\n")
            with self._changed:
                for message in map(json.loads, lines):
                    if "exit" in message:
                        self._exits[message["exit"]] = message["code"]
                    else:
                        self._answers[message["id"]] = message
                self._gone = self._gone or not chunk
                self._changed.notify_all()
            if not chunk:
                return

    def _ask(self, operation: str, timeout: float = _ANSWER_WITHIN, **request: Any) -> dict[str, Any]:
        assert self._control is not None
        with self._sending:
            self._ids += 1
            ask_id = self._ids
            try:
                self._control.sendall(json.dumps({"op": operation, "id": ask_id, **request}).encode() + b"\n")
            except OSError as error:
                raise StackError(
                    f"the keeper of {self.logs} is gone ({error}); see keeper.log there"
                ) from error
        with self._changed:
            self._changed.wait_for(lambda: ask_id in self._answers or self._gone, timeout)
            answer = self._answers.pop(ask_id, None)
        if answer is None:
            raise StackError(f"the keeper of {self.logs} did not answer {operation!r}; see keeper.log there")
        if "error" in answer:
            raise StackError(f"{operation} {request.get('argv', '')} failed: {answer['error']}")
        return answer

    def start(
        self,
        name: str,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str],
        cwd: Path,
        user: str | None = None,
        stop_signal: signal.Signals = signal.SIGKILL,
        stderr: Path | None = None,
        stdout: Path | None = None,
    ) -> Managed:
        """Start a program in a session of its own.

        Args:
            name: For errors and for the log file, ``<name>.log`` in the tree's log directory (appended to).
            argv: The program and its arguments.
            env: The whole environment; nothing is inherited.
            cwd: The working directory.
            user: Run as this user; only root can.
            stop_signal: The first signal `stop` and `close` send; SIGKILL follows.
            stdout: A file for standard output, and standard error without `stderr`, instead of the log.
            stderr: A file for standard error.
        """
        self._open()
        log = stdout or self.logs / f"{name}.log"
        answer = self._ask(
            "start",
            argv=[os.fspath(part) for part in argv],
            env=dict(env),
            cwd=str(cwd),
            stdout=str(log),
            stderr=str(stderr or log),
            user=user,
            stop_signal=int(stop_signal),
        )
        managed = Managed(name, answer["pid"], log, self)
        self._started.append(managed)
        return managed

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str],
        cwd: Path,
        timeout: float,
        user: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, `timeout` seconds at most, and return its output, whatever its code."""
        self._open()
        with tempfile.TemporaryDirectory(dir=self.logs, prefix="run-") as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            managed = self.start(
                Path(argv[0]).name, argv, env=env, cwd=cwd, stdout=out, stderr=err, user=user
            )
            code = managed.wait(timeout)
            self.stop(managed)
            output = (
                out.read_text(encoding="utf-8", errors="replace"),
                err.read_text(encoding="utf-8", errors="replace"),
            )
        self._started.remove(managed)
        if code is None:
            raise StackError(
                f"{' '.join(map(str, argv))} did not end within {timeout} s:\n{''.join(output)[-4000:]}"
            )
        return subprocess.CompletedProcess(list(map(str, argv)), code, *output)

    def scratch(self, prefix: str) -> Path:
        """Make a directory in the system's temporary one; it is deleted after the last process has ended."""
        self._open()
        folder = tempfile.mkdtemp(prefix=prefix)
        self._ask("folder", path=folder)
        return Path(folder)

    def exit_code(self, pid: int) -> int | None:
        """Return the exit code of a started process, None while it runs."""
        with self._changed:
            return self._exits.get(pid, -signal.SIGKILL if self._gone else None)

    def wait(self, managed: Managed, timeout: float) -> int | None:
        """Wait up to `timeout` seconds for a process to end and return its exit code, else None."""
        with self._changed:
            self._changed.wait_for(lambda: managed.pid in self._exits or self._gone, timeout)
            return self._exits.get(managed.pid)

    def pause(self, seconds: float, *watched: Managed) -> None:
        """Wait `seconds`, or less when one of the watched processes ends."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._gone or any(one.pid in self._exits for one in watched), seconds
            )

    def send(self, managed: Managed, number: signal.Signals) -> bool:
        """Send a signal to one process alone; return False when it has ended."""
        return bool(self._ask("signal", pid=managed.pid, signal=int(number))["sent"])

    def stop(
        self, managed: Managed | None = None, *, first: signal.Signals | None = None, grace: float = 3.0
    ) -> None:
        """Stop one start, or all, with every descendant and session member, and wait until they are gone.

        Args:
            managed: What to stop; None for everything.
            first: The signal to begin with, instead of the one given at the start.
            grace: Seconds to wait after a first signal that is not SIGKILL.

        Raises:
            StackError: When a process outlives SIGKILL.
        """
        pid = managed.pid if managed else None
        number = int(first) if first else None
        left = self._ask("stop", grace + _ANSWER_WITHIN, pid=pid, signal=number, grace=grace)["left"]
        if left:
            raise StackError(f"processes {left} outlived SIGKILL")

    def members(self) -> list[psutil.Process]:
        """List every living process of the tree, orphans included, the keeper excluded."""
        if self._keeper is None:
            return []
        try:
            found = psutil.Process(self._keeper.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [process for process in found if _is_alive(process)]

    def close(self) -> None:
        """Stop everything and end the keeper; a second call does nothing."""
        keeper, control = self._keeper, self._control
        # A forked child of the harness inherits this object and atexit's list, but owns nothing.
        if keeper is None or control is None or os.getpid() != self._owner:
            return
        self._keeper = self._control = None
        atexit.unregister(self.close)
        try:
            control.shutdown(socket.SHUT_WR)
            keeper.wait(_ANSWER_WITHIN)
        except OSError:
            keeper.wait(_ANSWER_WITHIN)
        finally:
            if self._reader is not None:
                self._reader.join(5)
            control.close()
            _keepers.discard(keeper.pid)
            if keeper.returncode != 0:
                self._kill_strays()

    def _kill_strays(self) -> None:
        # The keeper was killed: its children died with it, theirs are known by their session.
        sessions = {managed.pid for managed in self._started}
        until = time.monotonic() + 10
        while time.monotonic() < until:
            strays = [
                process
                for process in psutil.process_iter(["create_time"])
                # A session's number may be somebody else's by now; an older process is never ours.
                if _session(process.pid) in sessions and (process.info["create_time"] or 0) >= self._since - 1
            ]
            if not strays:
                return
            for process in strays:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(strays, 0.2)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
