# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The BigQuery emulator on this host."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from airflow_resumable.testing.errors import SystemUnavailable

REMEDY = "install the BigQuery emulator once with scripts/bigquery_emulator.sh (Python 3.13 or newer)"


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the emulator is.

    Attributes:
        python: The interpreter of its virtual environment.
        home: Its HOME, below which DuckDB finds its extensions.
    """

    python: Path
    home: Path


def folder() -> Path:
    """Return where `scripts/bigquery_emulator.sh` keeps what it installs."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser() / "airflow-resumable" / "bigquery"


def find_programs() -> Programs:
    """Return the emulator.

    Raises:
        SystemUnavailable: It isn't here; says how to get it.
    """
    place = folder()
    found = Programs(place / "python" / "bin" / "python", place / "home")
    if not (place / "stamp").is_file() or not os.access(found.python, os.X_OK):
        raise SystemUnavailable(f"no emulator in {place}: {REMEDY}")
    return found
