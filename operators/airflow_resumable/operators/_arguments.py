# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of operators' arguments: a wrong one is named with its value and with what to use instead."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def refusal(name: str, value: Any, use: str) -> str:
    """Return what is said of a wrong argument."""
    return f"{name}={value!r} is not allowed; use {use}"


def check_seconds(name: str, value: Any, *, zero: bool = False) -> None:
    """Refuse what isn't a number of seconds.

    Args:
        name: The argument.
        value: Its value.
        zero: Whether 0 is one.

    Raises:
        TypeError, ValueError: Naming the argument, the value and what is allowed.
    """
    said = refusal(name, value, "a number of seconds, " + ("0 or more" if zero else "more than 0"))
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(said)
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(said)


def check_whole(name: str, value: Any, least: int = 0) -> None:
    """Refuse what is neither None nor a whole number.

    Args:
        name: The argument.
        value: Its value.
        least: The smallest number that is allowed.

    Raises:
        TypeError, ValueError: Naming the argument, the value and what is allowed.
    """
    if value is None:
        return
    said = refusal(name, value, f"a whole number, {least} or more, or None")
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(said)
    if value < least:
        raise ValueError(said)


def is_yet_to_come(value: Any) -> bool:
    """Say whether the value of a template field is known only when the task runs."""
    # A template may be rendered to any object; what another task returns is asked for by `resolve`.
    return isinstance(value, str) or hasattr(value, "resolve")
