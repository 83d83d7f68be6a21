# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The commands: one table, from which both spellings of the command line are built.

``airflow-resumable`` works on every Airflow; ``airflow resumable`` is the same from Airflow 3.2 on, where
provider info may add commands. A command's module is imported when the command runs, not before: ``airflow``
imports this module at every start.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_resumable.cli.command import PROG, Argument, Command, Group
from airflow_resumable.cli.jobs_commands import JOBS

if TYPE_CHECKING:
    from airflow.cli.cli_config import CLICommand

GROUP: Final = "resumable"
_ABOUT: Final = "External jobs started exactly once, watched to their end, whatever dies in between"

COMMANDS: Final[tuple[Command | Group, ...]] = (
    Command(
        name="demo",
        help="Kill real workers of a real Airflow and count the jobs, stock against resumable",
        target="airflow_resumable.cli.demo.run:run",
        arguments=(
            Argument(
                ("--system",),
                {
                    "choices": (
                        "local",
                        "spark",
                        "kubernetes",
                        "spark-connect",
                        "bigquery",
                        "emr",
                        "emr-serverless",
                    ),
                    "default": "local",
                    "help": "where the jobs run: the local job service of this package (default), a Spark "
                    "standalone cluster, a Kubernetes API server, a Spark Connect server, a BigQuery "
                    "emulator, or a stand-in for Amazon EMR or EMR Serverless, started for the demo",
                },
            ),
            Argument(
                ("--cases",),
                {
                    "nargs": "+",
                    "metavar": "CASE",
                    "help": "run only these cases, named as in the demo's table; commas may separate them",
                },
            ),
            Argument(
                ("--keep",),
                {
                    "action": "store_true",
                    "help": "keep the demo's folder (logs, databases, request logs) and print where it is",
                },
            ),
            Argument(
                ("--record",),
                {
                    "type": Path,
                    "metavar": "FILE",
                    "help": "write versions and outcomes to this JSON file, when all cases were run",
                },
            ),
        ),
    ),
    JOBS,
    Command(
        name="version",
        help="Print the versions of this package, of Airflow and of Python",
        target="airflow_resumable.cli.main:print_version",
    ),
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the console script."""
    from rich_argparse import RichHelpFormatter

    parser = argparse.ArgumentParser(prog=PROG, description=_ABOUT, formatter_class=RichHelpFormatter)
    _add(parser, COMMANDS, RichHelpFormatter)
    return parser


def _add(
    parser: argparse.ArgumentParser,
    commands: Sequence[Command | Group],
    formatter: type[argparse.HelpFormatter],
) -> None:
    words = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        sub = words.add_parser(
            command.name, help=command.help, description=command.help, formatter_class=formatter
        )
        if isinstance(command, Group):
            _add(sub, command.commands, formatter)
            continue
        for argument in command.arguments:
            sub.add_argument(*argument.flags, **argument.options)
        sub.set_defaults(run=command.run)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the console script and return its exit status.

    Args:
        argv: The arguments after the program's name; those of this process by default.

    Returns:
        The command's own status; 130 after Ctrl-C.

    Raises:
        SystemExit: With status 2 after a misuse, with 0 after ``--help``.
    """
    args = build_parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    status = run(args)
    if argv is None:
        _leave(status)
    return status


def _leave(status: int) -> None:
    """End this process now when a thread that somebody left behind would keep it from ending.

    Airflow's in-process API and what a Dag's file imports may leave one.
    """
    others = [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
    if others:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def airflow_commands() -> list[CLICommand]:
    """The same commands as the group ``airflow resumable``.

    See https://airflow.apache.org/docs/apache-airflow-providers/core-extensions/cli-commands.html
    """
    from airflow.cli.cli_config import GroupCommand

    return [GroupCommand(name=GROUP, help=_ABOUT, subcommands=[_for_airflow(one) for one in COMMANDS])]


def _for_airflow(command: Command | Group) -> CLICommand:
    from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

    if isinstance(command, Group):
        words = [_for_airflow(one) for one in command.commands]
        return GroupCommand(name=command.name, help=command.help, subcommands=words)
    arg: Callable[..., Arg] = Arg
    return ActionCommand(
        name=command.name,
        help=command.help,
        func=_exit_with_status_of(command),
        args=[arg(flags=argument.flags, **argument.options) for argument in command.arguments],
    )


def print_version(args: argparse.Namespace) -> int:
    """Print the versions a bug report needs."""
    import platform
    from importlib.metadata import version

    print(
        f"airflow-resumable {version('airflow-resumable')} "
        f"(Apache Airflow {version('apache-airflow')}, Python {platform.python_version()})"
    )
    return 0


def _exit_with_status_of(command: Command) -> Callable[[argparse.Namespace], None]:
    # The airflow command drops what a command's function returns.
    def run(args: argparse.Namespace) -> None:
        status = command.run(args)
        if _is_airflow():
            _leave(status)
        raise SystemExit(status)

    return run


def _is_airflow() -> bool:
    # Whoever else calls the function, a test for one, goes on with their process.
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return Path(sys.argv[0]).stem == "airflow" or (main is not None and main.name == "airflow.__main__")
