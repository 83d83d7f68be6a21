# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Processes of jobs that outlived the service: how they are found again, and killed.

Each job has the data directory's own cookie in its environment, so all of its descendants are found, those
that left its process group too. A process that has overwritten its environment, as setproctitle does, is
found if it leads the job's group, by pid and start time. Without ``/proc`` (macOS) nothing is found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

COOKIE_VARIABLE = "JOB_SERVICE_COOKIE"
_GIVE_UP_AFTER = 5.0


def start_ticks(pid: int) -> int | None:
    """Return when a live process was started, in clock ticks since boot; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command name, in parentheses, may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def carrying(cookie: str) -> list[int]:
    """List the processes that have the cookie in their environment."""
    entry = f"{COOKIE_VARIABLE}={cookie}".encode()
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry in (directory / "environ").read_bytes().split(b"\0"):
                found.append(int(directory.name))
    return found


def kill(cookie: str, leaders: Iterable[tuple[int, int]] = ()) -> list[int]:
    """Kill whatever the jobs of a service left running and wait until it is gone.

    Args:
        cookie: The cookie of the service's data directory.
        leaders: Pid and start ticks of the jobs' first processes, as recorded.

    Returns:
        The pids that were killed.

    Raises:
        TimeoutError: Some of them were still there after 5 s of SIGKILL.
    """
    known = list(leaders)
    killed: set[int] = set()
    deadline = time.monotonic() + _GIVE_UP_AFTER
    while True:
        groups = [pid for pid, ticks in known if start_ticks(pid) == ticks]
        singles = carrying(cookie)
        if not groups and not singles:
            return sorted(killed)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted({*groups, *singles})} of jobs survive SIGKILL")
        for pid in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        for pid in singles:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed.update(groups, singles)
        # Strangers' processes send no event when they are gone.
        time.sleep(0.005)
