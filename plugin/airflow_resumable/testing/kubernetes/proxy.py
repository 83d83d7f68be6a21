# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of a test cluster's API server that spoils the requests a test chooses."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Literal

from airflow_resumable.testing import http_faults
from airflow_resumable.testing.http_faults import Held, HttpFaultProxy

Fault = Literal["unavailable", "busy", "lost_reply", "denied", "unauthorized"]

_STATUS = {
    "busy": (429, "TooManyRequests"),
    "unavailable": (503, "ServiceUnavailable"),
    "denied": (403, "Forbidden"),
    "unauthorized": (401, "Unauthorized"),
}


class FaultProxy:
    """Passes each request on, over a connection of its own, unless a rule says otherwise.

    Args:
        port: Where the API server listens.
        certificate: The API server's; the proxy shows the same.
        key: Its key.
    """

    def __init__(self, port: int, certificate: Path, key: Path) -> None:
        listen = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        listen.load_cert_chain(certificate, key)
        connect = ssl.create_default_context(cafile=str(certificate))
        self._proxy = HttpFaultProxy(port, listen=listen, connect=connect)

    @property
    def url(self) -> str:
        """Base URL, for `KubernetesCluster.kubeconfig`."""
        return self._proxy.url

    def fail(self, fault: Fault, method: str, path: str, times: int = 1) -> Callable[[], int]:
        """Spoil the next requests of a kind.

        Args:
            fault: ``unavailable`` (503), ``busy`` (429), ``denied`` (403), ``unauthorized`` (401): nothing
                is passed on;
                ``lost_reply``: it is, and the connection breaks before the answer.
            method: The HTTP method.
            path: A regular expression that is searched in path and query.
            times: How many requests.

        Returns:
            Asks how many were spoiled so far.
        """
        match = http_faults.path(method, path)
        reply: http_faults.Fault = "lost_reply" if fault == "lost_reply" else _status(*_STATUS[fault])
        spoiling = self._proxy.fail(reply, match, times=times)
        return lambda: spoiling.hits

    def hold(self, method: str, path: str) -> Held:
        """Keep the next request of a kind from the API server until it is released.

        Args:
            method: As for `fail`.
            path: Likewise.
        """
        return self._proxy.hold(http_faults.path(method, path))

    def heal(self) -> None:
        """Spoil nothing more, and release what is held."""
        self._proxy.heal()

    def close(self) -> None:
        """Stop listening and break every connection."""
        self._proxy.close()


def _status(code: int, reason: str) -> http_faults.Reply:
    """Return a refusal as the API server says it, a Status object."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"spoiled by a test: {HTTPStatus(code).phrase}",
        "reason": reason,
        "code": code,
    }
    return http_faults.Reply(code, body)
