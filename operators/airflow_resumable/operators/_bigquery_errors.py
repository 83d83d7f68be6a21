# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What BigQuery's errors mean: which may go away, and what an answer 409 tells.

An error has an HTTP status and a reason, see https://cloud.google.com/bigquery/docs/error-messages. The
reason says more: `rateLimitExceeded` comes with 403, like a missing permission.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_resumable.operators._bigquery_jobs import Place

TRANSIENT = frozenset(
    {
        "backendError",
        "badGateway",
        "internalError",
        "jobBackendError",
        "jobInternalError",
        "jobRateLimitExceeded",
        "rateLimitExceeded",
        "tableUnavailable",
        "userRateLimitExceeded",
    }
)
"""Reasons for which a request may be sent again; a job that has *ended* for one of them has failed."""
QUOTA = frozenset({"jobRateLimitExceeded", "quotaExceeded", "rateLimitExceeded"})
"""Reasons of an end by which the job has hardly begun."""
PERMANENT = frozenset({"notImplemented"})

# A project of an organization has a colon in its name; neither a location nor an id has one, nor a dot.
_TAKEN = re.compile(r"Already Exists: Job (?P<project>\S+):(?P<location>[A-Za-z0-9-]+)\.(?P<id>[\w-]+)")


def reason_of(error: BaseException) -> str | None:
    """Return the reason that an answer of the API gives first, None where there is none."""
    errors: Any = getattr(error, "errors", None)
    try:
        reason = errors[0].get("reason")
    except (AttributeError, IndexError, KeyError, TypeError):
        return None
    return reason if isinstance(reason, str) else None


def is_transient(error: BaseException) -> bool | None:
    """Say whether asking again may help; None where neither reason nor kind of the error tells."""
    from google.api_core.exceptions import RetryError
    from google.auth import exceptions as auth
    from requests.exceptions import ChunkedEncodingError

    if isinstance(error, RetryError):
        # Google's own client has asked again and again; it does so for nothing else.
        return True
    reason = reason_of(error)
    if reason in PERMANENT:
        return False
    if reason in TRANSIENT:
        return True
    if isinstance(error, auth.TransportError | ChunkedEncodingError):
        return True
    if isinstance(error, auth.GoogleAuthError):
        return bool(getattr(error, "retryable", False))
    return None


def is_of_credentials(error: BaseException) -> bool:
    """Say whether Google gave no token for the keys that the connection has."""
    from google.auth.exceptions import RefreshError

    return isinstance(error, RefreshError)


def place_of(error: BaseException) -> Place | None:
    """Return where the job is that an answer 409 names, None where it names none."""
    from airflow_resumable.operators._bigquery_jobs import Place

    found = _TAKEN.search(str(error))
    return Place(found["project"], found["location"]) if found else None
