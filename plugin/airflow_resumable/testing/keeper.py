# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The small process that owns every process of one test deployment and outlives none of them.

`airflow_resumable.testing.processes.ProcessTree` starts it by file name and talks to it over a
socket, one JSON object a line. The keeper starts each process in a session of its own, adopts
whatever those processes orphan, and kills all of it when it is told to, when it gets a SIGTERM, or
when the harness at the other end of the socket is gone, however that died. Each process also asks the
kernel for a SIGKILL should the keeper itself be killed.

Needs Linux for the adoption (prctl(2), PR_SET_CHILD_SUBREAPER) and for following a killed keeper
(PR_SET_PDEATHSIG); elsewhere orphans are found by their session alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_DEADLINE = 10.0

_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _prctl(option: int, value: int) -> None:
    if _libc is not None:
        _libc.prctl(option, value, 0, 0, 0)


def _die_with_keeper() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Keeper:
    """Starts, reaps and kills processes on behalf of one harness.

    Args:
        control: The connected socket to the harness.
        harness: The harness's pid.
    """

    def __init__(self, control: socket.socket, harness: int) -> None:
        self._control = control
        self._harness = harness
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._sessions: set[int] = set()
        self._stop_signals: dict[int, int] = {}
        self._folders: list[str] = []
        self._told_to_end = False

    def serve(self) -> None:
        """Work until the harness closes the socket, dies, or a signal asks for the end; then kill all."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        wake_read, wake_write = socket.socketpair()
        wake_write.setblocking(False)
        wake_read.setblocking(False)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end)
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        selector.register(wake_read, selectors.EVENT_READ)
        # A fork of the harness may hold the socket open after the harness has died.
        harness_fd = self._open_harness()
        if harness_fd is not None:
            selector.register(harness_fd, selectors.EVENT_READ)
        received = b""
        try:
            while not self._told_to_end:
                ready = {key.fileobj for key, _ in selector.select()}
                if wake_read in ready:
                    with suppress(BlockingIOError):
                        wake_read.recv(4096)
                self._reap()
                if harness_fd in ready:
                    break
                if self._control in ready:
                    chunk = self._control.recv(1 << 16)
                    if not chunk:
                        break
                    *lines, received = (received + chunk).split(b"\n")
                    for line in lines:
                        self._answer(json.loads(line))
        finally:
            left = self._stop(None, None, 0.0)
            if left:
                print(f"processes {left} could not be killed", file=sys.stderr, flush=True)
            for folder in self._folders:
                shutil.rmtree(folder, onerror=_tell_leftover)

    def _end(self, *_: Any) -> None:
        self._told_to_end = True

    def _open_harness(self) -> int | None:
        if not hasattr(os, "pidfd_open"):
            return None
        try:
            return os.pidfd_open(self._harness)
        except ProcessLookupError:
            self._told_to_end = True
        except OSError as error:
            print(f"no pidfd for the harness ({error}); its socket alone tells its end", file=sys.stderr)
        return None

    def _answer(self, request: dict[str, Any]) -> None:
        operation = request["op"]
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            if operation == "start":
                answer["pid"] = self._start(request)
            elif operation == "signal":
                answer["sent"] = self._signal(request["pid"], request["signal"])
            elif operation == "folder":
                self._folders.append(request["path"])
            elif operation == "stop":
                answer["left"] = self._stop(request["pid"], request["signal"], request["grace"])
            else:
                answer["error"] = f"unknown operation {operation!r}"
        except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        self._tell(answer)

    def _tell(self, message: dict[str, Any]) -> None:
        # A harness that is gone is noticed by the loop; what it would have been told doesn't matter.
        with suppress(OSError):
            self._control.sendall(json.dumps(message).encode() + b"\n")

    def _start(self, request: dict[str, Any]) -> int:
        with open(request["stdout"], "ab") as stdout, open(request["stderr"], "ab") as stderr:
            child = subprocess.Popen(
                request["argv"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=request["cwd"],
                env=request["env"],
                start_new_session=True,
                preexec_fn=_die_with_keeper,
                **_as_user(request["user"]),
            )
        self._running[child.pid] = child
        self._sessions.add(child.pid)
        self._stop_signals[child.pid] = request["stop_signal"]
        return child.pid

    def _signal(self, pid: int, number: int) -> bool:
        self._reap()
        if pid not in self._running:
            return False
        os.kill(pid, number)
        return True

    def _reap(self) -> bool:
        """Collect the dead; return whether any child, started or adopted, is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            child = self._running.pop(pid, None)
            if child is not None:
                child.returncode = os.waitstatus_to_exitcode(status)
                self._tell({"exit": pid, "code": child.returncode})

    def _members(self, leader: int | None) -> list[psutil.Process]:
        """List the living processes of one start, or of all: descendants and members of its session."""
        ours = psutil.Process().children(recursive=True)
        if leader is None:
            found = {process.pid: process for process in ours}
        else:
            found = {process.pid: process for process in ours if _session(process.pid) == leader}
            if leader in self._running:
                with suppress(psutil.NoSuchProcess):
                    below = psutil.Process(leader).children(recursive=True)
                    found.update((process.pid, process) for process in below)
        if sys.platform != "linux":
            sessions = self._sessions if leader is None else {leader}
            strays = (process for process in psutil.process_iter() if _session(process.pid) in sessions)
            found.update((process.pid, process) for process in strays)
        return [process for process in found.values() if _is_alive(process)]

    def _stop(self, leader: int | None, first: int | None, grace: float) -> list[int]:
        """Stop one start or all of them; return the pids that outlived SIGKILL."""
        leaders = list(self._running) if leader is None else [pid for pid in [leader] if pid in self._running]
        asked = {pid: first or self._stop_signals[pid] for pid in leaders}
        polite = {pid for pid, number in asked.items() if number != signal.SIGKILL}
        for pid in polite:
            with suppress(ProcessLookupError):
                os.kill(pid, asked[pid])
        if polite:
            until = time.monotonic() + (grace or 3.0)
            self._until(lambda: not polite & self._running.keys(), until)
        until = time.monotonic() + _KILL_DEADLINE
        quiet = 0
        # One look may miss a process whose parent vanished between listing the pids and reading
        # them. No child left at all proves the end, since orphans come to us; so do two empty looks.
        while quiet < 2:
            any_child = self._reap()
            if leader is None and not any_child and sys.platform == "linux":
                return []
            members = self._members(leader)
            quiet = 0 if members or (leader is None and any_child) else quiet + 1
            for member in members:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            if time.monotonic() > until:
                return [member.pid for member in members]
            time.sleep(0.005)
        self._reap()
        return []

    def _until(self, done: Callable[[], bool], until: float) -> None:
        while self._reap() and not done() and time.monotonic() < until:
            time.sleep(0.01)


def _tell_leftover(_: object, path: str, error: Any) -> None:
    if not isinstance(error[1], FileNotFoundError):
        print(f"{path} was left behind: {error[1]}", file=sys.stderr, flush=True)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return cast(str, process.status()) not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _as_user(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    import pwd

    entry = pwd.getpwnam(name)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


if __name__ == "__main__":
    Keeper(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])).serve()
