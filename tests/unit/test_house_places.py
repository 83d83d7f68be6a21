# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Which Airflow this is, and where the example Dags are."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import airflow_resumable
from airflow_resumable.integration import compat
from airflow_resumable.integration.examples import example_dags_folder


def test_the_version_is_that_of_the_installed_airflow() -> None:
    """Major and minor as numbers, so that 3.10 is newer than 3.9."""
    major, minor = version("apache-airflow").split(".")[:2]

    assert (int(major), int(minor)) == compat.AIRFLOW_VERSION


@pytest.mark.parametrize(
    ("said", "expected"), [("3.4.0b2", (3, 4)), ("3.0.6", (3, 0)), ("3.10.0.dev0", (3, 10))]
)
def test_a_version_is_read_from_any_release_of_airflow(
    said: str, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pre-releases and development versions count as the version they lead to."""
    monkeypatch.delitem(vars(compat), "AIRFLOW_VERSION", raising=False)
    monkeypatch.setattr("airflow.__version__", said)

    assert expected == compat.AIRFLOW_VERSION
    monkeypatch.delitem(vars(compat), "AIRFLOW_VERSION")


def test_airflow_is_imported_when_its_version_is_asked_for_and_not_before() -> None:
    """The module itself costs nothing, so that anything may import it."""
    script = "import sys; from airflow_resumable.integration import compat; print('airflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def test_another_name_is_not_a_version() -> None:
    """A misspelt name is the usual error of a module."""
    with pytest.raises(AttributeError, match="no attribute 'AIRFLOW_VERSIONS'"):
        compat.AIRFLOW_VERSIONS  # noqa: B018


def test_the_example_dags_of_a_checkout_are_found() -> None:
    """In an editable installation they are the checkout's own."""
    assert example_dags_folder() == Path(__file__).resolve().parents[2] / "example_dags"
    assert list(example_dags_folder().glob("*.py"))


def test_the_example_dags_of_a_wheel_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a wheel they are inside the package, and win over a folder of that name elsewhere."""
    inside = tmp_path / "site-packages" / "airflow_resumable" / "example_dags"
    inside.mkdir(parents=True)
    (tmp_path / "example_dags").mkdir()
    monkeypatch.setattr(airflow_resumable, "__path__", [str(inside.parent)])

    assert example_dags_folder() == inside


def test_missing_example_dags_are_an_error_that_says_where_they_were_sought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken installation is told from an empty folder."""
    monkeypatch.setattr(airflow_resumable, "__path__", [str(tmp_path / "a" / "airflow_resumable")])

    with pytest.raises(FileNotFoundError, match=r"looked in .*airflow_resumable/example_dags, .*Reinstall"):
        example_dags_folder()
