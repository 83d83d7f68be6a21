# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The service's memory on disk: its jobs and its request log, in one SQLite file.

The file is in WAL mode and written without fsync: it survives the service's death, not the machine's.
A request is logged on arrival, with no code, and its code is filled in just before the reply is sent; the job
that a submit creates and the mark ``created`` on the log row are one transaction. So a service killed at any
moment leaves a log that neither misses a job nor counts one twice.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from airflow_resumable.testing.jobservice.job import Job, JobId, Status
from airflow_resumable.testing.jobservice.payload import JobSpec

_FORMAT = "1"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    command TEXT NOT NULL,
    token TEXT, family TEXT, name TEXT, location TEXT,
    status TEXT NOT NULL,
    exit_code INTEGER, result TEXT, reason TEXT,
    pid INTEGER, pid_ticks INTEGER,
    submitted_at REAL NOT NULL, started_at REAL, finished_at REAL,
    forgotten INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX IF NOT EXISTS jobs_token ON jobs (token) WHERE token IS NOT NULL AND forgotten = 0;
CREATE INDEX IF NOT EXISTS jobs_family ON jobs (family, number);
CREATE INDEX IF NOT EXISTS jobs_status ON jobs (status, number);
CREATE TABLE IF NOT EXISTS requests (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    verb TEXT NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    job TEXT, token TEXT, family TEXT, client TEXT,
    code INTEGER,
    fault TEXT,
    created INTEGER
);
"""
_JOB_COLUMNS = (
    "number, id, command, token, family, name, location, status, exit_code, result, reason, pid, pid_ticks,"
    " submitted_at, started_at, finished_at, forgotten"
)
_REQUEST_COLUMNS = (
    "seq",
    "at",
    "verb",
    "method",
    "path",
    "job",
    "token",
    "family",
    "client",
    "code",
    "fault",
    "created",
)


def _job(row: tuple[Any, ...]) -> Job:
    number, id_json, command, token, family, name, location, status, exit_code, result, reason = row[:11]
    pid, pid_ticks, submitted_at, started_at, finished_at, forgotten = row[11:]
    return Job(
        number=number,
        id=json.loads(id_json),
        spec=JobSpec(tuple(json.loads(command)), token, family, name, location),
        status=Status(status),
        exit_code=exit_code,
        result=None if result is None else json.loads(result),
        reason=reason,
        pid=pid,
        pid_ticks=pid_ticks,
        submitted_at=submitted_at,
        started_at=started_at,
        finished_at=finished_at,
        forgotten=bool(forgotten),
    )


def _id_forms(text: str) -> tuple[str, str]:
    """Return the ways an id spelled ``text`` may be stored: as a JSON text, or as a bare number."""
    quoted = json.dumps(text)
    return quoted, text if text.isascii() and text.isdigit() else quoted


class JournalError(RuntimeError):
    """The file is not a journal of this service; the message says why."""


class Journal:
    """The store; one connection behind one re-entrant lock, which is the lock of all of the service's state.

    Args:
        path: The SQLite file, made if missing.
        first_id: The number of the first job in a new file.
        plain_ids: Make ids the bare numbers instead of ``job-000001``.

    Raises:
        JournalError: The file is something else, or of a newer format.
    """

    def __init__(self, path: Path, *, first_id: int = 1, plain_ids: bool = False) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._first_id = first_id
        self._plain_ids = plain_ids
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = OFF")
            self._db.executescript(_SCHEMA)
            for name, value in (("format", _FORMAT), ("cookie", secrets.token_hex(16))):
                self._db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, value))
            meta = dict(self._db.execute("SELECT name, value FROM meta").fetchall())
        except sqlite3.Error as error:
            raise JournalError(f"{path} can't be used as the journal: {error}") from error
        if meta["format"] != _FORMAT:
            raise JournalError(f"{path} has format {meta['format']}, this version reads {_FORMAT}")
        self.cookie: str = meta["cookie"]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the lock and make the writes inside one commit."""
        with self.lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file; the journal can't be used any more."""
        with self.lock:
            self._db.close()

    def wait_until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until ``condition``, asked after each change, holds; False after ``timeout`` seconds."""
        with self.changed:
            return self.changed.wait_for(condition, timeout)

    def _write(self, sql: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        with self.changed:
            cursor = self._db.execute(sql, values)
            self.changed.notify_all()
            return cursor

    # -- jobs

    def add_job(self, spec: JobSpec, status: Status) -> int:
        """Insert a job, QUEUED or RUNNING, and return its number; numbers are never used again."""
        now = time.time()
        with self.lock:
            (number,) = self._db.execute(
                "SELECT COALESCE(MAX(number) + 1, ?) FROM jobs", (self._first_id,)
            ).fetchone()
            job_id: JobId = number if self._plain_ids else f"job-{number:06d}"
            self._write(
                "INSERT INTO jobs (number, id, command, token, family, name, location, status, submitted_at,"
                " started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    number,
                    json.dumps(job_id),
                    json.dumps(spec.command),
                    spec.token,
                    spec.family,
                    spec.name,
                    spec.location,
                    str(status),
                    now,
                    now if status is Status.RUNNING else None,
                ),
            )
        return int(number)

    def _jobs(self, where: str, values: tuple[Any, ...]) -> list[Job]:
        with self.lock:
            rows = self._db.execute(f"SELECT {_JOB_COLUMNS} FROM jobs WHERE {where}", values).fetchall()
        return [_job(row) for row in rows]

    def job(self, number: int) -> Job:
        """Return a job that is known to exist, forgotten or not."""
        return self._jobs("number = ?", (number,))[0]

    def job_called(self, text: str) -> Job | None:
        """Return the job whose id is spelled ``text``, forgotten or not."""
        return next(iter(self._jobs("id IN (?, ?)", _id_forms(text))), None)

    def job_with_token(self, token: str | None) -> Job | None:
        """Return the job that holds a token; a forgotten one holds none."""
        return next(iter(self._jobs("token = ? AND forgotten = 0", (token,))), None)

    def find_jobs(
        self,
        *,
        token: str | None = None,
        family: str | None = None,
        location: str | None = None,
        since: float | None = None,
        below: int | None = None,
        limit: int,
    ) -> list[Job]:
        """List jobs that aren't forgotten, newest first, with a number under ``below``."""
        where, values = ["forgotten = 0"], []
        for sql, value in (
            ("token = ?", token),
            ("family = ?", family),
            ("location = ?", location),
            ("submitted_at >= ?", since),
            ("number < ?", below),
        ):
            if value is not None:
                where.append(sql)
                values.append(value)
        return self._jobs(" AND ".join(where) + " ORDER BY number DESC LIMIT ?", (*values, limit))

    def jobs_in(self, *statuses: Status) -> list[Job]:
        """List jobs in any of the statuses, oldest first, forgotten ones included."""
        marks = ", ".join("?" * len(statuses))
        return self._jobs(f"status IN ({marks}) ORDER BY number", tuple(str(status) for status in statuses))

    def next_queued(self) -> Job | None:
        """Return the QUEUED job that has waited longest."""
        jobs = self._jobs("status = ? ORDER BY number LIMIT 1", (str(Status.QUEUED),))
        return jobs[0] if jobs else None

    def set_running(self, number: int) -> None:
        """Record that a queued job is about to be started."""
        self._write(
            "UPDATE jobs SET status = ?, started_at = ? WHERE number = ?",
            (str(Status.RUNNING), time.time(), number),
        )

    def set_process(self, number: int, pid: int, ticks: int | None) -> None:
        """Record the process of a job and when it was started, in the kernel's clock ticks since boot."""
        self._write("UPDATE jobs SET pid = ?, pid_ticks = ? WHERE number = ?", (pid, ticks, number))

    def set_stopping(self, number: int) -> None:
        """Record that a running job was asked to stop."""
        self._write("UPDATE jobs SET status = ? WHERE number = ?", (str(Status.STOPPING), number))

    def finish(
        self,
        number: int,
        status: Status,
        *,
        exit_code: int | None = None,
        result: Any = None,
        reason: str | None = None,
    ) -> None:
        """Record the end of a job."""
        self._write(
            "UPDATE jobs SET status = ?, exit_code = ?, result = ?, reason = ?, finished_at = ?"
            " WHERE number = ?",
            (
                str(status),
                exit_code,
                None if result is None else json.dumps(result),
                reason,
                time.time(),
                number,
            ),
        )

    def forget(self, number: int) -> None:
        """Hide a job and free its token; the row stays for the log and for the process it may still have."""
        self._write("UPDATE jobs SET forgotten = 1 WHERE number = ?", (number,))

    # -- the request log

    def log(
        self,
        *,
        at: float,
        verb: str,
        method: str,
        path: str,
        job: JobId | None,
        token: str | None,
        family: str | None,
        client: str | None,
        fault: str | None,
    ) -> int:
        """Append a request that has arrived, not answered yet, and return its sequence number."""
        cursor = self._write(
            "INSERT INTO requests (at, verb, method, path, job, token, family, client, fault, created)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                at,
                verb,
                method,
                path,
                None if job is None else json.dumps(job),
                token,
                family,
                client,
                fault,
                0 if verb == "submit" else None,
            ),
        )
        return int(cursor.lastrowid or 0)

    def log_submit(self, seq: int, job: JobId, *, created: bool) -> None:
        """Note on a logged submit which job it led to, and whether it created it."""
        self._write("UPDATE requests SET job = ?, created = ? WHERE seq = ?", (json.dumps(job), created, seq))

    def log_code(self, seq: int, code: int | None) -> None:
        """Note the status code of the reply; None takes it back, for a reply that could not be sent."""
        self._write("UPDATE requests SET code = ? WHERE seq = ?", (code, seq))

    def requests(self, filters: dict[str, Any]) -> list[dict[str, Any]]:
        """List logged requests, see ``select_requests``."""
        with self.lock:
            return select_requests(self._db, filters)


