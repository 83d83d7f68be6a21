# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a service says now of the jobs of one task instance, asked through the operator's own adapter."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from airflow_resumable.cli.jobs_dags import CannotBeChecked, Dags, said
from airflow_resumable.cli.jobs_store import StoredJob, parent_value
from airflow_resumable.jobs.adapter import Capabilities, FoundJob, Observation, observe
from airflow_resumable.jobs.service import MISSING_LOOKS
from airflow_resumable.jobs.token import TokenMint, family_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.jobs.record import JobRecord


@dataclass(frozen=True, slots=True)
class SeenJob:
    """One job, as the service tells of it.

    Attributes:
        external_id: The service's id.
        token: The token that it carries, when it is known.
        status: The service's raw word; None where it doesn't know the job.
        observation: The same in the protocol's words.
        on_record: Whether the record names its id or its token; else it is known by its family alone.
    """

    external_id: Any
    token: str | None
    status: str | None
    observation: Observation
    on_record: bool

    @property
    def text(self) -> str:
        """The id as it is written on the command line."""
        return id_text(self.external_id)


@dataclass(frozen=True, slots=True)
class _RecordedMint(TokenMint):
    """The mint of the record's family: a run that was cleared since may start another."""

    recorded: str = ""

    @property
    def family(self) -> str:
        return self.recorded


class Inquiry:
    """The adapter of one task instance, ready to be asked outside of an attempt for the length of a block.

    Args:
        dags: Where operators are loaded.
        job: The record.
        timeout: Seconds for which a question may go on failing.

    Raises:
        CannotBeChecked: There is no adapter, and why.
    """

    def __init__(self, dags: Dags, job: StoredJob, timeout: float) -> None:
        if job.record is None:
            raise CannotBeChecked(f"the record can't be read: {job.error}")
        self.job = job
        self.record: JobRecord = job.record
        context = dags.context(job)
        self.adapter = _adapter(context, job.key)
        self._attempt = _attempt(self.adapter, context, self.record, timeout)
        self._context = context
        self._restored = False
        self.parent_keys: tuple[str, ...] = (job.key, *self.adapter.parent_cache_keys)
        self._closing = ExitStack()
        try:
            self._closing.enter_context(self.adapter.looking(context))
        except Exception as error:
            raise CannotBeChecked(f"{self._operator} can't be made ready: {said(error)}") from error

    def __enter__(self) -> Self:
        """Nothing more to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close what the adapter opened."""
        self._closing.close()

    @property
    def can(self) -> Capabilities:
        """What the adapter is able to do."""
        return self._attempt.can

    @property
    def _operator(self) -> str:
        return type(self.adapter).__name__

    @property
    def can_search(self) -> bool:
        """Whether jobs that are not on record can be found."""
        return self.can.find_by_family or self.can.find_by_token

    def jobs(self, *, every_id: bool = False) -> tuple[SeenJob, ...]:
        """Return the jobs that the service knows of, and the current one on record whether it does or not.

        Args:
            every_id: Ask for every id on record, also where the record's last word is the end.

        Raises:
            CannotBeChecked: The service didn't answer.
        """
        try:
            return tuple(self._jobs(every_id))
        except Exception as error:
            raise CannotBeChecked(f"{self._operator}: the service can't be asked: {said(error)}") from error

    def cancel(self, external_id: Any, permit: Callable[[], AbstractContextManager[None]]) -> None:
        """Ask the service to stop a job, again as long as that may help.

        Args:
            external_id: The job.
            permit: Entered before each single request and left after it; what it raises ends the asking.

        Raises:
            CannotBeChecked: The service did not take the request.
        """
        self._restore()
        barred: list[Exception] = []

        def request() -> None:
            with ExitStack() as held:
                try:
                    held.enter_context(permit())
                except Exception as error:
                    barred.append(error)
                    return
                self.adapter.cancel_job(external_id, self._context)

        try:
            self._attempt.service.ask(f"cancelling job {external_id!r}", request)
        except Exception as error:
            raise CannotBeChecked(f"job {id_text(external_id)} was NOT cancelled: {said(error)}") from error
        if barred:
            raise barred[0]

    def look(self, external_id: Any, *, patient: bool = False) -> tuple[Observation, str | None]:
        """Return what a job is doing, and the service's word for it.

        Args:
            external_id: The job.
            patient: Ask several times before "not found" is believed.
        """
        self._restore()
        return self._attempt.service.look(external_id, MISSING_LOOKS if patient else 1)

    def _jobs(self, every_id: bool) -> list[SeenJob]:
        self._restore()
        seen: dict[str, SeenJob] = {}
        for found in self._listed():
            seen.setdefault(id_text(found.external_id), self._from_list(found))
        ids = self._ids() if every_id or self.job.may_be_live else ()
        for external_id in ids:
            if id_text(external_id) not in seen:
                current = external_id == self.record.external_id
                observation, raw = self.look(external_id, patient=current)
                token = self.record.token if current else None
                if current or observation is not Observation.MISSING:
                    seen[id_text(external_id)] = SeenJob(external_id, token, raw, observation, True)
        return list(seen.values())

    def _listed(self) -> list[FoundJob]:
        service, since, family = (
            self._attempt.service,
            self._attempt.search_from,
            family_of(self.record.token),
        )
        found: list[FoundJob] = []
        if self.can.find_by_family:
            found += service.find_by_family(family, since)
        # A listing may leave out what a search by token finds.
        if self.can.find_by_token and (not self.can.find_by_family or self.record.phase == "intent"):
            found += service.find_by_tokens((self.record.token, *self.record.unsettled), since)
        return [one for one in found if one.token is None or family_of(one.token) == family]

    def _from_list(self, found: FoundJob) -> SeenJob:
        record = self.record
        ours = found.token in (record.token, *record.unsettled) or record.knows(found.external_id)
        observation = observe(self.adapter, found.status, self.can)
        return SeenJob(found.external_id, found.token, str(found.status), observation, ours)

    def _ids(self) -> tuple[Any, ...]:
        if self.record.phase != "intent":
            return self.record.ids
        # Its key is written before the record's id; a crash in between leaves the id there alone.
        value = parent_value(self.job)
        return (
            self.record.ids if value is None else (*self.record.ids, self.adapter.parent_value_to_id(value))
        )

    def _restore(self) -> None:
        if self._restored or self.record.external_id is None:
            return
        self._restored = True
        record = self.record
        self.adapter.restore_job(record.external_id, record.location, record.uid, self._context)


