# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The table of ``airflow-resumable jobs``; what its commands do is imported when one of them runs."""

from __future__ import annotations

import argparse
import math
from typing import Final

from airflow_resumable.cli.command import Argument, Command, Group


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if math.isfinite(seconds) and seconds > 0:
        return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not allowed; use a number of seconds, more than 0")


def _index(text: str) -> int:
    try:
        index = int(text)
    except ValueError:
        index = -2
    if index >= -1:
        return index
    raise argparse.ArgumentTypeError(f"{text!r} is not allowed; use a number from 0 up, or -1 for not mapped")


def _id(text: str) -> str:
    if text.strip():
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no id; is a variable of the shell unset?")


_JSON: Final = Argument(("--json",), {"action": "store_true", "help": "print JSON instead of a table"})
_TIMEOUT: Final = Argument(
    ("--timeout",),
    {
        "type": _seconds,
        "default": 30.0,
        "metavar": "SECONDS",
        "help": "how long a question to a service may go on failing before the task counts as not checked "
        "(default: 30)",
    },
)
_INDEX: Final = Argument(
    ("--map-index",),
    {"type": _index, "metavar": "N", "help": "only this index of a mapped task; every index when left out"},
)
_FILTERS: Final = (
    Argument(("--dag-id",), {"type": _id, "metavar": "DAG", "help": "only tasks of this Dag"}),
    Argument(("--run-id",), {"type": _id, "metavar": "RUN", "help": "only tasks of the runs with this id"}),
    Argument(("--task-id",), {"type": _id, "metavar": "TASK", "help": "only tasks with this id"}),
    _INDEX,
    Argument(
        ("--state",),
        {
            "choices": ("live", "ended", "all"),
            "default": "all",
            "help": "by the record's last word: live (intent, submitted), ended (succeeded, failed, "
            "cancelled) or all (default). A record that can't be read counts as live, and so does, after a "
            "--cancel, one of a job that ended later than its task: no attempt has seen that end",
        },
    ),
)
_CHECKED: Final = (
    3,
    "something could not be read or checked: the database, a record, a Dag, a service; what, is said",
)
_MISUSE: Final = (2, "misuse: an argument that isn't allowed, named with what is")

JOBS: Final = Group(
    name="jobs",
    help="List what is on record of external jobs, and compare it with what their services say",
    commands=(
        Command(
            name="list",
            help="List every job on record in this deployment's task state store",
            target="airflow_resumable.cli.jobs:list_jobs",
            arguments=(*_FILTERS, _JSON),
            statuses=((0, "done, also when nothing is on record"), _MISUSE, _CHECKED),
        ),
        Command(
            name="show",
            help="Show all that is on record of one task's jobs, and what the service says now",
            target="airflow_resumable.cli.jobs:show_jobs",
            arguments=(
                Argument(("dag_id",), {"type": _id, "metavar": "DAG", "help": "the Dag's id"}),
                Argument(("run_id",), {"type": _id, "metavar": "RUN", "help": "the run's id"}),
                Argument(("task_id",), {"type": _id, "metavar": "TASK", "help": "the task's id"}),
                _INDEX,
                _TIMEOUT,
                _JSON,
            ),
            statuses=((0, "done"), (1, "no job of this task is on record"), _MISUSE, _CHECKED),
        ),
        Command(
            name="reconcile",
            help="Find jobs that nobody watches any more; change nothing unless told to",
            target="airflow_resumable.cli.jobs:reconcile_jobs",
            arguments=(
                *_FILTERS,
                Argument(
                    ("--all",),
                    {
                        "action": "store_true",
                        "help": "check the records of reported successes too: a render and a question to the "
                        "service for each",
                    },
                ),
                Argument(
                    ("--dry-run",),
                    {
                        "action": "store_true",
                        "help": "change nothing: what happens without --cancel and --forget anyway",
                    },
                ),
                Argument(
                    ("--cancel",),
                    {
                        "type": _id,
                        "metavar": "ID",
                        "help": "cancel exactly this job, if it is a finding and no attempt can own it",
                    },
                ),
                Argument(
                    ("--forget",),
                    {
                        "type": _id,
                        "metavar": "ID",
                        "help": "close the record of exactly this job, or of the intent with this token: the "
                        "next attempt starts a new one; refused while a job is alive",
                    },
                ),
                _TIMEOUT,
                _JSON,
            ),
            statuses=(
                (0, "nothing found; or what --cancel or --forget asked for is done"),
                (1, "findings (and maybe tasks that could not be checked: they are listed too)"),
                _MISUSE,
                (3, "nothing found, but something could not be read or checked; what, is said"),
                (4, "what --cancel or --forget asked for was refused, or failed; why, is said"),
            ),
        ),
    ),
)
