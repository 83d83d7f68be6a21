# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A proxy before a real Spark REST gateway, to make it answer as gateways do on a bad day."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import httpx

Answer = tuple[int, dict[str, Any]]
Change = Callable[[str, str, Answer], Answer | None]


class SparkProxy:
    """Passes requests on and lets a test change the answers.

    Args:
        target: Base URL of the real gateway.

    Attributes:
        change: Gets (method, path, (code, JSON)) of each answer and returns another, or None for the same;
            a ConnectionError that it raises hangs up without an answer.
        requests: The (method, path) pairs in order of arrival.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.change: Change = lambda method, path, answer: None
        self.requests: list[tuple[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Handler,), {"proxy": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    proxy: SparkProxy

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: `SparkProxy.requests` tells all."""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.proxy.requests.append((self.command, self.path))
        # The master tells drivers its RPC port where it sees its REST port, and can't know the proxy's.
        gateway = f":{self.proxy.target.rpartition(':')[2]}"
        body = body.replace(f":{self.proxy.port}".encode(), gateway.encode())
        headers = {"Content-Type": "application/json"}
        url = self.proxy.target + self.path
        answer = httpx.request(self.command, url, content=body, headers=headers, trust_env=False)
        original = (answer.status_code, answer.json())
        try:
            code, value = self.proxy.change(self.command, self.path, original) or original
            data = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            # Hung up, by the test or by a client that was killed.
            self.close_connection = True

    do_GET = do_POST = _pass_on
