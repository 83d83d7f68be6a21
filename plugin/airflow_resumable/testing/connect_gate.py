# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Something that statements on a real Spark Connect server wait for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_resumable.testing.errors import StackError

if TYPE_CHECKING:
    from airflow_resumable.operators._connect_client import ConnectClient

TESTER = "tester"
"""The user whose operations are the tests' own."""
_OPENS_WITHIN = 60.0


@contextmanager
def asking(port: int, user: str) -> Iterator[ConnectClient]:
    """Give a client of the server on this host for the block."""
    from airflow_resumable.operators._connect_client import ConnectClient

    client = ConnectClient(f"sc://127.0.0.1:{port}", user, "the test")
    try:
        yield client
    finally:
        client.close()


class Gate:
    """Something that statements wait for: a property of the server's process, set by a statement.

    Args:
        port: The server.
        rows: Rows that a statement counts; it ends by itself after 50 ms for each.
    """

    def __init__(self, port: int, rows: int = 2000) -> None:
        self._port, self._rows, self._name = port, rows, f"gate.{uuid.uuid4().hex}"

    @property
    def closed(self) -> str:
        """A statement of one Spark job, with one row, that waits until the gate is open."""
        opened = f"java_method('java.lang.System', 'getProperty', '{self._name}') = 'open'"
        wait = f"CASE WHEN {opened} THEN 'x' ELSE java_method('java.lang.Thread', 'sleep', 50L) END"
        return f"SELECT count(w) AS n FROM (SELECT {wait} AS w FROM range(0, {self._rows}, 1, 1))"

    def open(self) -> None:
        """Let all statements go on, those to come too.

        Raises:
            StackError: The server did not do it within a minute.
        """
        from airflow_resumable.operators._connect_plan import of_sql

        sql = f"SELECT java_method('java.lang.System', 'setProperty', '{self._name}', 'open')"
        operation = str(uuid.uuid4())
        deadline = time.monotonic() + _OPENS_WITHIN
        with asking(self._port, TESTER) as client:
            client.start(operation, of_sql(sql, 1), {})
            while client.state(operation) == "RUNNING":
                if time.monotonic() > deadline:
                    raise StackError(f"the gate's statement still runs after {_OPENS_WITHIN:.0f} s")
                time.sleep(0.02)
            client.release(operation)