def select_requests(db: sqlite3.Connection, filters: dict[str, Any]) -> list[dict[str, Any]]:
    """List logged requests in order of arrival.

    Args:
        db: A connection to the journal.
        filters: Any of verb, job, token, family, fault (equal), created (bool), since_seq (numbers above it);
            a value of None doesn't filter.
    """
    where = ["1"]
    values: list[Any] = []
    for name, value in filters.items():
        if value is None:
            continue
        if name == "job":
            where.append("job IN (?, ?)")
            values.extend(_id_forms(str(value)))
        elif name == "since_seq":
            where.append("seq > ?")
            values.append(value)
        elif name in ("verb", "token", "family", "fault", "created"):
            where.append(f"{name} = ?")
            values.append(value)
        else:
            raise ValueError(f"the request log has no filter {name!r}")
    sql = f"SELECT {', '.join(_REQUEST_COLUMNS)} FROM requests WHERE {' AND '.join(where)} ORDER BY seq"
    rows = [dict(zip(_REQUEST_COLUMNS, row, strict=True)) for row in db.execute(sql, values).fetchall()]
    for row in rows:
        row["job"] = None if row["job"] is None else json.loads(row["job"])
        row["created"] = None if row["created"] is None else bool(row["created"])
    return rows


@contextlib.contextmanager
def open_readonly(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a journal from outside, beside a running service or after its death."""
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        yield db
