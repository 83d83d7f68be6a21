# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The two changes that ``jobs reconcile`` makes when it is told to: cancel one job, close one record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from airflow_resumable.cli.jobs_dags import CannotBeChecked
from airflow_resumable.cli.jobs_findings import Finding
from airflow_resumable.cli.jobs_inquiry import Inquiry, id_text
from airflow_resumable.cli.jobs_store import StoredJob, replace_record, reread
from airflow_resumable.integration.server import NO_STATE

_NO_ATTEMPT_AT_WORK: Final = (NO_STATE, "up_for_retry")
"""States besides the ended ones in which no attempt holds the record in its hands."""


class Refused(Exception):
    """Nothing was changed; says why, and what to do."""


def cancel(wanted: str, found: Sequence[Finding], beside: str, ask: Callable[[StoredJob], Inquiry]) -> str:
    """Cancel one job and return what was done.

    Args:
        wanted: The job's id, as it was written on the command line.
        found: The findings.
        beside: What was left out of the search for findings, in words; empty for nothing.
        ask: Makes the adapter of a record ready.

    Raises:
        Refused: It isn't among the findings, or an attempt may own it.
    """
    matching = [finding for finding in found if finding.is_about(wanted)]
    if not matching:
        more = f"; {beside}" if beside else ""
        raise Refused(
            f"--cancel {wanted!r}: no such job among the findings{more}. Ids are those that reconcile prints"
        )
    if len(matching) > 1:
        names = "; ".join(finding.job.name for finding in matching)
        raise Refused(
            f"--cancel {wanted!r}: several tasks have such a job ({names}); say which by --dag-id, ..."
        )
    finding = matching[0]
    if finding.kept_from_cancel or finding.seen is None:
        raise Refused(f"--cancel {wanted!r}: {finding.kept_from_cancel}")
    external_id = finding.seen.external_id
    try:
        with ask(finding.job) as asked:
            observation, raw = asked.look(external_id)
            if not observation.is_live:
                raise Refused(f"--cancel {wanted!r}: it has ended meanwhile ({raw or 'service has lost it'})")
            asked.cancel(external_id, lambda: _ended_still(wanted, finding.job))
            after = _after(asked, external_id)
    except CannotBeChecked as error:
        raise Refused(f"--cancel {wanted!r}: {error}") from error
    return f"asked the service to cancel job {wanted} of {finding.job.name}; {after}"


def forget(wanted: str, records: Sequence[StoredJob], ask: Callable[[StoredJob], Inquiry]) -> str:
    """Close one record, so that the next attempt starts the next generation, and return what was done.

    Closed, not deleted: the generation has to go on counting, or the next attempt would submit with the
    token of the job that is to be forgotten, and a service that remembers it would answer with that job.

    Args:
        wanted: The current job's id, or the token of an intent, as it was written on the command line.
        records: The records that are about it.
        ask: Makes the adapter of a record ready.

    Raises:
        Refused: There is none, a job is alive, or an attempt may be at work.
    """
    from airflow.utils.session import create_session

    if not records:
        raise Refused(f"--forget {wanted!r}: no record has this job for its current one, or this token")
    if len(records) > 1:
        names = "; ".join(job.name for job in records)
        raise Refused(f"--forget {wanted!r}: several records ({names}); say which by --dag-id, ...")
    job = records[0]
    try:
        with ask(job) as asked:
            _require_nothing_alive(wanted, asked)
    except CannotBeChecked as error:
        raise Refused(f"--forget {wanted!r}: that its job is dead can't be shown: {error}") from error
    with create_session() as session:
        # The lock keeps an attempt's write from coming between the look and the change; SQLite has none.
        now = reread(job, session)
        if now is None or now.raw != job.raw:
            raise Refused(f"--forget {wanted!r}: the record of {job.name} was changed meanwhile; look again")
        if not (now.task_has_ended or now.task_state in _NO_ATTEMPT_AT_WORK):
            raise Refused(
                f"--forget {wanted!r}: the task is {now.task_state}: an attempt may be at work on the "
                "record. Wait for its end, or mark the task failed in Airflow"
            )
        record = asked.record
        unsettled = record.unsettled
        if record.phase == "intent" and record.token not in unsettled:
            # A stopped attempt may send the submit that it had announced when it wakes up.
            unsettled = (*unsettled, record.token)
        closed = record.with_(
            phase="cancelled",
            last_status=f"forgotten by hand (was {record.last_status or record.phase})",
            unsettled=unsettled,
        )
        replace_record(session, job, closed, asked.parent_keys)
    return (
        f"closed the record of {job.name} (job {id_text(record.external_id)}, generation "
        f"{record.generation}); the next attempt starts generation {record.generation + 1}"
    )


def _require_nothing_alive(wanted: str, asked: Inquiry) -> None:
    if asked.record.phase == "intent" and not asked.can_search:
        raise Refused(
            f"--forget {wanted!r}: the operator can't search for the intent's job, so it can't be shown that "
            "none runs: look for it in the service"
        )
    live = [one for one in asked.jobs(every_id=True) if one.observation.is_live]
    if live:
        names = ", ".join(f"{one.text} ({one.status})" for one in live)
        raise Refused(f"--forget {wanted!r}: alive: {names}. Cancel it first (--cancel, or in the service)")


@contextmanager
def _ended_still(wanted: str, job: StoredJob) -> Iterator[None]:
    # Around each single request: a task that was cleared since may own the job again, and while the row is
    # locked no attempt can put its name on the record. SQLite has no row locks: there an attempt may do so
    # between the look and the request.
    from airflow.utils.session import create_session

    with create_session() as session:
        now = reread(job, session)
        if now is None or now.raw != job.raw:
            raise Refused(f"--cancel {wanted!r}: the record of {job.name} was changed meanwhile; look again")
        if not now.task_has_ended:
            raise Refused(
                f"--cancel {wanted!r}: the task is {now.task_state} again: an attempt may own the job"
            )
        yield


def _after(asked: Inquiry, external_id: object) -> str:
    try:
        observation, raw = asked.look(external_id)
    except Exception as error:
        return f"what became of it can't be said: {type(error).__name__}: {error}"
    return f"it is {raw or observation.value} now"
