# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""How the jobs commands print: tables on standard output, and nothing else there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import datetime
from io import UnsupportedOperation
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final

from airflow_resumable.cli.jobs_inquiry import id_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from airflow_resumable.cli.jobs_findings import Finding
    from airflow_resumable.cli.jobs_inquiry import SeenJob
    from airflow_resumable.cli.jobs_json import JsonObject
    from airflow_resumable.cli.jobs_store import StoredJob

# What a shell reports for a process that SIGPIPE ended.
_BROKEN_PIPE: Final = 141

_ROWS: Final = 200
"""Rows of one table; the next ones get a table of their own, so that not all have to be held."""


@contextmanager
def standard_output() -> Iterator[IO[str]]:
    """Yield standard output, and send what anything else prints, a Dag file for one, to standard error."""
    out = sys.stdout
    duplicate = None
    with suppress(UnsupportedOperation, OSError):
        if out.fileno() == 1:
            out.flush()
            duplicate = os.dup(1)
            os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            if duplicate is None:
                yield out
            else:
                with os.fdopen(os.dup(duplicate), "w", encoding=out.encoding) as own:
                    yield own
    except BrokenPipeError:
        raise SystemExit(_BROKEN_PIPE) from None
    finally:
        if duplicate is not None:
            os.dup2(duplicate, 1)
            os.close(duplicate)


def print_jobs(out: IO[str], jobs: Iterable[StoredJob]) -> int:
    """Print records as tables and return how many there were."""
    console = _console(out)
    count, rows = 0, iter(jobs)
    while page := list(islice(rows, _ROWS)):
        table = _table("Task", "Job", "Record")
        for job in page:
            table.add_row(*_job_cells(job))
        console.print(table)
        count += len(page)
    console.print("[dim]nothing on record[/]" if not count else f"[dim]{count} on record[/]")
    return count


def print_unchecked(out: IO[str], unchecked: Iterable[tuple[StoredJob, str]]) -> None:
    """Print what could not be checked, and why, as tables."""
    from rich.markup import escape

    console, rows = _console(out), iter(unchecked)
    while page := list(islice(rows, _ROWS)):
        table = _table("Can't be checked", "Why")
        for job, why in page:
            table.add_row(_task_cell(job), escape(why))
        console.print(table)


def print_findings(out: IO[str], found: Sequence[Finding]) -> None:
    """Print findings."""
    from rich.markup import escape

    if not found:
        return
    table = _table("Finding", "Task", "Job", "What it is")
    for finding in found:
        seen = finding.seen
        job = [seen.text, seen.status or "unknown"] if seen else ["none found"]
        hint = finding.kept_from_cancel
        kept = f"\n[dim]can't be cancelled here: {escape(hint)}[/]" if hint and seen else ""
        cells = (_kind(finding.kind), _task_cell(finding.job), _lines(*job))
        table.add_row(*cells, escape(finding.detail) + kept)
    _console(out).print(table)


def print_record(out: IO[str], job: StoredJob, seen: Sequence[SeenJob], unasked: str | None) -> None:
    """Print one whole record, and what the service says."""
    from rich.markup import escape
    from rich.table import Table

    console = _console(out)
    grid = Table(
        box=None, show_header=False, padding=(0, 2, 0, 0), title=escape(job.name), title_justify="left"
    )
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("task state", f"{job.task_state}, try {job.try_number} of at most {_tries(job)}")
    grid.add_row("key", escape(job.key))
    if job.record is None:
        grid.add_row("record", f"[red]{escape(str(job.error))}[/]")
    else:
        for name, value in job.record.dump().items():
            text = value if isinstance(value, str) else json.dumps(value)
            grid.add_row(name, escape(text))
    if unasked is not None:
        grid.add_row("service", f"[yellow]not asked: {escape(unasked)}[/]")
    elif not seen:
        grid.add_row("service", "lists no job of this task")
    for one in seen:
        status = one.status or "not known to the service"
        what = f"{one.text}: {status} ({one.observation.value})"
        grid.add_row("service", escape(what if one.on_record else f"{what}, not on record"))
    console.print(grid)
    console.print()


def print_error(message: str, answer: JsonObject | None) -> None:
    """Say on standard error what went wrong, and in the JSON answer where one is expected."""
    print(f"airflow-resumable jobs: {message}", file=sys.stderr)
    if answer is not None:
        answer.put("error", message)


def _console(out: IO[str]) -> Any:
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            # Rich would end the process with status 1, which here means something else.
            raise

    return Terminal(file=out, highlight=False)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.HORIZONTALS, show_lines=True, pad_edge=False, collapse_padding=True, header_style="bold"
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _job_cells(job: StoredJob) -> tuple[RenderableType, ...]:
    from rich.markup import escape

    record = job.record
    if record is None:
        return (_task_cell(job), "", f"[red]can't be read:[/] {escape(str(job.error))}")
    phase = f"[{_COLOURS[record.phase]}]{record.phase}[/], generation {record.generation}"
    status = escape(record.last_status or "no status yet")
    last = f"{status} {_short(record.last_seen_at)}".rstrip()
    owner = f"try {record.owner.try_number} {_short(record.owner.started_at)}"
    name = "no id yet" if record.external_id is None else id_text(record.external_id)
    return (_task_cell(job), _lines(name, record.token), f"{phase}\n{last}\n{owner}")


def _task_cell(job: StoredJob) -> str:
    index = f"[{job.map_index}]" if job.map_index >= 0 else ""
    return _lines(job.dag_id, job.run_id, f"{job.task_id}{index}: {job.task_state}")


def _lines(first: str, *more: str) -> str:
    from rich.markup import escape

    return "\n".join([f"[bold]{escape(first)}[/]", *(escape(line) for line in more)])


def _kind(kind: str) -> str:
    return f"[{_COLOURS[kind]}]{kind}[/]"


def _short(moment: datetime | None) -> str:
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%MZ")


def _tries(job: StoredJob) -> str:
    return "?" if job.max_tries is None else str(job.max_tries + 1)


_COLOURS: Final = {
    "intent": "yellow",
    "submitted": "cyan",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
    "orphan": "red",
    "double": "red",
    "missing": "yellow",
}
