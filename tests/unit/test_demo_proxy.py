# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The proxy that spoils requests in the demo on Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from airflow_resumable.cli.demo.proxy import SpoilingProxy


class Target(ThreadingHTTPServer):
    """Answers with what it was asked, and remembers it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Echo)
        self.asked: list[tuple[str, str, bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Echo(BaseHTTPRequestHandler):
    server: Target

    def log_message(self, format: str, *args: Any) -> None: ...

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, body))
        self.send_response(404 if "missing" in self.path else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer


@pytest.fixture
def target() -> Iterator[Target]:
    """A server that stands for a master."""
    with Target() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(target: Target) -> Iterator[SpoilingProxy]:
    """A proxy before it; gateway and page are the same here."""
    with SpoilingProxy(target.url, target.url, rpc_port=7077) as running:
        yield running


def get(port: int, path: str = "/status/1") -> int:
    return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False).status_code


def test_requests_and_answers_pass_through(target: Target, proxy: SpoilingProxy) -> None:
    """The code and the body of an answer are the master's, on both ports."""
    assert get(proxy.rest_port) == 200
    assert get(proxy.page_port, "/missing?x=1") == 404
    assert target.asked == [("GET", "/status/1", b""), ("GET", "/missing?x=1", b"")]
    assert proxy.spoiled == []


def test_the_next_status_requests_are_answered_with_503(target: Target, proxy: SpoilingProxy) -> None:
    """As many as asked for, on the gateway's port and the page's together, and the master never sees them."""
    proxy.spoil("unavailable", 3)
    ports = (proxy.rest_port, proxy.page_port, proxy.rest_port, proxy.page_port)

    assert [get(port) for port in ports] == [503, 503, 503, 200]
    assert len(target.asked) == 1
    assert proxy.spoiled == sorted(proxy.spoiled)
    assert len(proxy.spoiled) == 3


def test_a_lost_reply_is_lost_after_the_request_was_carried_out(target: Target, proxy: SpoilingProxy) -> None:
    """The master got the submit, with its own port in it; its client hears nothing."""
    proxy.spoil("lost_reply", 1)
    url = f"http://127.0.0.1:{proxy.rest_port}/create"
    body = f"spark://127.0.0.1:{proxy.rest_port}"
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(url, content=body, trust_env=False)

    assert target.asked == [("POST", "/create", b"spark://127.0.0.1:7077")]
    assert httpx.post(url, content=b"again", trust_env=False).content == b"again"
