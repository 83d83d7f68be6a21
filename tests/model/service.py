# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A job service in memory, whose own book of jobs and requests is the oracle."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_resumable.sdk import ExternalJob, FoundJob, JobNotFound, SubmitWindow

if TYPE_CHECKING:
    from tests.model.world import World

LIVE = ("QUEUED", "RUNNING", "STOPPING", "PAUSED BY QUOTA")
FAILED = ("FAILED", "CANCELLED")
MEMORY = 120.0
"""Seconds for which a forgetful service remembers a token."""


@dataclass
class Job:
    """What the service really runs, whatever it tells."""

    number: int
    token: str | None
    creator: int
    """The attempt's number."""
    created: int
    accepted_at: float
    status: str = "RUNNING"
    known: bool = True
    slow: bool = False
    ended: int | None = None
    failure_seen: bool = False
    cancel_taken: bool = False
    cancel_refused: bool = False
    copy: bool = False
    """Started by the service itself, which ran a failed job once more under the same mark."""
    late: bool = False
    """Started by an attempt that had been replaced already."""
    recorded: int | None = None
    heard: bool = False
    """Whether an attempt has heard its id."""

    @property
    def live(self) -> bool:
        """Whether it may still do work."""
        return self.ended is None

    @property
    def result(self) -> dict[str, int]:
        """Each job has a result of its own."""
        return {"job": self.number}


class Service:
    """Takes jobs, with or without tokens, and forgets, loses replies and fails as it is told to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.jobs: list[Job] = []
        self.faults: dict[str, str] = {}
        self.down_until = 0.0

    def end(self, job: Job, status: str) -> None:
        """Let a job end."""
        job.status, job.ended = status, self.world.tick

    def call(self, verb: str, effect: Any) -> Any:
        """Carry out a request: it can be refused, or its answer lost; the caller can die before and after."""
        world = self.world
        world.pause(f"{verb} sent")
        fault = self.faults.pop(verb, None)
        if world.clock.now < self.down_until or fault == "refused":
            raise ConnectionRefusedError(f"{verb}: the service is down")
        if fault == "denied":
            raise PermissionError(f"{verb}: access denied")
        world.tick += 1
        answer = effect()
        if fault == "lost":
            raise ConnectionResetError(f"{verb}: the answer was lost")
        world.pause(f"{verb} answered")
        return answer

    def accept(self, token: str | None, mark: str | None) -> tuple[Job, bool]:
        """Take a submit whose answer the caller hears."""
        job, created = self.call("submit", lambda: self.submit(token, mark))
        job.heard = True
        return job, created

    def submit(self, token: str | None, mark: str | None) -> tuple[Job, bool]:
        """Start a job, unless one with the same token is remembered."""
        world = self.world
        caller = world.running
        world.laws.before_submit(caller, token or mark)
        for job in self.jobs:
            if token is not None and job.token == token and job.known and self._remembers(job):
                return job, False
        job = Job(len(self.jobs) + 1, token or mark, caller.number, world.tick, world.clock.now)
        world.laws.before_start(caller, job)
        self.jobs.append(job)
        return job, True

    def _remembers(self, job: Job) -> bool:
        return not self.world.setup.forgetful or self.world.clock.now - job.accepted_at <= MEMORY

    def status(self, number: int) -> str:
        """Tell a job's status."""
        job = self.jobs[number - 1]
        caller = self.world.running
        if not job.known:
            raise JobNotFound(f"job {number}")
        job.failure_seen |= job.status in FAILED
        self.world.laws.look(caller, job)
        return job.status

    def find(self, token: str | None = None, family: str | None = None) -> list[FoundJob]:
        """List the jobs with a token, or of a family."""
        caller = self.world.running
        caller.looked_up = self.world.tick
        found = []
        for job in self.jobs:
            if not job.known or job.token is None:
                continue
            if job.token == token or job.token[1:17] == family:
                job.failure_seen |= job.status in FAILED
                found.append(FoundJob(job.number, job.status, job.token))
        return found

    def cancel(self, number: int) -> None:
        """Stop a job, at once or slowly."""
        job = self.jobs[number - 1]
        self.world.laws.before_cancel(self.world.running, job)
        if not job.known:
            raise JobNotFound(f"job {number}")
        job.cancel_taken = True
        if job.live:
            if job.slow:
                job.status = "STOPPING"
            else:
                self.end(job, "CANCELLED")


