# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The fault proxy, before a plain HTTP server."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_resumable.testing.http_faults import HttpFaultProxy, Reply, path

_BODY = json.dumps({"id": "x" * 200}).encode()


class Server(ThreadingHTTPServer):
    """Answers everything alike and keeps what it got."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, str, bytes]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.got.append((self.command, self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", str(len(_BODY)))
        self.end_headers()
        self.wfile.write(_BODY)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: Server) -> Iterator[HttpFaultProxy]:
    with HttpFaultProxy(server.server_port) as running:
        yield running


def ask(
    proxy: HttpFaultProxy, method: str = "GET", target: str = "/jobs/1", body: Any = None, **options: Any
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    try:
        connection.request(method, target, body, **options)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def test_requests_pass_through_with_body_and_reply(proxy: HttpFaultProxy, server: Server) -> None:
    """Without a rule nothing is changed, and the request is in the list."""
    assert ask(proxy, "POST", "/jobs?x=1", b"submit") == (200, _BODY)
    assert server.got == [("POST", "/jobs?x=1", b"submit")]
    [seen] = proxy.seen
    assert (seen.request.method, seen.request.body, seen.spoiled) == ("POST", b"submit", None)


def test_chunked_request_is_read_whole(proxy: HttpFaultProxy) -> None:
    """A body in chunks is told apart from its framing."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    proxy.fail("error", path("POST", "/jobs"))
    connection.request("POST", "/jobs", iter([b"sub", b"mit"]), encode_chunked=True)
    assert connection.getresponse().status == 500
    connection.close()
    assert proxy.seen[0].request.body == b"submit"


@pytest.mark.parametrize(
    ("fault", "status"),
    [("error", 500), ("unavailable", 503), ("throttle", 429), ("denied", 403), ("unauthorized", 401)],
)
def test_refusals_have_their_status_and_reach_no_server(
    proxy: HttpFaultProxy, server: Server, fault: Any, status: int
) -> None:
    """A refused request isn't passed on; the next one is."""
    spoiled = proxy.fail(fault, path("GET", "/jobs/"))
    assert ask(proxy)[0] == status
    assert server.got == []
    assert ask(proxy)[0] == 200
    assert spoiled.hits == 1
    assert [seen.spoiled for seen in proxy.seen] == [fault, None]


def test_named_fault_looks_as_the_caller_says(server: Server) -> None:
    """A service's own body replaces the plain one."""
    replies = {"throttle": Reply(403, {"error": "rateLimitExceeded"}, {"Retry-After": "1"})}
    with HttpFaultProxy(server.server_port, replies=replies) as proxy:
        proxy.fail("throttle", path("GET", "/"))
        assert ask(proxy) == (403, b'{"error": "rateLimitExceeded"}')


def test_reset_reaches_no_server(proxy: HttpFaultProxy, server: Server) -> None:
    """A reset breaks the connection before anything is done."""
    proxy.fail("reset", path("GET", "/"))
    with pytest.raises(ConnectionResetError):
        ask(proxy)
    assert server.got == []


def test_lost_reply_is_carried_out(proxy: HttpFaultProxy, server: Server) -> None:
    """The server has done the work, the client doesn't know."""
    proxy.fail("lost_reply", path("POST", "/jobs"))
    with pytest.raises(ConnectionResetError):
        ask(proxy, "POST", "/jobs")
    assert len(server.got) == 1


def test_truncated_reply_ends_in_the_middle(proxy: HttpFaultProxy) -> None:
    """The client gets half of the body it was promised."""
    proxy.fail("truncated", path("GET", "/"))
    with pytest.raises(http.client.IncompleteRead) as torn:
        ask(proxy)
    assert torn.value.partial == _BODY[: len(_BODY) // 2]


def test_after_and_every_choose_which_requests_are_spoiled(proxy: HttpFaultProxy) -> None:
    """One passes, then each third is spoiled, for ever."""
    proxy.fail("unavailable", path("GET", "/"), times=0, after=1, every=3)
    assert [ask(proxy)[0] for _ in range(8)] == [200, 200, 200, 503, 200, 200, 503, 200]


def test_held_request_waits_before_or_after_the_server(proxy: HttpFaultProxy, server: Server) -> None:
    """The gate stands on either side of the server, for the chosen request only."""
    with ThreadPoolExecutor() as pool:
        before = proxy.hold(path("POST", "/jobs"))
        asked = pool.submit(ask, proxy, "POST", "/jobs")
        before.wait()
        assert server.got == []
        assert ask(proxy)[0] == 200
        before.release()
        assert asked.result(30)[0] == 200

        after = proxy.hold(path("POST", "/jobs"), when="answered")
        asked = pool.submit(ask, proxy, "POST", "/jobs")
        after.wait()
        assert [method for method, _, _ in server.got] == ["GET", "POST", "POST"]
        assert not asked.done()
        proxy.heal()
        assert asked.result(30)[0] == 200


def test_closing_breaks_what_is_held(server: Server) -> None:
    """No client waits on after the proxy is gone."""
    with ThreadPoolExecutor() as pool:
        with HttpFaultProxy(server.server_port) as proxy:
            held = proxy.hold(path("GET", "/"))
            asked = pool.submit(ask, proxy)
            held.wait()
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            asked.result(30)
