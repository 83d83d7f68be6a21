# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the logged routes mean: a request becomes a call, a call becomes a reply. No HTTP in here."""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_resumable.testing.jobservice import payload
from airflow_resumable.testing.jobservice.credentials import Credentials
from airflow_resumable.testing.jobservice.faults import Fault
from airflow_resumable.testing.jobservice.job import Job, JobId
from airflow_resumable.testing.jobservice.journal import Journal
from airflow_resumable.testing.jobservice.payload import Invalid, JobSpec
from airflow_resumable.testing.jobservice.runner import Runner, Stopping

WAIT_LIMIT = 600.0
_PAGE = 100
_JOB_PATH = re.compile(r"/jobs/([^/]+)\Z")
_CANCEL_PATH = re.compile(r"/jobs/([^/]+)/cancel\Z")
_PAGE_TOKEN = re.compile(r"before-([0-9]{1,15})\Z")
_SPOILED: dict[str, tuple[int, str]] = {
    "unavailable": (503, "unavailable"),
    "error": (500, "internal_error"),
    "throttle": (429, "throttled"),
    "unauthorized": (401, "unauthorized"),
    "forbidden": (403, "forbidden"),
    "refuse_cancel": (403, "forbidden"),
}


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back."""

    code: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):
    """Ends a request early with a reply."""

    def __init__(self, code: int, error: str, **more: Any) -> None:
        super().__init__(error)
        self.reply = Reply(code, {"error": error, **more})


@dataclass(slots=True)
class Call:
    """A request to one of the logged routes, as far as it has been understood."""

    method: str
    path: str
    verb: str = "other"
    job: Job | None = None
    job_id: JobId | None = None
    token: str | None = None
    family: str | None = None
    spec: JobSpec | None = None
    filters: dict[str, Any] = field(default_factory=dict)
    wait: float = 0.0

    def only(self, verbs: Mapping[str, str]) -> None:
        """Take the verb that the method stands for on this path; 405 if it stands for none."""
        if self.method not in verbs:
            raise Refused(405, "method_not_allowed", message="allowed: " + ", ".join(verbs))
        self.verb = verbs[self.method]

    def known_job(self) -> Job:
        """Return the job that the path names; 404 if there is none or it was forgotten."""
        if self.job is None or self.job.forgotten:
            raise Refused(404, "not_found", message=f"no job {self.job_id!r} is known", id=self.job_id)
        return self.job


def guarded(make_reply: Callable[[], Reply]) -> Reply:
    """Make a reply of whatever happens, so that no request ends without one by accident."""
    try:
        return make_reply()
    except Invalid as invalid:
        return Reply(400, invalid.payload())
    except Refused as refused:
        return refused.reply
    except Stopping:
        return Reply(503, {"error": "stopping", "message": "the service is shutting down"})
    except Exception as error:
        traceback.print_exc()
        return Reply(500, {"error": "bug", "message": f"{type(error).__name__}: {error}"})


def spoiled_reply(fault: Fault) -> Reply | None:
    """Return what a fault answers in place of carrying a request out; None if it does carry it out."""
    if fault.kind not in _SPOILED:
        return None
    code, error = _SPOILED[fault.kind]
    headers = {}
    if fault.kind == "throttle":
        headers["Retry-After"] = str(math.ceil(1.0 if fault.seconds is None else fault.seconds))
    return Reply(code, {"error": error, "message": f"{error}, as {fault.id} asks"}, headers)


class Routes:
    """The logged routes over the service's state.

    Args:
        journal: The store.
        runner: The processes.
        credential_uses: Requests one credential is good for; None for no credentials at all.
    """

    def __init__(self, journal: Journal, runner: Runner, *, credential_uses: int | None = None) -> None:
        self._journal = journal
        self._runner = runner
        self._credentials = Credentials(credential_uses)

    def understand(
        self, call: Call, query: Mapping[str, str], body: bytes, authorization: str | None
    ) -> None:
        """Fill in the call, as far as it goes: what is known by then is logged though the request is refused.

        Args:
            call: The call to fill in.
            query: The query string's fields.
            body: The request's body.
            authorization: The header of that name.

        Raises:
            Refused: No such route, or no good credential.
            Invalid: A field that can't be accepted.
        """
        self._route(call)
        # Before the credential is looked at, so that the log names the token of an unauthorized submit too.
        self._read(call, query, body)
        error = None if call.verb == "credentials" else self._credentials.refusal(authorization)
        if error is not None:
            raise Refused(401, error, message="get a credential by POST /credentials")

    def carry_out(self, call: Call, seq: int, fault: Fault | None) -> Reply:
        """Do what an understood call asks.

        Args:
            call: The call.
            seq: Its number in the request log.
            fault: The fault it meets.

        Raises:
            Refused: The job is not known.
            Stopping: The service is shutting down.
        """
        if call.verb == "submit":
            return self._submit(call, seq)
        if call.verb == "find":
            return self._find(call)
        if call.verb == "credentials":
            return Reply(200, {"credential": self._credentials.issue()})
        if call.verb == "status":
            return self._status(call, fault)
        if call.verb == "cancel":
            return self._cancel(call, fault)
        return self._forget(call)

    def _route(self, call: Call) -> None:
        if call.path == "/jobs":
            call.only({"POST": "submit", "GET": "find"})
        elif call.path == "/credentials":
            call.only({"POST": "credentials"})
        elif match := _CANCEL_PATH.match(call.path):
            self._name_job(call, match[1])
            call.only({"POST": "cancel"})
        elif match := _JOB_PATH.match(call.path):
            self._name_job(call, match[1])
            call.only({"GET": "status", "DELETE": "forget"})
        else:
            raise Refused(404, "no_such_route", message=f"there is no {call.method} {call.path}")

    def _name_job(self, call: Call, text: str) -> None:
        call.job = self._journal.job_called(text)
        call.job_id = text
        if call.job is not None:
            call.job_id, call.token, call.family = call.job.id, call.job.spec.token, call.job.spec.family

    def _read(self, call: Call, query: Mapping[str, str], body: bytes) -> None:
        if call.verb == "submit":
            payload.known_fields(query, ())
            fields = payload.parse_object(body)
            call.token, call.family = (payload.storable(fields.get(name)) for name in ("token", "family"))
            call.spec = JobSpec.from_body(fields)
        elif call.verb == "find":
            call.token, call.family = query.get("token"), query.get("family")
            payload.known_fields(query, ("token", "family", "location", "since", "page_token"))
            call.filters = _find_filters(query)
        elif call.verb == "status":
            payload.known_fields(query, ("wait",))
            call.wait = payload.seconds("wait", query.get("wait", "0"), limit=WAIT_LIMIT)
        else:
            payload.known_fields(query, ())

    def _submit(self, call: Call, seq: int) -> Reply:
        assert call.spec is not None
        job, created = self._runner.submit(call.spec, seq)
        differences = ", ".join(() if created else job.spec.differences(call.spec))
        if differences:
            message = f"token {job.spec.token!r} is that of job {job.id!r}, which differs in: {differences}"
            return Reply(409, {"error": "token_conflict", "message": message, "job": job.public()})
        return Reply(201 if created else 200, {**job.public(), "created": created})

    def _status(self, call: Call, fault: Fault | None) -> Reply:
        job = call.known_job()
        if call.wait:
            self._journal.wait_until(lambda: _settled(self._journal.job(job.number)), call.wait)
            call.job = self._journal.job(job.number)
        body = call.known_job().public()
        if fault is not None and fault.kind == "unknown_status":
            body["status"] = fault.status
        elif fault is not None and fault.kind == "no_status":
            del body["status"]
        return Reply(200, body)

    def _find(self, call: Call) -> Reply:
        jobs = self._journal.find_jobs(**call.filters, limit=_PAGE + 1)
        next_page = f"before-{jobs[_PAGE - 1].number}" if len(jobs) > _PAGE else None
        return Reply(200, {"jobs": [job.public() for job in jobs[:_PAGE]], "next_page_token": next_page})

    def _cancel(self, call: Call, fault: Fault | None) -> Reply:
        number = call.known_job().number
        slow = fault if fault is not None and fault.kind == "slow_stop" else None
        accepted = self._runner.cancel(number, slow)
        job = self._journal.job(number)
        if accepted:
            return Reply(202, job.public())
        message = f"job {job.id!r} is {job.status} already"
        return Reply(409, {"error": "already_finished", "message": message, "job": job.public()})

    def _forget(self, call: Call) -> Reply:
        job = call.known_job()
        self._journal.forget(job.number)
        return Reply(200, {"forgotten": job.id})


def _settled(job: Job) -> bool:
    return job.forgotten or job.status.finished


def _find_filters(query: Mapping[str, str]) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    for name, value in query.items():
        if name == "token":
            filters[name] = payload.token(value)
        elif name == "since":
            filters[name] = payload.seconds(name, value)
        elif name == "page_token":
            match = _PAGE_TOKEN.match(value)
            if match is None:
                raise Invalid(name, value, "the next_page_token of an earlier reply")
            filters["below"] = int(match[1])
        else:
            filters[name] = payload.text(name, value)
    return filters
