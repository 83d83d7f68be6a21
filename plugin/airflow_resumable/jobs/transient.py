# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Which errors may go away by themselves, and how long to go on asking."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

_log = logging.getLogger(__name__)

_THROTTLED = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "InternalServerException",
        "InternalServerError",
        "InternalFailure",
        "SlowDown",
        "PriorRequestNotComplete",
    }
)
"""Error codes that the AWS SDKs call throttling or transient (botocore's retry documentation)."""

_NETWORK_MODULES = ("httpx", "httpcore", "requests", "urllib3", "botocore", "http.client", "aiohttp")


def status_code(error: BaseException) -> int | None:
    """Return the HTTP status that an error of any common client carries, or None."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        value = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return value if isinstance(value, int) else None
    for holder, names in ((response, ("status_code", "status")), (error, ("status_code", "status", "code"))):
        for name in names:
            value = getattr(holder, name, None)
            if isinstance(value, int) and 100 <= value < 600:
                return int(value)
    return None


def is_transient(error: BaseException) -> bool:
    """Say whether asking again may help: connection, time-out, 429, 5xx, throttling, cut-off JSON."""
    if _is_airflows_own(error):
        return False
    error = _unwrapped(error)
    code = status_code(error)
    response = getattr(error, "response", None)
    if isinstance(response, dict) and response.get("Error", {}).get("Code") in _THROTTLED:
        return True
    if code is not None:
        return code in (408, 425, 429) or code >= 500
    if isinstance(error, ConnectionError | TimeoutError | json.JSONDecodeError):
        return True
    if isinstance(error, OSError) and type(error).__module__ in ("socket", "ssl"):
        return True
    # The clients' transport errors don't share a base class; their modules and names are stable.
    kind = type(error)
    return kind.__module__.startswith(_NETWORK_MODULES) and any(
        word in kind.__name__
        for word in (
            "Timeout",
            "Connect",
            "Connection",
            "Protocol",
            "Network",
            "Read",
            "Incomplete",
            "Disconnected",
            "Decoding",
            "Resolution",
        )
    )


def _unwrapped(error: BaseException) -> BaseException:
    # urllib3 tells so that it has asked several times in vain, as the Kubernetes client lets it.
    reason = getattr(error, "reason", None)
    return reason if type(error).__name__ == "MaxRetryError" and isinstance(reason, Exception) else error


def _is_airflows_own(error: BaseException) -> bool:
    # AirflowException has a class attribute status_code = 500, which is what Airflow's own API would
    # answer, and says nothing about the service.
    return any(
        kind.__name__ == "AirflowException" and kind.__module__.startswith("airflow.")
        for kind in type(error).__mro__
    )


def was_refused(error: BaseException) -> bool:
    """Say whether an error proves that the service did not take the request: 429, or no connection at all."""
    return (not _is_airflows_own(error) and status_code(error) == 429) or type(error).__name__ in (
        "ConnectError",
        "ConnectTimeout",
        "ConnectionRefusedError",
        "NewConnectionError",
        "EndpointConnectionError",
    )


def patiently(
    what: str,
    call: Callable[[], Any],
    *,
    budget: float,
    may_retry: Callable[[BaseException], bool] = is_transient,
    longest_wait: float = 30.0,
) -> Any:
    """Call until it answers, with exponential backoff and jitter, for at most `budget` seconds.

    Args:
        what: What is called, for the log.
        call: A function of no arguments.
        budget: Seconds; the last error is raised when they are used up.
        may_retry: Which errors are worth another call; any other is raised at once.
        longest_wait: Seconds between two calls, at most.
    """
    return Retrying(retry=retry_if_exception(may_retry), **_persistence(what, budget, longest_wait))(call)


class WorthAsking(Exception):
    """Wraps an error that is worth another call; what it wraps goes into the log.

    Args:
        error: The error.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


async def apatiently(
    what: str, call: Callable[[], Awaitable[Any]], *, budget: float, longest_wait: float = 30.0
) -> Any:
    """Do what `patiently` does in an event loop; only a `WorthAsking` error is worth another call."""
    again = retry_if_exception_type(WorthAsking)
    return await AsyncRetrying(retry=again, **_persistence(what, budget, longest_wait))(call)


def _persistence(what: str, budget: float, longest_wait: float) -> dict[str, Any]:
    def say(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        error = error.error if isinstance(error, WorthAsking) else error
        _log.warning(
            "%s: %s: %s; asking again in %.1f s (%.0f of %.0f s used)",
            what,
            type(error).__name__,
            error,
            state.next_action.sleep if state.next_action else 0.0,
            state.seconds_since_start or 0.0,
            budget,
        )

    return {
        "stop": stop_after_delay(budget),
        "wait": wait_random_exponential(multiplier=0.5, max=longest_wait),
        "before_sleep": say,
        "reraise": True,
    }
