# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Rules about the source files that no linter knows."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = ["SPDX-FileCopyrightText: 2026 The airflow-resumable authors", "SPDX-License-Identifier: Apache-2.0"]


def source_files() -> list[Path]:
    """Every file that git tracks or would track."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_every_source_file_has_the_licence_header() -> None:
    """Each source file says whose it is and under which licence, in its first five lines."""
    without = [
        str(path.relative_to(ROOT))
        for path in source_files()
        if path.suffix in {".py", ".sh", ".toml", ".java"} or path.name in {"Makefile", "run"}
        if not all(
            any(line in found for found in path.read_text(encoding="utf-8").splitlines()[:5])
            for line in HEADER
        )
    ]

    assert without == []


def test_every_test_says_in_a_sentence_what_it_shows() -> None:
    """A test's name is a behaviour, and its docstring is one sentence about it."""
    without = [
        f"{path.relative_to(ROOT)}:{test.lineno} {test.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for test in _tests(ast.parse(path.read_text(encoding="utf-8")))
        if not ast.get_docstring(test)
    ]

    assert without == []


def _tests(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node
