# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Parses Dag files and prints what each did meanwhile; a program, since an audit hook can't be removed."""

from __future__ import annotations

import json
import os
import runpy
import sys
from typing import Any

# https://docs.python.org/3/library/audit_events.html
_MODULES = ("socket.", "subprocess.", "sqlite3.", "urllib.", "shutil.", "tempfile.")
_CALLS = ("system", "fork", "exec", "posix_spawn", "mkdir", "remove", "rename", "rmdir", "putenv", "unsetenv")
_EVENTS = {f"os.{call}" for call in _CALLS}

_seen: list[str] = []
_watching = False


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _watching:
        return
    if event == "open":
        path, _, flags = args
        # Importing reads code, which is what parsing is.
        reads_code = str(path).endswith((".py", ".pyc")) and not flags & (os.O_WRONLY | os.O_RDWR)
        if not reads_code:
            _seen.append(f"open {path}")
    elif event in _EVENTS or event.startswith(_MODULES):
        _seen.append(event)


def main(files: list[str]) -> None:
    """Print a JSON object of the files' events."""
    global _watching
    sys.addaudithook(_hook)
    found: dict[str, list[str]] = {}
    for file in files:
        runpy.run_path(file)  # what Airflow loads and reads on first use is not the file's doing
        _watching = True
        runpy.run_path(file)
        _watching = False
        found[file], _seen[:] = list(_seen), []
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
