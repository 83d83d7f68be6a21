# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A task state store in a directory, for attempts that run and die as processes of their own."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from pydantic import JsonValue


class FileTaskStateStore:
    """Behaves like ``context["task_state_store"]``; each key is a file that is replaced as a whole.

    Args:
        directory: Where the files lie; made when it isn't there.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)

    def get(self, key: str, default: JsonValue = None) -> JsonValue:
        """Return the value under `key`, else `default`."""
        try:
            value: JsonValue = json.loads(self._path(key).read_text())
        except FileNotFoundError:
            return default
        return value

    def set(self, key: str, value: JsonValue, *, retention: timedelta | None = None) -> None:
        """Write `value` under `key`.

        Raises:
            ValueError: The value is None, as Airflow's own accessor refuses it.
        """
        if value is None:
            raise ValueError("Cannot set value as None")
        draft = self._path(f"{key}.{os.getpid()}.draft")
        draft.write_text(json.dumps(value, allow_nan=False))
        draft.rename(self._path(key))

    def delete(self, key: str) -> None:
        """Remove `key`, if it is there."""
        self._path(key).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all keys."""
        for path in self._directory.iterdir():
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._directory / quote(key, safe="")