def id_text(external_id: Any) -> str:
    """Return an id as it is written on the command line: as it is, or as JSON when it is an object."""
    return external_id if isinstance(external_id, str) else json.dumps(external_id, sort_keys=True)


def _adapter(context: Context, key: str) -> Any:
    from airflow_resumable.jobs.mixin import ResumableJobMixin

    operator: Any = context["task"]
    name = type(operator).__name__
    own_key = getattr(operator, "external_id_key", None)
    if not isinstance(operator, ResumableJobMixin):
        raise CannotBeChecked(
            f"{name} is no operator of this package; a job that resumable_job started in a @task function is "
            "known to that function alone: look for it in the service"
        )
    if own_key != key:
        raise CannotBeChecked(
            f"the record lies under {key!r}, and {name} keeps its own under {own_key!r}: it was written by "
            "another operator, or inside the task; look for the job in the service"
        )
    return operator


def _attempt(adapter: Any, context: Context, record: JobRecord, timeout: float) -> JobAttempt:
    from airflow_resumable.jobs.host import Host

    policy = replace(adapter.resumable_policy(), status_error_budget=timeout)
    host = Host(adapter, adapter.get_capabilities(), policy)
    attempt = host.prepare(context)
    if attempt is None:
        raise CannotBeChecked("Airflow gives this task no task_state_store")
    attempt.record, attempt.external_id, attempt.token = record, record.external_id, record.token
    scope = {field.name: getattr(attempt.mint, field.name) for field in fields(TokenMint)}
    attempt.mint = _RecordedMint(**scope, recorded=family_of(record.token))
    # Adapters ask the operator for its token and family, which it takes from its host.
    adapter._resumable_host = host
    return attempt
