# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Named points of the job protocol at which a test may stop, kill or break a real process.

Nothing happens unless the environment names a Unix socket in `SOCKET_VARIABLE` when this module is
imported: `reach` then costs one comparison with None. The other end is
`airflow_resumable.testing.crash.CrashController`.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from typing import Any

log = logging.getLogger(__name__)

SOCKET_VARIABLE = "AIRFLOW_RESUMABLE_CRASH_SOCKET"

POINTS = (
    "before_intent",
    "after_intent",
    "after_accept",
    "between_key_writes",
    "after_id",
    "mid_poll",
    "before_result",
    "before_outcome",
    "after_outcome",
    "before_return",
)
"""The points, in the order in which an undisturbed attempt passes them.

`after_intent` lies just before the submit, `after_accept` between the service's answer and the first
store write, `between_key_writes` after the parent's key and before the record's id, `mid_poll` in each
round of the poll loop.
"""

DEFERRED_POINTS = ("before_defer", "in_trigger")
"""Two more of a deferred task: its job is on record and the worker is about to let go; and each round of
the trigger, in the triggerer's process."""

# What Airflow exports to the task's environment, for callers that don't know which task they run in.
_CONTEXT = {
    "dag_id": "AIRFLOW_CTX_DAG_ID",
    "run_id": "AIRFLOW_CTX_DAG_RUN_ID",
    "task_id": "AIRFLOW_CTX_TASK_ID",
    "try_number": "AIRFLOW_CTX_TRY_NUMBER",
}

_socket_path: str | None = os.environ.get(SOCKET_VARIABLE) or None


def check_point(point: str) -> str:
    """Return `point` when it is one of `POINTS` or `DEFERRED_POINTS`.

    Raises:
        ValueError: Naming the point and all known ones.
    """
    known = POINTS + DEFERRED_POINTS
    if point not in known:
        raise ValueError(f"unknown crash point {point!r}; the points are {', '.join(known)}")
    return point


def listens() -> bool:
    """Say whether a test listens, for callers to whom asking costs more than the question."""
    return _socket_path is not None


def reach(point: str, **facts: Any) -> None:
    """Report that the process is at `point` and wait for the harness's word; free when no test listens.

    Args:
        point: One of `POINTS` or `DEFERRED_POINTS`.
        facts: What the harness may match and record: dag_id, run_id, task_id, map_index, try_number, and
            anything JSON can hold (other values are sent as text).

    Raises:
        RuntimeError: When the harness answers ``raise:<text>``.
        ValueError: When a test listens and the point is unknown.
    """
    if _socket_path is None:
        return
    _act(_ask(_socket_path, check_point(point), facts), point)


def _ask(path: str, point: str, facts: dict[str, Any]) -> str:
    for name, variable in _CONTEXT.items():
        if name not in facts and variable in os.environ:
            facts[name] = os.environ[variable]
    report = {"point": point, "pid": os.getpid(), "ppid": os.getppid(), "facts": facts}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(path)
            connection.sendall(json.dumps(report, default=str).encode() + b"\n")
            # recv restarts after a signal whose handler returns and passes on what a handler raises.
            answer = connection.recv(4096)
            while answer and not answer.endswith(b"\n"):
                answer += connection.recv(4096) or b"\n"
    except OSError as error:
        # Only the system's errors carry a number: a TimeoutError of a signal handler is not ours to catch.
        if error.errno is None:
            raise
        log.warning("crash point %s: no harness answers at %s (%s); going on", point, path, error)
        return "go"
    if not answer.strip():
        log.warning("crash point %s: the harness at %s hung up without an answer; going on", point, path)
        return "go"
    return answer.decode().strip()


def _act(answer: str, point: str) -> None:
    if answer == "go":
        return
    if answer == "exit":
        os._exit(9)
    order, _, text = answer.partition(":")
    if order == "raise":
        raise RuntimeError(text)
    log.warning("crash point %s: answer %r of the harness is not understood; going on", point, answer)
