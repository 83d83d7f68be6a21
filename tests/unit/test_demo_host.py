# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A host that lacks something: one clear line, exit status 2, and nothing started."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_resumable.cli import main as cli
from airflow_resumable.cli.demo.host import require
from airflow_resumable.testing.errors import SystemUnavailable


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Starting a process fails the test, and a folder that is left behind would be seen."""

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError(f"started {args}")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run the demo, which must refuse with one line on standard error; return that."""
    assert cli.main(["demo", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("airflow-resumable demo: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(("system", "free", "least"), [("local", 1000, 1500), ("spark", 3900, 4000)])
def test_too_little_memory_is_said_with_both_amounts(
    system: str, free: int, least: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much is free, how much is needed, and what to do."""
    short = psutil.virtual_memory()._replace(available=free << 20)
    monkeypatch.setattr("psutil.virtual_memory", lambda: short)

    said = refused(capsys, "--system", system)

    assert f"{free} MiB of memory are free, the demo on {system} needs {least} MiB: end something" in said


def test_no_free_port_is_said_with_how_to_find_the_servers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ports taken, as on a host without a loopback interface."""
    monkeypatch.setattr("airflow_resumable.testing.ports.is_free", lambda port: False)

    assert "no free TCP ports on this host (found 0 free TCP ports of the 3 needed" in refused(capsys)


def test_a_full_disk_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder, what is free there, and what is needed."""
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 5 << 20}))

    assert f"5 MiB are free in {tempfile.gettempdir()}, the demo needs 300 MiB" in refused(capsys)


@pytest.mark.parametrize("name", ["with space", "x" * 100])
def test_a_temporary_folder_that_sockets_do_not_take_is_said(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before the socket's own error would be."""
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    assert "set TMPDIR to another folder" in refused(capsys)


def test_a_missing_java_is_said_with_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No java on PATH and no JAVA_HOME."""
    pytest.importorskip("pyspark")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "no java on PATH and JAVA_HOME is not set: install Java 17" in refused(capsys, "--system", "spark")


def test_an_unknown_case_exits_with_2_and_all_names(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt name runs nothing."""
    said = refused(capsys, "--cases", "mid-poll,nonsense")

    assert "no case is called 'nonsense'; the cases are before-id, mid-poll, supervisor" in said


def test_a_file_that_is_no_record_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said before minutes of work, not after."""
    (tmp_path / "notes.json").write_text("[]")

    assert "is not a record of the demo" in refused(capsys, "--record", str(tmp_path / "notes.json"))


def test_a_host_with_everything_passes() -> None:
    """This one has enough for the local demo."""
    if psutil.virtual_memory().available < 1500 << 20:
        with pytest.raises(SystemUnavailable):
            require("local")
    else:
        require("local")
