# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a schedule came to: the service's own log, and beside it what the attempts did when."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_resumable.testing.jobservice.journal import open_readonly
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.soak.schedule import Schedule

RECORD_KEY = "resumable.local_job_id"
_SAYS = re.compile(r"this attempt is being stopped \((\w+)\)|the task was cleared while running")
_TRY = re.compile(r" try (\d+) ")


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the service has it on file; times are epoch seconds."""

    id: Any
    mark: str | None
    status: str
    submitted_at: float
    finished_at: float | None
    forgotten: bool
    by: int
    """The try that started it, by the request log."""


@dataclass(slots=True)
class Attempt:
    """One attempt; `try_number` is its own, nobody shares it.

    Attributes:
        try_number: From 1.
        last: Whether no try was left after it.
        began: Epoch seconds.
        ended: Epoch seconds, None while it lives.
        how: How it ended: "returned", an exception's name, "killed"...
        replaced_at: When the server gave its place to another one.
        hit: What befell it, "" for nothing.
        passed: Crash points and when it passed them.
        value: What it returned.
        says: What it said of its being stopped: "user", "cleared", "infrastructure", "not
            cancelled"..., "" for nothing.
        lines: Its log.
    """

    try_number: int
    last: bool
    began: float
    ended: float | None = None
    how: str = ""
    replaced_at: float | None = None
    hit: str = ""
    passed: list[tuple[float, str]] = field(default_factory=list)
    value: Any = None
    says: str = ""
    lines: list[str] = field(default_factory=list, repr=False)

    def wrote(self, *words: str) -> bool:
        """Say whether one line of its log has all these words."""
        return any(all(word in line for word in words) for line in self.lines)

    def passed_at(self, point: str) -> float | None:
        """Return when it first passed a point, None when it didn't."""
        return next((at for at, name in self.passed if name == point), None)


@dataclass(slots=True)
class History:
    """One schedule, carried out.

    Attributes:
        schedule: The schedule.
        jobs: Every job that the service started, in order.
        requests: Its request log.
        attempts: By try number.
        clears: When a user cleared the task.
        marks: When a user marked it, and as what.
        ids: When a job's id came on record: (epoch seconds, mark, id).
        forgets: When the service was made to forget a job: (epoch seconds, id).
        state: The task's final state.
        by_user: Whether that state is a user's mark.
        record: The record in the end, None without one.
        hung: What did not end by itself.
        log: Where more can be read.
    """

    schedule: Schedule
    jobs: list[Job] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    clears: list[float] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    ids: list[tuple[float, str, Any]] = field(default_factory=list)
    forgets: list[tuple[float, Any]] = field(default_factory=list)
    state: str = ""
    by_user: bool = False
    record: dict[str, Any] | None = None
    hung: list[str] = field(default_factory=list)
    log: Path = Path()

    def read_log(self, text: str, try_number: int | None = None) -> None:
        """Take from a log what attempts said of their being stopped.

        Args:
            text: The log of one try, or of all with ``try N`` in each line.
            try_number: The one try.
        """
        for line in text.splitlines():
            said = _SAYS.search(line)
            found = _TRY.search(line)
            number = try_number or (int(found[1]) if found else 0)
            if number in self.attempts:
                self.attempts[number].lines.append(line)
            if said and number in self.attempts:
                not_done = "was NOT cancelled (within" in line
                self.attempts[number].says = "not cancelled" if not_done else said[1] or "cleared"
            elif "nothing to cancel" in line and number in self.attempts:
                # Up to 3.3 a cleared attempt that had not read its record yet can't read it any more.
                self.attempts[number].says = "nothing to cancel"

    def read(self, service: JobService) -> None:
        """Take jobs and requests from the service's files."""
        self.requests = service.requests()
        started = {
            repr(one["job"]): one for one in self.requests if one["verb"] == "submit" and one["created"]
        }
        with open_readonly(service.data_dir / "journal.sqlite") as db:
            rows = db.execute(
                "SELECT id, token, name, status, submitted_at, finished_at, forgotten FROM jobs"
                " ORDER BY number"
            ).fetchall()
        for request in self.requests:
            number = try_of(request)
            if number and number not in self.attempts:
                self.attempts[number] = Attempt(number, number > self.schedule.retries, request["at"])
        self.jobs = []
        for text, token, name, status, submitted_at, finished_at, forgotten in rows:
            job_id = json.loads(text)
            by = try_of(started[repr(job_id)])
            self.jobs.append(
                Job(job_id, token or name, status, submitted_at, finished_at, bool(forgotten), by)
            )


def try_of(request: dict[str, Any]) -> int:
    """Return the try that sent a request, 0 for the harness: the operator's client ends in it."""
    last = (request["client"] or "").rpartition("/")[2]
    return int(last) if last.isdigit() else 0
