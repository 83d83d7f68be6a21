# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""An empty, migrated SQLite database that is kept and copied, since migrating takes seconds."""

from __future__ import annotations

import os
import shutil
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path


class TemplateDatabase:
    """An SQLite file that serves one set of installed versions.

    The versions are kept in the file itself, as a checksum in SQLite's ``user_version``.

    Args:
        file: Where it is, or will be.
        versions: What it depends on, in any spelling.
    """

    def __init__(self, file: Path, versions: str) -> None:
        self.file = file
        # user_version is a signed 32-bit number, 0 in a file that nobody stamped.
        self._stamp = (zlib.crc32(versions.encode()) >> 1) or 1

    def copy_to(self, target: Path) -> bool:
        """Copy the template to `target`; return False when there is none for these versions."""
        if not self.file.exists() or _user_version(self.file) != self._stamp:
            return False
        shutil.copyfile(self.file, target)
        return True

    def keep(self, source: Path) -> None:
        """Make a freshly migrated database the template, all at once."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        shutil.copyfile(source, scratch)
        _user_version(scratch, self._stamp)
        scratch.replace(self.file)


def ease_locking(file: Path) -> None:
    """Keep readers of a database from locking out its writer, for good: the mode is part of the file.

    A scheduler that waits in vain for 5 s for its turn to write dies with "database is locked".
    See https://www.sqlite.org/wal.html.
    """
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def _user_version(file: Path, number: int | None = None) -> int:
    with closing(sqlite3.connect(file)) as connection:
        if number is not None:
            connection.execute(f"PRAGMA user_version = {number:d}")
            connection.commit()
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
