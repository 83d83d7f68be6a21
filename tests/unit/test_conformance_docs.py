# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""docs/testing.md: its code is run as a reader would run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from airflow_resumable.testing.task_tries import TaskTries

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def test_the_code_of_the_page_passes(tmp_path: Path) -> None:
    """Each block is a file; pytest runs them, and skips only what the page says it does."""
    for block in re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block, encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rs",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            tmp_path,
            tmp_path,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    reasons = re.findall(r"^SKIPPED.*?\d+: (.*)", done.stdout, re.MULTILINE)
    assert sorted(set(reasons)) == [
        "MyService.fail is not defined, so this can't be shown",
        "MyService.stop_slowly is not defined, so this can't be shown",
        "this operator has no get_watch_arguments, so it can't be deferred",
        "this operator has no was_job_created, so a late job can't be known for one",
        "this service starts one job per token, so no two can carry it",
    ]


def test_the_plugin_imports_no_airflow() -> None:
    """Loading it costs a test run nothing."""
    code = "import sys, airflow_resumable.testing.pytest_plugin; sys.exit('airflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_clear_is_seen_in_the_next_context() -> None:
    """As in Airflow, `max_tries` becomes the try number plus the retries."""
    tries = TaskTries(retries=2)
    first = tries.context(object())["ti"]
    tries.clear()
    second = tries.context(object())["ti"]
    assert (first.try_number, first.max_tries) == (1, 2)
    assert (second.try_number, second.max_tries) == (2, 3)
