# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The service's own log of requests: a file of JSON lines, so it can be read when the service is dead."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Logged:
    """One request that reached the service.

    Attributes:
        number: Counts from 1.
        at: When it came, seconds since the epoch.
        service: The boto3 client's name.
        action: Like ``StartJobRun``.
        parameters: By the names that boto3 gives them.
        status: HTTP status of the reply.
        error: The error's code; None without.
        created: Ids of the jobs, clusters and applications that this very request made.
        reply: The reply's JSON.
        own: Whether a test's own client sent it.
    """

    number: int
    at: float
    service: str
    action: str
    parameters: dict[str, Any]
    status: int
    error: str | None
    created: list[str]
    reply: dict[str, Any]
    own: bool = False


class Journal:
    """Writes the log.

    Args:
        file: It is emptied.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._number = 0
        self._open = file.open("w", encoding="utf-8")

    def add(self, **fields: Any) -> None:
        """Write one request, before its reply goes out; the fields are those of `Logged`."""
        with self._lock:
            self._number += 1
            line = json.dumps(asdict(Logged(number=self._number, **fields)), default=str)
            self._open.write(line + "\n")
            self._open.flush()

    def clear(self) -> None:
        """Forget all requests."""
        with self._lock:
            self._number = 0
            self._open.seek(0)
            self._open.truncate()


def read(file: Path) -> list[Logged]:
    """Read the log; an unfinished last line is left out."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    lines = text.split("\n")
    return [Logged(**json.loads(line)) for line in lines[:-1] if line]
