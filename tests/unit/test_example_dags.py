# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The Dags to copy, as files: they parse, do nothing while they are parsed, and fit on a screen."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag

from airflow_resumable.integration.examples import example_dags_folder

FILES = sorted(example_dags_folder().glob("*.py"))
NAMES = [file.stem for file in FILES]
LONGEST = 60
PARSE_WATCH = Path(__file__).parents[1] / "parse_watch.py"

# Each of them, at the top of a Dag file, is something that a Dag file may not do.
FORBIDDEN = {
    "open('/dev/null', 'w').close()": "open /dev/null",
    "open('/etc/passwd').close()": "open /etc/passwd",
    "import socket; socket.create_server(('127.0.0.1', 0)).close()": "socket.bind",
    "import subprocess; subprocess.run(['true'])": "subprocess.Popen",
    "import sqlite3; sqlite3.connect(':memory:').close()": "sqlite3.connect",
    "import os; os.environ['A'] = 'b'": "os.putenv",
}


def what_they_do_when_parsed(*files: Path) -> dict[str, list[str]]:
    command = [sys.executable, str(PARSE_WATCH), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    seen: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.fixture(scope="module")
def dags() -> dict[str, Any]:
    """The example Dags as Airflow's own Dag bag loads them, warnings being errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bag = DagBag(dag_folder=example_dags_folder(), load_op_links=False)
    assert bag.import_errors == {}
    assert bag.captured_warnings == {}
    return dict(bag.dags)


def test_there_is_a_dag_of_each_kind(dags: dict[str, Any]) -> None:
    """One Dag a file, called like its file, so no two ids are the same."""
    assert {"async_checkpoint", "paginated_api", "resumable_external_job"} <= set(NAMES)
    assert sorted(dags) == NAMES
    assert {Path(dag.fileloc).stem: dag.dag_id for dag in dags.values()} == dict(
        zip(NAMES, NAMES, strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_does_nothing_by_itself(dags: dict[str, Any], name: str) -> None:
    """It runs when asked to, one run at a time, and each of its tasks has tries left to resume in."""
    dag = dags[name]

    assert dag.schedule is None
    assert dag.catchup is False
    assert dag.max_active_runs == 1
    for task in dag.tasks:
        if task.task_id != "report":
            assert task.retries >= 2
            assert task.retry_delay <= timedelta(seconds=10)


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_it_says_what_happens_when_it_is_killed(file: Path, dags: dict[str, Any]) -> None:
    """The docstring says so in plain words, and the UI shows it."""
    said = ast.get_docstring(ast.parse(file.read_text()), clean=False)

    assert said is not None
    assert "What happens when the" in said
    assert "killed" in said
    assert "clear" in said
    assert dags[file.stem].doc_md == said


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_it_fits_on_a_screen(file: Path) -> None:
    """Sixty lines, the licence and the docstring included."""
    assert len(file.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_it_needs_nothing_but_airflow_and_this_package(file: Path) -> None:
    """A copy of the one file is enough: httpx and tenacity come with Airflow."""
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(file.read_text()))
        for name in (
            [node.module or "."]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }

    assert imported - set(sys.stdlib_module_names) <= {"airflow", "airflow_resumable", "httpx", "tenacity"}


def test_they_do_nothing_while_they_are_parsed() -> None:
    """No file is opened, no connection made and no process started: a Dag is parsed again and again."""
    assert what_they_do_when_parsed(*FILES) == {str(file): [] for file in FILES}


def test_what_a_dag_must_not_do_is_seen(tmp_path: Path) -> None:
    """A Dag file with one such line at its top is found out."""
    files = {tmp_path / f"bad_{number}.py": line for number, line in enumerate(FORBIDDEN)}
    for file, line in files.items():
        file.write_text(f"{FILES[0].read_text()}\n{line}\n")

    seen = what_they_do_when_parsed(*files)

    assert [line for file, line in files.items() if FORBIDDEN[line] not in seen[str(file)]] == []
