# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Finding and killing the process of a running task, for tests of Dags without crash points."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from airflow_resumable.testing.stack import AirflowStack


def running_process(stack: AirflowStack, dag: str, run: str, task: str) -> psutil.Process:
    """Return the process of a running task; its parent is the task's supervisor."""
    pid = stack.wait_for(dag, run, task, {"running"})["pid"]
    (process,) = [process for process in stack.processes() if process.pid == pid]
    return process


def kill(*processes: psutil.Process) -> None:
    """Send SIGKILL to all of them and return when they are dead."""
    for process in processes:
        process.kill()
    until("the killed are dead", lambda: not any(map(_alive, processes)))


@contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """Stop a process with SIGSTOP for as long as the block lasts; it may be killed in between."""
    process.suspend()
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def until(what: str, condition: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait for a condition that nothing announces; fail with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.05)


def _alive(process: psutil.Process) -> bool:
    # A task whose supervisor is stopped or killed stays a zombie until somebody reaps it.
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
