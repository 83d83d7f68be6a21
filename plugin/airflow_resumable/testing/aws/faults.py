# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What AWS replies when it is busy, broken or doesn't let the caller in.

Codes and statuses by the list of errors that all actions share
(https://docs.aws.amazon.com/emr/latest/APIReference/CommonErrors.html), and by what botocore tries again
(botocore/retries/standard.py and data/_retry.json).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from airflow_resumable.testing.aws import requests
from airflow_resumable.testing.aws.errors import AwsError
from airflow_resumable.testing.http_faults import Fault, HttpRequest, Match, Reply

AwsFault = Literal[
    "throttle",
    "too_many",
    "error",
    "unavailable",
    "denied",
    "unauthorized",
    "expired_token",
    "reset",
    "lost_reply",
    "truncated",
    "slow",
]


def _reply(code: str, message: str, status: int) -> Reply:
    error = AwsError(code, message, status)
    return Reply(status, error.body, error.headers)


def _server_error(request: HttpRequest) -> Reply:
    # EMR's model has the one name for some actions and the other for the rest.
    call = requests.decode(request.method, request.target, request.headers, request.body)
    older = call is not None and call.action in ("AddJobFlowSteps", "CancelSteps", "TerminateJobFlows")
    code = "InternalServerError" if older else "InternalServerException"
    return _reply(code, "An internal error occurred.", 500)


REPLIES: dict[str, Fault] = {
    "throttle": _reply("ThrottlingException", "Rate exceeded", 400),
    "too_many": _reply("TooManyRequestsException", "Too Many Requests", 429),
    "error": _server_error,
    "unavailable": _reply("ServiceUnavailable", "The request has failed due to a temporary failure", 503),
    "denied": _reply("AccessDeniedException", "User is not authorized to perform this action", 403),
    "unauthorized": _reply(
        "UnrecognizedClientException", "The security token included in the request is invalid.", 403
    ),
    "expired_token": _reply(
        "ExpiredTokenException", "The security token included in the request is expired", 403
    ),
}


def action(
    name: str,
    service: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    access_key: str | None = None,
) -> Match:
    """Choose the requests of one action.

    Args:
        name: Like ``StartJobRun``; ``*`` for every action.
        service: The boto3 client's name; None for whichever has the action.
        parameters: What the request must say.
        access_key: The access key that must have signed it.
    """

    def is_meant(request: HttpRequest) -> bool:
        call = requests.decode(request.method, request.target, request.headers, request.body)
        return (
            call is not None
            and name in ("*", call.action)
            and service in (None, call.service)
            and (not access_key or f"Credential={access_key}/" in request.headers.get("authorization", ""))
            and all(call.parameters.get(key) == value for key, value in (parameters or {}).items())
        )

    return is_meant
