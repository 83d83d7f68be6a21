# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Faults: what the service does wrong on request.

A fault takes effect on requests of its verb that also match its ``job``, ``token`` and ``family``, where
given. It lets the first ``after`` matching requests through, then spoils ``times`` of them (0 = for ever).
One request meets at most one fault: the oldest that is due. Faults are in memory only: a restart ends them.
A request that is refused anyway (bad input, bad credential, no such route) meets no fault.

======================= =================================================================================
kind                    what the caller sees
======================= =================================================================================
``unavailable``         503, nothing carried out
``error``               500, nothing carried out
``throttle``            429 with ``Retry-After`` (``seconds``, default 1), nothing carried out
``unauthorized``        401, nothing carried out
``forbidden``           403, nothing carried out
``refuse_cancel``       403 on a cancel, nothing carried out
``reset``               a TCP reset, nothing carried out
``lost_reply``          carried out in full, then the connection is closed without a reply
``truncated``           carried out in full, then half of the JSON body and the end of the connection
``slow_reply``          carried out in full, the reply comes after ``seconds``
``hold``                carried out in full, the reply comes when the fault is deleted
``unknown_status``      a status reply with ``status`` in place of the real one
``no_status``           a status reply without its status field
``slow_stop``           an accepted cancel stays STOPPING, the job alive, for ``seconds``; then the SIGTERM
======================= =================================================================================

Deleting a fault also ends the waits of ``hold``, ``slow_reply`` and ``slow_stop`` that it began.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_resumable.testing.jobservice import payload
from airflow_resumable.testing.jobservice.payload import Invalid

VERBS = ("submit", "status", "find", "cancel", "forget", "credentials")
_ANY_VERB = (
    "unavailable",
    "error",
    "throttle",
    "lost_reply",
    "reset",
    "slow_reply",
    "truncated",
    "unauthorized",
    "forbidden",
    "hold",
)
_ONE_VERB = {
    "unknown_status": "status",
    "no_status": "status",
    "slow_stop": "cancel",
    "refuse_cancel": "cancel",
}
KINDS = (*_ANY_VERB, *_ONE_VERB)
_FILTERS = {
    "submit": ("token", "family"),
    "find": ("token", "family"),
    "credentials": (),
    "status": ("job", "token", "family"),
    "cancel": ("job", "token", "family"),
    "forget": ("job", "token", "family"),
}
_SECONDS_REQUIRED = ("slow_reply", "slow_stop")
_FIELDS = ("verb", "kind", "times", "after", "job", "token", "family", "seconds", "status")
_MAX_SECONDS = 86400.0


@dataclass(slots=True)
class Fault:
    """One fault; ``released`` is set once it is deleted."""

    id: str
    verb: str
    kind: str
    times: int = 1
    after: int = 0
    job: str | int | None = None
    token: str | None = None
    family: str | None = None
    seconds: float | None = None
    status: str | None = None
    hits: int = 0
    passed: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    def matches(self, verb: str, job: str | int | None, token: str | None, family: str | None) -> bool:
        """Tell whether a request is one this fault is about."""
        return (
            self.verb == verb
            and (self.job is None or str(self.job) == str(job))
            and (self.token is None or self.token == token)
            and (self.family is None or self.family == family)
        )

    def public(self) -> dict[str, Any]:
        """Return the fault as ``GET /faults`` shows it; ``hits`` counts the requests it spoiled."""
        return {name: getattr(self, name) for name in ("id", *_FIELDS, "hits")}


class Faults:
    """The faults now in force; every method is atomic under threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[str, Fault] = {}
        self._numbers = itertools.count(1)

    def add(self, body: Mapping[str, Any]) -> Fault:
        """Check the body of ``POST /faults`` and put the fault in force; raises ``Invalid``."""
        fields = _checked(body)
        with self._lock:
            fault = Fault(id=f"fault-{next(self._numbers):06d}", **fields)
            self._faults[fault.id] = fault
        return fault

    def take(self, verb: str, job: str | int | None, token: str | None, family: str | None) -> Fault | None:
        """Return the fault that this request meets, counted as used, or None."""
        due: Fault | None = None
        with self._lock:
            for fault in self._faults.values():
                if not fault.matches(verb, job, token, family):
                    continue
                if fault.passed < fault.after:
                    fault.passed += 1
                elif due is None and (fault.times == 0 or fault.hits < fault.times):
                    fault.hits += 1
                    due = fault
        return due

    def all(self) -> list[dict[str, Any]]:
        """List the faults, used-up ones included, oldest first."""
        with self._lock:
            return [fault.public() for fault in self._faults.values()]

    def delete(self, fault_id: str) -> bool:
        """Delete one fault and release what it holds; False if there is none of that id."""
        with self._lock:
            fault = self._faults.pop(fault_id, None)
        if fault is not None:
            fault.released.set()
        return fault is not None

    def clear(self) -> int:
        """Delete every fault and release what they hold; return how many there were."""
        with self._lock:
            gone = list(self._faults.values())
            self._faults.clear()
        for fault in gone:
            fault.released.set()
        return len(gone)


def _checked(body: Mapping[str, Any]) -> dict[str, Any]:
    payload.known_fields(body, _FIELDS)
    given = {name: value for name, value in body.items() if value is not None}
    verb = payload.choice("verb", given.get("verb"), VERBS)
    kind = payload.choice("kind", given.get("kind"), KINDS)
    if _ONE_VERB.get(kind, verb) != verb:
        raise Invalid("kind", kind, f"{kind} with verb={_ONE_VERB[kind]} only")
    fields: dict[str, Any] = {"verb": verb, "kind": kind}
    for name in ("times", "after"):
        if name in given:
            fields[name] = payload.count(name, given[name])
    for name in ("job", "token", "family"):
        if name in given:
            # A filter that no request of the verb carries would make a fault that silently never fires.
            if name not in _FILTERS[verb]:
                raise Invalid(name, given[name], f"no {name} with verb={verb}: its requests carry none")
            fields[name] = _filter(name, given[name])
    if "seconds" in given:
        if kind not in (*_SECONDS_REQUIRED, "throttle"):
            raise Invalid("seconds", given["seconds"], "no seconds with kind=" + kind)
        fields["seconds"] = payload.seconds("seconds", given["seconds"], limit=_MAX_SECONDS)
    elif kind in _SECONDS_REQUIRED:
        raise Invalid("seconds", None, f"seconds, 0 to {_MAX_SECONDS:g}, required with kind={kind}")
    if (kind == "unknown_status") != ("status" in given):
        raise Invalid("status", given.get("status"), "a text with kind=unknown_status, else none")
    if "status" in given:
        fields["status"] = payload.text("status", given["status"])
    return fields


def _filter(name: str, value: Any) -> str | int:
    if name == "job" and isinstance(value, int) and not isinstance(value, bool):
        return value
    return payload.token(value) if name == "token" else payload.text(name, value)
