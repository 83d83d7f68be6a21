# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Checking what a caller sent: every refusal names the field, the value and what is allowed."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

_TOKEN = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_TEXT_LIMIT = 256


class Invalid(ValueError):
    """A request field that cannot be accepted; becomes a 400 reply."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}={value!r} is not accepted; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed

    def payload(self) -> dict[str, Any]:
        """Return the JSON body of the 400 reply."""
        return {
            "error": "invalid",
            "field": self.field,
            "value": self.value,
            "allowed": self.allowed,
            "message": str(self),
        }


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def parse_json(text: str | bytes) -> Any:
    """Parse strict JSON (no NaN, no Infinity); raises ``ValueError`` for anything else."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def parse_object(raw: bytes) -> dict[str, Any]:
    """Parse a request body that has to be a JSON object."""
    try:
        body = parse_json(raw)
    except ValueError as error:
        raise Invalid("body", raw[:200].decode("utf-8", "replace"), f"a JSON object ({error})") from None
    if not isinstance(body, dict):
        raise Invalid("body", body, "a JSON object")
    return body


def known_fields(given: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Refuse the first field that is not among ``allowed``."""
    for field, value in given.items():
        if field not in allowed:
            raise Invalid(field, value, "only the fields " + ", ".join(allowed) if allowed else "no field")


def text(field: str, value: Any, *, limit: int = _TEXT_LIMIT) -> str:
    """Check a text of at most ``limit`` characters that a process and a database can hold."""
    if not isinstance(value, str) or len(value) > limit or not _storable(value):
        raise Invalid(field, value, f"a text of at most {limit} characters, without NUL and lone surrogates")
    return value


def token(value: Any, field: str = "token") -> str:
    """Check an idempotency token: 1 to 64 letters, digits, dots, underscores, hyphens."""
    if not isinstance(value, str) or not _TOKEN.match(value):
        raise Invalid(field, value, "1 to 64 characters of A-Z a-z 0-9 . _ -")
    return value


def count(field: str, value: Any) -> int:
    """Check a whole number, 0 or more, given as a JSON number or in a query string."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15:
        return value
    raise Invalid(field, value, "a whole number, 0 or more")


def seconds(field: str, value: Any, *, limit: float = math.inf) -> float:
    """Check a number of seconds from 0 to ``limit``, given as a JSON number or in a query string."""
    number = math.nan
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    if not (math.isfinite(number) and 0 <= number <= limit):
        allowed = "seconds, 0 " + (f"to {limit:g}" if math.isfinite(limit) else "or more")
        raise Invalid(field, value, allowed)
    return number


def choice(field: str, value: Any, allowed: Collection[str]) -> str:
    """Check a value that has to be one of ``allowed``."""
    if not isinstance(value, str) or value not in allowed:
        raise Invalid(field, value, "one of " + ", ".join(allowed))
    return value


def storable(value: Any) -> str | None:
    """Return the value if it is a text that a process and a database can hold, else None."""
    return value if isinstance(value, str) and _storable(value) else None


def _storable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a caller asks to be run: the body of ``POST /jobs``."""

    command: tuple[str, ...]
    token: str | None = None
    family: str | None = None
    name: str | None = None
    location: str | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> JobSpec:
        """Check the body of a submit; raises ``Invalid`` for the first thing wrong with it."""
        known_fields(body, ("command", "token", "family", "name", "location"))
        command = body.get("command")
        texts = isinstance(command, list) and all(
            isinstance(part, str) and _storable(part) for part in command
        )
        if not command or not texts:
            raise Invalid("command", command, "a non-empty list of texts, without NUL and lone surrogates")
        optional = {
            field: text(field, body[field])
            for field in ("family", "name", "location")
            if body.get(field) is not None
        }
        given_token = body.get("token")
        return cls(tuple(command), None if given_token is None else token(given_token), **optional)

    def differences(self, other: JobSpec) -> list[str]:
        """Name the fields in which two submits differ."""
        fields = ("command", "family", "name", "location")
        return [field for field in fields if getattr(self, field) != getattr(other, field)]
