# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A task state store in memory, for tests of operators without an Airflow."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import JsonValue


class InMemoryTaskStateStore:
    """Behaves like ``context["task_state_store"]``: JSON in, JSON out, None refused.

    Args:
        before: Called with (operation, key) before each operation; what it raises is the store's error.

    Attributes:
        operations: The (operation, key) pairs that were carried out, in order.
    """

    def __init__(self, before: Callable[[str, str], None] | None = None) -> None:
        self.values: dict[str, str] = {}
        self.operations: list[tuple[str, str]] = []
        self.before = before

    def get(self, key: str, default: JsonValue = None) -> JsonValue:
        """Return the value under `key`, else `default`."""
        self._note("get", key)
        value: JsonValue = json.loads(self.values[key]) if key in self.values else default
        return value

    def set(self, key: str, value: JsonValue, *, retention: timedelta | None = None) -> None:
        """Write `value` under `key`.

        Raises:
            ValueError: The value is None, as Airflow's own accessor refuses it.
        """
        if value is None:
            raise ValueError("Cannot set value as None")
        text = json.dumps(value, allow_nan=False)
        self._note("set", key)
        self.values[key] = text

    def delete(self, key: str) -> None:
        """Remove `key`, if it is there."""
        self._note("delete", key)
        self.values.pop(key, None)

    def clear(self) -> None:
        """Remove all keys."""
        self._note("clear", "*")
        self.values.clear()

    def count(self, operation: str) -> int:
        """Return how often an operation (``get``, ``set``, ``delete``, ``clear``) was carried out."""
        return sum(name == operation for name, _ in self.operations)

    def _note(self, operation: str, key: str) -> None:
        if self.before is not None:
            self.before(operation, key)
        self.operations.append((operation, key))

    def peek(self, key: str) -> Any:
        """Return the value under `key` without it counting as an operation."""
        return json.loads(self.values[key]) if key in self.values else None
