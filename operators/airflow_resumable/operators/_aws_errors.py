# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What an error of botocore means for the protocol: ask again, fetch credentials, or give up.

Codes and classes are those of https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html and
of each service's common errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_resumable.jobs.transient import is_transient as is_transient_anywhere
from airflow_resumable.jobs.transient import was_refused

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
_THROTTLED = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionInProgressException",
    }
)
_TRANSIENT = frozenset({"IDPCommunicationError", "RequestTimeout", "RequestTimeoutException"})
# By name, so that classifying an error imports nothing.
_TRANSIENT_KINDS = frozenset(
    {"CredentialRetrievalError", "MetadataRetrievalError", "ResponseParserError", "ResponseStreamingError"}
)
_NEVER_SENT = frozenset({"ConnectTimeoutError", "EndpointConnectionError", "ProxyConnectionError"})


class AnswerCutOff(ConnectionError):
    """An answer lacks what the service always sends: botocore reads JSON that was cut off as an empty one."""


def code_of(error: BaseException) -> str:
    """Return the service's own word for an error, like ``ThrottlingException``, or an empty text."""
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return code if isinstance(code, str) else ""


def message_of(error: BaseException) -> str:
    """Return the service's own message, or the error's text."""
    response = getattr(error, "response", None)
    told = response.get("Error", {}).get("Message") if isinstance(response, dict) else None
    return str(told or error)


def is_expired(error: BaseException) -> bool:
    """Say whether the credentials were good once, and have expired."""
    return code_of(error) in _EXPIRED


def is_transient(error: BaseException) -> bool:
    """Say whether asking again may help: no connection, a time-out, throttling, a 5xx, a cut-off answer."""
    if code_of(error) in _THROTTLED | _TRANSIENT:
        return True
    kind = type(error)
    if kind.__module__.startswith("botocore") and kind.__name__ in _TRANSIENT_KINDS:
        return True
    return is_transient_anywhere(error)


def was_not_taken(error: BaseException) -> bool:
    """Say whether an error proves that the service did nothing, so that a submit may be sent again."""
    return (
        code_of(error) in _THROTTLED | _EXPIRED or type(error).__name__ in _NEVER_SENT or was_refused(error)
    )


def part_of(answer: Mapping[str, Any], name: str) -> Any:
    """Return one part of an answer.

    Raises:
        AnswerCutOff: The service always sends it, and it isn't there.
    """
    if name not in answer:
        raise AnswerCutOff(f"the answer has no {name!r}, only {sorted(answer)}: it was cut off on its way")
    return answer[name]
