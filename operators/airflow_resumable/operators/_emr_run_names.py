# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The token in the name of a job run: EMR Serverless lists runs with their names and without their tokens."""

from __future__ import annotations

from typing import Any

TOKEN_LENGTH = 33

_HEX = frozenset("0123456789abcdef")


def name_with(base: str, token: str, longest: int) -> str:
    """Return a run's name that ends with the token, and begins with as much of `base` as fits."""
    return f"{base[: longest - len(token) - 1]}-{token}"


def token_refused(what: str) -> str:
    """Return why a client token of the user's isn't taken."""
    return (
        f"{what} is not allowed: with a token of yours the service answers every later try, and every later "
        "run of the Dag, with the first job run, failed or not. Leave it out: the operator sends one that "
        "stays the same over a crash and is new after a failure and after a clear; durable=False sends yours"
    )


def is_token(text: Any) -> bool:
    """Say whether a text has the form of this package's tokens."""
    return isinstance(text, str) and len(text) == TOKEN_LENGTH and text[0] == "r" and set(text[1:]) <= _HEX


def token_at_the_end(name: Any) -> str | None:
    """Return the token with which a run's name ends, or None where it ends with none."""
    text = name if isinstance(name, str) else ""
    token = text[-TOKEN_LENGTH:]
    return token if text[:-TOKEN_LENGTH].endswith("-") and is_token(token) else None
