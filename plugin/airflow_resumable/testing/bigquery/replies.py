# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Errors as BigQuery's REST API answers them, for the proxy before the emulator.

See https://cloud.google.com/bigquery/docs/error-messages.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_resumable.testing.http_faults import Reply


def answer(code: int, reason: str, message: str = "spoiled by a test") -> Reply:
    """Return an error.

    Args:
        code: HTTP status.
        reason: BigQuery's.
        message: What is said.
    """
    one = {"reason": reason, "message": message, "domain": "global"}
    return Reply(code, {"error": {"code": code, "message": message, "errors": [one]}})


REPLIES: Mapping[str, Reply] = {
    "error": answer(500, "internalError"),
    "unavailable": answer(503, "backendError"),
    "throttle": answer(403, "rateLimitExceeded"),
    "denied": answer(403, "accessDenied"),
    "unauthorized": answer(401, "authError"),
}
"""What the proxy's named faults look like."""
