# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the table of commands is made of: arguments, commands and groups of commands."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

PROG: Final = "airflow-resumable"

# What a shell reports for a process that SIGINT ended.
_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a command: its flags, or its name, and what ``argparse`` is told about it."""

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
        statuses: What each exit status means.
    """

    name: str
    help: str
    target: str
    arguments: tuple[Argument, ...] = ()
    statuses: tuple[tuple[int, str], ...] = ()

    def run(self, args: argparse.Namespace) -> int:
        """Import the command's module and run it; Ctrl-C ends it without a traceback."""
        module, _, function = self.target.partition(":")
        try:
            run: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(module), function)
            return run(args)
        except KeyboardInterrupt:
            print(f"{PROG} {self.name}: interrupted", file=sys.stderr)
            return _INTERRUPTED
        except SystemExit as ended:
            if isinstance(ended.code, int):
                return ended.code
            raise


@dataclass(frozen=True, slots=True)
class Group:
    """Commands that share their first word.

    Attributes:
        name: The word on the command line.
        help: One line, without a full stop.
        commands: What may follow it.
    """

    name: str
    help: str
    commands: tuple[Command | Group, ...]
