# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The commands: one table, from which both spellings of the command line are built.

``airflow-resumable`` works on every Airflow; ``airflow resumable`` is the same from Airflow 3.2 on, where
provider info may add commands. A command's module is imported when the command runs, not before: ``airflow``
imports this module at every start.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from airflow.cli.cli_config import CLICommand

PROG: Final = "airflow-resumable"
GROUP: Final = "resumable"
_ABOUT: Final = "External jobs started exactly once, watched to their end, whatever dies in between"

# What a shell reports for a process that SIGINT ended.
_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a command: its flags, and what ``argparse`` is told about it."""

    flags: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        name: The word on the command line.
        help: One line, without a full stop.
        target: ``module:function``; takes the parsed arguments and returns the exit status.
        arguments: The command's arguments.
    """

    name: str
    help: str
    target: str
    arguments: tuple[Argument, ...] = ()

    def run(self, args: argparse.Namespace) -> int:
        """Import the command's module and run it; Ctrl-C ends it without a traceback."""
        module, _, function = self.target.partition(":")
        try:
            run: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(module), function)
            return run(args)
        except KeyboardInterrupt:
            print(f"{PROG} {self.name}: interrupted", file=sys.stderr)
            return _INTERRUPTED


COMMANDS: Final = (
    Command(
        name="demo",
        help="Kill real workers of a real Airflow and count the jobs, stock against resumable",
        target="airflow_resumable.cli.demo:run",
        arguments=(
            Argument(
                ("--system",),
                {
                    "choices": ("local", "spark"),
                    "default": "local",
                    "help": "where the jobs run: the local job service of this package (default), or a Spark "
                    "standalone cluster started for the demo",
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
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name, help=command.help, description=command.help, formatter_class=RichHelpFormatter
        )
        for argument in command.arguments:
            sub.add_argument(*argument.flags, **argument.options)
        sub.set_defaults(run=command.run)
    return parser


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
    return run(args)


def airflow_commands() -> list[CLICommand]:
    """The same commands as the group ``airflow resumable``.

    See https://airflow.apache.org/docs/apache-airflow-providers/core-extensions/cli-commands.html
    """
    from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

    arg: Callable[..., Arg] = Arg
    return [
        GroupCommand(
            name=GROUP,
            help=_ABOUT,
            subcommands=[
                ActionCommand(
                    name=command.name,
                    help=command.help,
                    func=_exit_with_status_of(command),
                    args=[arg(flags=argument.flags, **argument.options) for argument in command.arguments],
                )
                for command in COMMANDS
            ],
        )
    ]


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
        raise SystemExit(command.run(args))

    return run
