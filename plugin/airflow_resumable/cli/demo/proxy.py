# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A proxy before a Spark master that does on request what a gateway does on a bad day."""

from __future__ import annotations

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Literal, Self

import httpx

Spoil = Literal["unavailable", "lost_reply"]
_UNAVAILABLE: Final = b"<html><body><h1>503 Service Unavailable</h1></body></html>\n"


class SpoilingProxy:
    """Passes requests on to a master's REST gateway and to its web page, and spoils some of them.

    Args:
        rest_url: The gateway's base URL.
        page_url: The page's base URL.
        rpc_port: The master's port for drivers. A gateway puts it in place of its own port in what a driver
            is told, but doesn't know a proxy's.

    Attributes:
        rest_port: Where the gateway is to be found.
        page_port: Where the page is to be found.
        spoiled: When requests were spoiled, seconds since the epoch.
    """

    def __init__(self, rest_url: str, page_url: str, rpc_port: int) -> None:
        self.spoiled: list[float] = []
        self._rpc_port = rpc_port
        self._kind: Spoil | None = None
        self._left = 0
        self._lock = threading.Lock()
        self._servers = [_Server(self, url) for url in (rest_url, page_url)]
        self.rest_port, self.page_port = (server.server_address[1] for server in self._servers)
        self._threads = [
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            for server in self._servers
        ]

    def __enter__(self) -> Self:
        """Listen."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for thread in self._threads:
            thread.join()

    def spoil(self, kind: Spoil, times: int) -> None:
        """Spoil the next requests.

        Args:
            kind: ``unavailable`` answers GET requests with 503 and does not pass them on; ``lost_reply``
                passes POST requests on and hangs up without an answer.
            times: How many.
        """
        with self._lock:
            self._kind, self._left = kind, times

    def due(self, method: str) -> Spoil | None:
        """Return how a request is to be spoiled, counted as done, or None."""
        with self._lock:
            if not self._left or method != ("GET" if self._kind == "unavailable" else "POST"):
                return None
            self._left -= 1
            self.spoiled.append(time.time())
            return self._kind

    def as_if_direct(self, body: bytes) -> bytes:
        """Return a submit request's body with the master's own port in place of the proxy's."""
        return body.replace(f":{self.rest_port}".encode(), f":{self._rpc_port}".encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: SpoilingProxy, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy
        self.http = httpx.Client(base_url=target, timeout=30.0, trust_env=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless a client was killed in the middle of its request."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """Stop listening and drop the connections to the master."""
        super().server_close()
        self.http.close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy, spoil = self.server.proxy, self.server.proxy.due(self.command)
        try:
            if spoil == "unavailable":
                self._answer(503, "text/html", _UNAVAILABLE)
                return
            answer = self.server.http.request(
                self.command,
                self.path,
                content=proxy.as_if_direct(body),
                headers={"Content-Type": "application/json"},
            )
            if spoil == "lost_reply":
                self.close_connection = True
                return
            kind = answer.headers.get("Content-Type", "application/json")
            self._answer(answer.status_code, kind, answer.content)
        except (httpx.HTTPError, ConnectionError):
            # A master that was stopped, or a worker that was killed while it waited.
            self.close_connection = True

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _pass_on
