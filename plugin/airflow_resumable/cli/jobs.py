# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""``airflow-resumable jobs``: what is on record of external jobs, beside what their services say."""

from __future__ import annotations

import argparse
import logging
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

from sqlalchemy.exc import SQLAlchemyError

from airflow_resumable.cli import jobs_json as to_json
from airflow_resumable.cli import jobs_output as output
from airflow_resumable.cli.jobs_changes import Refused, cancel, forget
from airflow_resumable.cli.jobs_dags import CannotBeChecked, Dags, said, supervised
from airflow_resumable.cli.jobs_inquiry import Inquiry, SeenJob, id_text
from airflow_resumable.cli.jobs_json import JsonObject
from airflow_resumable.cli.jobs_store import Filters, StoredJob, StoreUnlistable, stored_jobs
from airflow_resumable.cli.jobs_sweep import Sweep
from airflow_resumable.integration import settings

DONE: Final = 0
FOUND: Final = 1
MISUSE: Final = 2
UNCHECKED: Final = 3
REFUSED: Final = 4


def list_jobs(args: argparse.Namespace) -> int:
    """Print every record that passes the filters and return the exit status."""
    return _answered(args, _list)


def show_jobs(args: argparse.Namespace) -> int:
    """Print all that is on record of one task's jobs, ask the service, and return the exit status."""
    return _answered(args, _show)


def reconcile_jobs(args: argparse.Namespace) -> int:
    """Compare records with their services, make the one change that was asked for, return the exit status."""
    return _answered(args, _reconcile)


def _answered(
    args: argparse.Namespace, command: Callable[[argparse.Namespace, IO[str], JsonObject | None], int]
) -> int:
    with output.standard_output() as out:
        answer = JsonObject(out) if args.json else None
        try:
            with _ready():
                status = command(args, out, answer)
        except (StoreUnlistable, Refused) as error:
            output.print_error(str(error), answer)
            status = REFUSED if isinstance(error, Refused) else UNCHECKED
        except SQLAlchemyError as error:
            output.print_error(
                f"the metadata database failed: {said(getattr(error, 'orig', None) or error)}. Nothing more "
                "was done; `airflow db check` says whether it answers, `airflow db check-migrations` "
                "whether it is this Airflow's",
                answer,
            )
            status = UNCHECKED
        except ImportError as error:
            output.print_error(
                f"something that these commands take from Airflow is missing: {said(error)}. Install an "
                "Airflow that this release of airflow-resumable names as tested",
                answer,
            )
            status = UNCHECKED
        if answer is not None:
            answer.close()
        return status


def _list(args: argparse.Namespace, out: IO[str], answer: JsonObject | None) -> int:
    unreadable = 0

    def counted(jobs: Iterable[StoredJob]) -> Iterator[StoredJob]:
        nonlocal unreadable
        for job in jobs:
            unreadable += job.record is None
            yield job

    jobs = counted(stored_jobs(_filters(args)))
    if answer is not None:
        answer.stream("records", map(to_json.job_json, jobs))
    else:
        output.print_jobs(out, jobs)
    return UNCHECKED if unreadable else DONE


def _show(args: argparse.Namespace, out: IO[str], answer: JsonObject | None) -> int:
    jobs = list(stored_jobs(_filters(args)))
    if not jobs:
        index = "" if args.map_index is None else f" with map index {args.map_index}"
        output.print_error(
            f"no job of task {args.task_id!r}{index} in run {args.run_id!r} of Dag {args.dag_id!r} is on "
            "record; `jobs list` shows what is",
            answer,
        )
        return FOUND
    unasked = 0
    dags = Dags()

    def shown() -> Iterator[dict[str, Any]]:
        nonlocal unasked
        for job in jobs:
            seen, why_not = _ask(dags, job, args.timeout)
            unasked += why_not is not None
            if answer is None:
                output.print_record(out, job, seen, why_not)
            service = None if why_not else {"jobs": [to_json.seen_json(one) for one in seen]}
            whole = job.record.dump() if job.record else None
            yield {**to_json.job_json(job), "record": whole, "service": service, "not_asked": why_not}

    with supervised():
        if answer is not None:
            answer.stream("records", shown())
        else:
            deque(shown(), maxlen=0)
    return UNCHECKED if unasked else DONE


def _reconcile(args: argparse.Namespace, out: IO[str], answer: JsonObject | None) -> int:
    given = [name for name in ("cancel", "forget", "dry_run") if getattr(args, name) not in (None, False)]
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        output.print_error(f"{names} exclude each other: use one of them", answer)
        return MISUSE
    dags = Dags()

    def ask(job: StoredJob) -> Inquiry:
        return Inquiry(dags, job, args.timeout)

    with supervised():
        if args.forget is not None:
            done = forget(args.forget, _about(args), ask)
            return _did(done, out, answer)
        sweep = Sweep(ask, settings.read("installation_id") or "", everything=args.all)
        unchecked = sweep.over(stored_jobs(_filters(args), by_dag=True))
        if answer is not None:
            answer.stream("unchecked", ({**to_json.task_json(job), "reason": why} for job, why in unchecked))
            for name in ("checked", "left_out"):
                answer.put(name, getattr(sweep, name))
            answer.stream("findings", map(to_json.finding_json, sweep.found))
        elif args.cancel is not None:
            deque(unchecked, maxlen=0)
        else:
            output.print_unchecked(out, unchecked)
            output.print_findings(out, sweep.found)
            more = f", {sweep.beside}" if sweep.beside else ""
            print(f"{sweep.checked} checked, {len(sweep.found)} findings{more}", file=out)
        if args.cancel is not None:
            return _did(cancel(args.cancel, sweep.found, sweep.beside, ask), out, answer)
    return FOUND if sweep.found else UNCHECKED if sweep.unchecked else DONE


def _about(args: argparse.Namespace) -> list[StoredJob]:
    found = []
    for job in stored_jobs(_filters(args)):
        record = job.record
        if record is None:
            continue
        names = [record.token] if record.external_id is None else [record.token, id_text(record.external_id)]
        if args.forget in names:
            found.append(job)
    return found


def _did(done: str, out: IO[str], answer: JsonObject | None) -> int:
    if answer is not None:
        answer.put("done", done)
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


@contextmanager
def _ready() -> Iterator[None]:
    """Make this process what a process of ``airflow`` is.

    Log lines and warnings are kept back, as other ``airflow`` commands do: what went wrong is in the answer.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from airflow.providers_manager import ProvidersManager

        providers: Any = ProvidersManager
        providers().initialize_providers_configuration()
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)