class ModelJob(ExternalJob):
    """The least of adapters: a service that takes no token and lists nothing."""

    external_id_key = "model_job"
    poll_interval = 10.0

    def __init__(self, service: Service) -> None:
        self._service = service
        self._created: bool | None = None

    def submit_job(self, context: Any) -> Any:
        """Submit without a token."""
        job, self._created = self._service.accept(None, None)
        return job.number

    def was_job_created(self) -> bool | None:
        """Say whether the last submit made a job."""
        return self._created

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """Ask for the status."""
        return str(self._service.call("status", lambda: self._service.status(external_id)))

    def is_job_active(self, status: str) -> bool:
        """Say what is at work."""
        return status in ("QUEUED", "RUNNING")

    def is_job_succeeded(self, status: str) -> bool:
        """Say what has succeeded."""
        return status == "SUCCEEDED"

    def is_job_failed(self, status: str) -> bool:
        """Say what has failed; some words nobody knows."""
        return status in FAILED

    def is_job_stopping(self, status: str) -> bool:
        """Say what is stopping."""
        return status == "STOPPING"

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        """Return the job's own result."""

        def result() -> Any:
            job = self._service.jobs[external_id - 1]
            if not job.known:
                raise JobNotFound(f"job {external_id}")
            return job.result

        return self._service.call("result", result)

    def cancel_job(self, external_id: Any, context: Any) -> None:
        """Ask for a stop."""
        try:
            self._service.call("cancel", lambda: self._service.cancel(external_id))
        except (ConnectionRefusedError, PermissionError):
            self._service.jobs[external_id - 1].cancel_refused = True
            raise

    def clean_up_job(self, external_id: Any, observation: Any, context: Any) -> None:
        """Tell the laws, which look at the record."""
        self._service.world.laws.tidied(external_id)


class MarkedJob(ModelJob):
    """A service that takes no token, but lists jobs by a mark."""

    submit_window = SubmitWindow.NARROWED

    def submit_job(self, context: Any) -> Any:
        """Submit with a mark."""
        job, self._created = self._service.accept(None, self.idempotency_token)
        return job.number

    def find_job_by_token(self, token: str, since: Any, context: Any) -> list[FoundJob]:
        """List by mark."""
        found: list[FoundJob] = self._service.call("find", lambda: self._service.find(token=token))
        return found


class TokenJob(ModelJob):
    """A service that starts one job per token and lists nothing."""

    submit_window = SubmitWindow.CLOSED

    def submit_job(self, context: Any) -> Any:
        """Submit with the token."""
        token = self.idempotency_token
        job, self._created = self._service.accept(token, None)
        return job.number


class ListedJob(TokenJob):
    """A service that takes tokens and lists by token and family."""

    find_job_by_token = MarkedJob.find_job_by_token

    def find_jobs_by_family(self, family: str, since: Any, context: Any) -> list[FoundJob]:
        """List the family."""
        found: list[FoundJob] = self._service.call("find", lambda: self._service.find(family=family))
        return found


KINDS: dict[str, type[ModelJob]] = {
    "open": ModelJob,
    "narrowed": MarkedJob,
    "token": TokenJob,
    "closed": ListedJob,
}


@functools.cache
def adapter(kind: str, forgetful: bool) -> type[ModelJob]:
    """Return the adapter of a kind of service; a forgetful one says how long it remembers a token."""
    base = KINDS[kind]
    if not forgetful:
        return base
    return type(f"Forgetful{base.__name__}", (base,), {"token_memory": timedelta(seconds=MEMORY)})
