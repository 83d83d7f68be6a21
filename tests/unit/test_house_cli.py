# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The console script: help, misuse, Ctrl-C."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airflow_resumable.cli import main as cli


def test_version_names_what_a_bug_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    """``version`` prints this package's, Airflow's and Python's."""
    from importlib.metadata import version

    assert cli.main(["version"]) == 0
    said = capsys.readouterr().out
    for wanted in (version("airflow-resumable"), version("apache-airflow"), sys.version.split()[0]):
        assert wanted in said


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "COMMAND"),
        (["fly"], "fly"),
        (["demo", "--system", "mainframe"], "mainframe"),
        (["demo", "--cases"], "--cases"),
    ],
)
def test_a_misuse_exits_with_2_and_names_the_word(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong word is said on standard error, with the usage, and nothing runs."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_demo_is_given_its_arguments() -> None:
    """``demo`` takes a system, cases and whether to keep its folder; local and all cases by default."""
    parser = cli.build_parser()

    default = parser.parse_args(["demo"])
    assert (default.system, default.cases, default.keep) == ("local", None, False)
    chosen = parser.parse_args(["demo", "--system", "spark", "--cases", "a", "b", "--keep"])
    assert (chosen.system, chosen.cases, chosen.keep) == ("spark", ["a", "b"], True)


def test_both_spellings_have_the_same_commands() -> None:
    """``airflow resumable`` offers what ``airflow-resumable`` does."""
    (group,) = cli.airflow_commands()

    assert group.name == "resumable"
    assert [command.name for command in group.subcommands] == [command.name for command in cli.COMMANDS]  # type: ignore[union-attr]


def test_ctrl_c_ends_a_command_with_130_and_no_traceback(tmp_path: Path) -> None:
    """A real SIGINT while a command waits: status 130, one line, no traceback."""
    (tmp_path / "waiting.py").write_text(
        textwrap.dedent(
            """
            import signal

            def run(args):
                print("waiting", flush=True)
                signal.pause()
            """
        ),
        encoding="utf-8",
    )
    script = (
        "import sys; from airflow_resumable.cli.main import Command;"
        "sys.exit(Command('wait', 'Wait', 'waiting:run').run(None))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert process.returncode == 130
    assert said == "airflow-resumable wait: interrupted\n"


def test_the_airflow_group_passes_the_exit_status_on() -> None:
    """The airflow command drops return values, so a failed command must raise its status."""
    (group,) = cli.airflow_commands()
    version = next(c for c in group.subcommands if c.name == "version")  # type: ignore[union-attr]

    with pytest.raises(SystemExit) as ended:
        version.func(argparse.Namespace())

    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("program", "words"),
    [("airflow_resumable.cli.main", ["version"]), ("airflow.__main__", ["resumable", "version"])],
)
def test_a_thread_that_is_left_behind_does_not_keep_the_process(program: str, words: list[str]) -> None:
    """In both spellings the process ends when the command has, with its output and its status."""
    script = (
        "import sys, threading; sys.argv[0] = 'airflow';"
        f"from {program} import main;"
        "threading.Thread(target=threading.Event().wait).start();"
        "sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False, timeout=50
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("airflow-resumable ")
