# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A job that runs until it is told how to end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# It gives up by itself after some ten minutes, should nobody be left to tell it.
_SCRIPT = """\
n=0
while [ ! -e "{folder}/$JOB_ID" ]; do
    n=$((n + 1)); [ $n -lt 6000 ] || exit 1
    sleep 0.1
done
read code < "{folder}/$JOB_ID"
[ "$code" = 0 ] && echo "{{\\"job\\": \\"$JOB_ID\\"}}"
exit "$code"
"""


class JobEnds:
    """How each job of one task instance ends.

    Args:
        folder: Where that is told, a file for each job.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder

    @property
    def command(self) -> tuple[str, ...]:
        """The command of every job; it prints its own id."""
        return ("/bin/sh", "-c", _SCRIPT.format(folder=self._folder))

    def end(self, job: Any, *, fails: bool) -> None:
        """Tell a job to end; the first word counts."""
        file, draft = self._folder / str(job), self._folder / f"{job}.draft"
        if not file.exists():
            draft.write_text("3\n" if fails else "0\n")
            os.replace(draft, file)
