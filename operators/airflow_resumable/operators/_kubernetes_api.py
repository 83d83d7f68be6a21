# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The marks of a job in Kubernetes, and the few calls that the Kubernetes operators share.

Objects are told apart by their uid: a name is free again once its object is gone.
See https://kubernetes.io/docs/concepts/overview/working-with-objects/names/.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from kubernetes.client import ApiException, V1DeleteOptions, V1Preconditions

TOKEN_LABEL = "airflow-resumable/token"
FAMILY_LABEL = "airflow-resumable/family"

KILL_TIMEOUT = (1.0, 1.4)
"""Seconds to connect and to read for what a dying task asks."""
LOOK_TIMEOUT = (5.0, 20.0)
"""Seconds to connect and to read for any other question."""
PAGE = 500
"""Objects asked for at once."""

_LONGEST_NAME = 63


def name_with(base: str, token: str) -> str:
    """Return a name of at most 63 characters that ends with the token.

    Args:
        base: What it begins with, as far as there is room; made a DNS label.
        token: The idempotency token.
    """
    room = _LONGEST_NAME - len(token) - 1
    start = re.sub(r"[^a-z0-9-]+", "-", base.lower())[:room].strip("-")
    return f"{start}-{token}" if start else token


def labels_for(token: str, family: str) -> dict[str, str]:
    """Return the labels by which a job is found again."""
    return {TOKEN_LABEL: token, FAMILY_LABEL: family}


def is_status(error: BaseException, *codes: int) -> bool:
    """Say whether an error is the API server's answer with one of these HTTP statuses."""
    return isinstance(error, ApiException) and error.status in codes


def reason_of(error: ApiException) -> str:
    """Return the API server's own words."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)


def said_by_stream(error: Exception) -> Exception:
    """Return why a container could not be asked, where the client hides that.

    It tells of a stream that wasn't opened as of an answer without a status, fails itself at decoding the
    body that such an answer hasn't got, and catches even the exception by which a stop ends a task:
    https://github.com/kubernetes-client/python/blob/v36.0.3/kubernetes/base/stream/ws_client.py.

    Raises:
        BaseException: The task was being stopped.
    """
    cause: BaseException | None = error
    while cause is not None:
        if not isinstance(cause, Exception):
            raise cause
        if isinstance(cause, ApiException) and not cause.status:
            answered = re.search(r"Handshake status (\d+) (.*?)( -\+-\+-|$)", str(cause.reason))
            error = ConnectionError(str(cause.reason))
            if answered:
                error = ApiException(status=int(answered[1]), reason=answered[2])
        cause = cause.__context__
    return error


def delete_options(uid: str, **options: Any) -> V1DeleteOptions:
    """Return options with which exactly the object of this uid is deleted, or none: 409."""
    given = {name: value for name, value in options.items() if value is not None}
    return V1DeleteOptions(preconditions=V1Preconditions(uid=uid), **given)


def listed(call: Any, namespace: str, selector: str, since: datetime) -> list[Any]:
    """Return the objects that a list call finds, page by page, made at `since` or later.

    Raises:
        ApiException: It was refused, among others.
    """
    found: list[Any] = []
    more: dict[str, Any] = {}
    while True:
        page = call(
            namespace=namespace,
            label_selector=selector,
            limit=PAGE,
            _request_timeout=LOOK_TIMEOUT,
            **more,
        )
        found += [one for one in page.items if one.metadata.creation_timestamp >= since.astimezone(UTC)]
        if not getattr(page.metadata, "_continue", None):
            return found
        more = {"_continue": page.metadata._continue}


def server_time(headers: Any) -> datetime:
    """Return the API server's clock, from the ``Date`` header of an answer; this host's where it has none."""
    stamp = headers.get("Date") or headers.get("date") if headers else None
    return parsedate_to_datetime(stamp) if stamp else datetime.now(UTC)
