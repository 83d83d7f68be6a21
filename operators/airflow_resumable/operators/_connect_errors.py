# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a Spark Connect server's refusals mean.

A server answers with a gRPC status and, for errors of its own, with an error class in brackets at the
beginning of the text. See https://spark.apache.org/docs/latest/sql-error-conditions.html
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

# Without types, as a type checker sees it by itself or through pyspark.
grpc: Any = import_module("grpc")

GONE = frozenset(
    {
        "INVALID_HANDLE.SESSION_NOT_FOUND",
        "INVALID_HANDLE.SESSION_CLOSED",
        "INVALID_HANDLE.SESSION_CHANGED",
        "INVALID_HANDLE.OPERATION_NOT_FOUND",
        "INVALID_HANDLE.OPERATION_ABANDONED",
    }
)
"""The server has no such operation, or none any more."""

TAKEN = frozenset(
    {
        "INVALID_HANDLE.OPERATION_ALREADY_EXISTS",
        "INVALID_HANDLE.OPERATION_ABANDONED",
        "INVALID_HANDLE.SESSION_CLOSED",
    }
)
"""An operation with this id was started before; it won't be started again."""

DETACHED = "INVALID_CURSOR.DISCONNECTED"
"""Somebody else is reading the same operation now."""

BUFFER_EXCEEDED = "INVALID_CURSOR.POSITION_NOT_AVAILABLE"
NOT_REATTACHABLE = "INVALID_CURSOR.NOT_REATTACHABLE"
CANCELED = "OPERATION_CANCELED"

_CLASS = re.compile(r"\s*\[([A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
    }
)
_REFUSED = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})


def code(error: BaseException) -> grpc.StatusCode | None:
    """Return the gRPC status of an error of a call, None of any other error."""
    return error.code() if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call) else None


def text(error: BaseException) -> str:
    """Return what the server said."""
    said = error.details() if isinstance(error, grpc.Call) else None
    return said or str(error)


def error_class(error: BaseException) -> str | None:
    """Return the error class that the server named, such as ``DIVIDE_BY_ZERO``; None where it named none."""
    found = _CLASS.match(text(error))
    return found[1] if found else None


def is_sparks_own(error: BaseException) -> bool:
    """Say whether the server itself tells of a failure; a broken stream is an INTERNAL of gRPC's too.

    Not every failure has an error class, but the server sends details along with each; a gateway may drop
    these.
    """
    sent = error.trailing_metadata() if isinstance(error, grpc.Call) else None
    detailed = any(key == "grpc-status-details-bin" for key, _ in sent or ())
    return detailed or error_class(error) is not None


def is_transient(error: BaseException) -> bool:
    """Say whether asking again may help: no connection, a deadline, a broken stream, another reader."""
    status = code(error)
    if status in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN) and not is_sparks_own(error):
        return True
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # gRPC itself says so of a message that is larger than the client takes, each time anew.
        return "larger than max" not in text(error)
    return status in _TRANSIENT or (status is not None and error_class(error) == DETACHED)


def is_refusal(error: BaseException) -> bool:
    """Say whether the server, or a gateway in front of it, did not let this user in."""
    return code(error) in _REFUSED
