# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the jobs commands don't take."""

from __future__ import annotations

import pytest

from airflow_resumable.cli import main as cli
from tests.jobs_commands import Jobs


def test_options_that_exclude_each_other_are_a_misuse(jobs: Jobs) -> None:
    """Status 2, both named."""
    error = jobs.json("reconcile", "--cancel", "a", "--forget", "b", status=2)["error"]
    assert "--cancel and --forget" in error
    assert "--dry-run" in jobs.json("reconcile", "--cancel", "a", "--dry-run", status=2)["error"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["jobs"], "COMMAND"),
        (["jobs", "list", "--state", "dead"], "dead"),
        (["jobs", "list", "--map-index", "x"], "'x'"),
        (["jobs", "reconcile", "--timeout", "0"], "'0'"),
        (["jobs", "show", "dag", "run"], "TASK"),
        (["jobs", "show", "dag", "", "task"], "RUN"),
        (["jobs", "reconcile", "--cancel", ""], "--cancel"),
        (["jobs", "reconcile", "--forget", " "], "--forget"),
        (["jobs", "reconcile", "--run-id", ""], "--run-id"),
    ],
)
def test_a_wrong_argument_is_named(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Argparse's own status 2, with the argument and the value."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
