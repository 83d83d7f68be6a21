# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""``airflow-resumable jobs``: what is on record of external jobs, beside what their services say."""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

from airflow_resumable.cli import jobs_output as output
from airflow_resumable.cli.jobs_changes import Refused, cancel, forget
from airflow_resumable.cli.jobs_dags import CannotBeChecked, Dags, supervised
from airflow_resumable.cli.jobs_findings import Finding, findings
from airflow_resumable.cli.jobs_inquiry import Inquiry, SeenJob, id_text
from airflow_resumable.cli.jobs_store import Filters, StoredJob, StoreUnlistable, stored_jobs
from airflow_resumable.integration import settings

DONE: Final = 0
FOUND: Final = 1
MISUSE: Final = 2
UNCHECKED: Final = 3
REFUSED: Final = 4


def list_jobs(args: argparse.Namespace) -> int:
    """Print every record that passes the filters and return the exit status."""
    unreadable = 0

    def counted(jobs: Iterable[StoredJob]) -> Iterator[StoredJob]:
        nonlocal unreadable
        for job in jobs:
            unreadable += job.record is None
            yield job

    with _ready() as out:
        try:
            jobs = counted(_begun(stored_jobs(_filters(args))))
            if args.json:
                output.print_json_list(out, "records", (output.job_json(job) for job in jobs))
            else:
                output.print_jobs(out, jobs)
        except StoreUnlistable as error:
            output.print_error(out, str(error), args.json)
            return UNCHECKED
        return UNCHECKED if unreadable else DONE


def show_jobs(args: argparse.Namespace) -> int:
    """Print all that is on record of one task's jobs, ask the service, and return the exit status."""
    with _ready() as out:
        try:
            jobs = list(stored_jobs(_filters(args)))
        except StoreUnlistable as error:
            output.print_error(out, str(error), args.json)
            return UNCHECKED
        if not jobs:
            index = "" if args.map_index is None else f" with map index {args.map_index}"
            output.print_error(
                out,
                f"no job of task {args.task_id!r}{index} in run {args.run_id!r} of Dag {args.dag_id!r} is on "
                "record; `jobs list` shows what is",
                args.json,
            )
            return FOUND
        shown: list[dict[str, Any]] = []
        unasked = 0
        dags = Dags()
        with supervised():
            for job in jobs:
                seen, why_not = _ask(dags, job, args.timeout)
                unasked += why_not is not None
                if not args.json:
                    output.print_record(out, job, seen, why_not)
                service = None if why_not else {"jobs": [output.seen_json(one) for one in seen]}
                whole = job.record.dump() if job.record else None
                shown.append(
                    {**output.job_json(job), "record": whole, "service": service, "not_asked": why_not}
                )
        if args.json:
            output.print_json(out, {"records": shown})
        return UNCHECKED if unasked else DONE


def reconcile_jobs(args: argparse.Namespace) -> int:
    """Compare records with their services, make the one change that was asked for, return the exit status."""
    with _ready() as out:
        given = [name for name in ("cancel", "forget", "dry_run") if getattr(args, name)]
        if len(given) > 1:
            names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            output.print_error(out, f"{names} exclude each other: use one of them", args.json)
            return MISUSE
        try:
            with supervised():
                if args.forget:
                    return _forget(args, out)
                return _reconcile(args, out)
        except StoreUnlistable as error:
            output.print_error(out, str(error), args.json)
            return UNCHECKED
        except Refused as error:
            output.print_error(out, str(error), args.json)
            return REFUSED


def _reconcile(args: argparse.Namespace, out: IO[str]) -> int:
    dags = Dags()
    installation = settings.read("installation_id") or ""
    found: list[Finding] = []
    unchecked: list[dict[str, Any]] = []
    checked = 0
    for job in stored_jobs(_filters(args)):
        try:
            with Inquiry(dags, job, args.timeout) as asked:
                seen = asked.jobs()
            can_cancel, can_search = asked.can.cancel, asked.can_search
            found += findings(
                job, seen, can_cancel=can_cancel, can_search=can_search, installation=installation
            )
            if not can_search:
                raise CannotBeChecked(
                    f"{type(asked.adapter).__name__} can't list jobs (no find_jobs_by_family, no "
                    "find_job_by_token): only the ids on record were asked for"
                )
            checked += 1
        except CannotBeChecked as error:
            unchecked.append({**output.task_json(job), "reason": str(error)})
    done = None
    if args.cancel:
        done = cancel(args.cancel, found, len(unchecked), lambda job: Inquiry(dags, job, args.timeout))
    if args.json:
        output.print_json(
            out,
            {
                "checked": checked,
                "findings": [output.finding_json(one) for one in found],
                "unchecked": unchecked,
                "done": done,
            },
        )
    elif done:
        print(done, file=out)
    else:
        output.print_findings(out, found, unchecked)
        print(f"{checked} checked, {len(found)} findings, {len(unchecked)} can't be checked", file=out)
    if done:
        return DONE
    return FOUND if found else UNCHECKED if unchecked else DONE


def _forget(args: argparse.Namespace, out: IO[str]) -> int:
    dags = Dags()
    about = [
        job
        for job in stored_jobs(_filters(args))
        if job.record and args.forget in (id_text(job.record.external_id), job.record.token)
    ]
    done = forget(args.forget, about, lambda job: Inquiry(dags, job, args.timeout))
    if args.json:
        output.print_json(out, {"done": done})
    else:
        print(done, file=out)
    return DONE


def _ask(dags: Dags, job: StoredJob, timeout: float) -> tuple[tuple[SeenJob, ...], str | None]:
    try:
        with Inquiry(dags, job, timeout) as asked:
            return asked.jobs(every_id=True), None
    except CannotBeChecked as error:
        return (), str(error)


def _filters(args: argparse.Namespace) -> Filters:
    return Filters(args.dag_id, args.run_id, args.task_id, args.map_index, getattr(args, "state", "all"))


def _begun(jobs: Iterator[StoredJob]) -> Iterator[StoredJob]:
    """Read the first page now, so that a store that can't be listed is an error and not half an output."""
    first = next(jobs, None)
    return iter(()) if first is None else _chain(first, jobs)


def _chain(first: StoredJob, more: Iterator[StoredJob]) -> Iterator[StoredJob]:
    yield first
    yield from more


@contextmanager
def _ready() -> Iterator[IO[str]]:
    """Make this process what a process of ``airflow`` is, and yield its standard output.

    Log lines and warnings are kept back, as other ``airflow`` commands do: what went wrong is in the answer.
    """
    with output.standard_output() as out, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from airflow.providers_manager import ProvidersManager

        providers: Any = ProvidersManager
        providers().initialize_providers_configuration()
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            yield out
        finally:
            logging.disable(before)
