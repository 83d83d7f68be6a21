# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""How a test run deals with a system that isn't there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import systems

ROOT = Path(__file__).resolve().parents[2]

NEEDS_JAVA = """
from __future__ import annotations
import pytest
from tests.systems import require

@pytest.fixture(scope="session")
def java():
    return require("java")

def test_one(java):
    assert java.exists()

def test_two(java):
    assert java.exists()

@pytest.mark.spark
def test_three():
    pass

def test_without():
    pass
"""


def _pytest(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest, in a process of its own, over a file whose tests need Java, with Java out of reach."""
    (folder / "test_needs_java.py").write_text(NEEDS_JAVA, encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if name != systems.REQUIRE_VARIABLE}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-c", str(ROOT / "pyproject.toml"), f"--rootdir={ROOT}", str(folder)],
        cwd=ROOT,
        env={**inherited, "JAVA_HOME": str(folder), "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_missing_system_skips_and_is_counted_with_its_remedy(tmp_path: Path) -> None:
    """The run passes, and its summary says how many tests were skipped and how to get the system."""
    done = _pytest(tmp_path)

    assert done.returncode == 0, done.stdout
    assert "1 passed, 3 skipped" in done.stdout
    assert "systems not here: 3 tests skipped" in done.stdout
    assert (
        "    3  java: install Java 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)"
        in done.stdout
    )


def test_a_missing_system_that_must_be_here_fails(tmp_path: Path) -> None:
    """In CI a skip would hide a broken installation, so the variable turns it into a failure."""
    done = _pytest(tmp_path, AIRFLOW_RESUMABLE_REQUIRE="postgres, java")

    assert done.returncode == 1
    assert "1 passed, 3 errors" in done.stdout
    assert "AIRFLOW_RESUMABLE_REQUIRE lists a system that isn't here: java: install Java 17" in done.stdout


def test_a_misspelt_required_system_is_refused(tmp_path: Path) -> None:
    """A name nobody checks for would require nothing."""
    done = _pytest(tmp_path, AIRFLOW_RESUMABLE_REQUIRE="jawa")

    assert done.returncode == 4
    assert "AIRFLOW_RESUMABLE_REQUIRE lists jawa; known: java, pyspark, postgres, kubernetes" in done.stderr


def test_an_unknown_system_is_an_error() -> None:
    """A test that asks for a system nobody knows is wrong, not skipped."""
    with pytest.raises(
        ValueError,
        match=r"^unknown system 'mainframe'; known: java, pyspark, postgres, kubernetes, bigquery, moto$",
    ):
        systems.require("mainframe")


@pytest.mark.parametrize(
    ("version", "found"), [("1.8.0_412", False), ("11.0.2", False), ("17.0.15", True), ("21", True)]
)
def test_java_counts_from_17_on(
    version: str, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 4 doesn't start on an older Java."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert (systems.SYSTEMS["java"].find() is not None) is found
