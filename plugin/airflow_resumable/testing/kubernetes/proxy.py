# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of a test cluster's API server that spoils the requests a test chooses."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Fault = Literal["unavailable", "busy", "lost_reply", "denied", "unauthorized"]

_STATUS = {
    "busy": (429, "Too Many Requests", "TooManyRequests"),
    "unavailable": (503, "Service Unavailable", "ServiceUnavailable"),
    "denied": (403, "Forbidden", "Forbidden"),
    "unauthorized": (401, "Unauthorized", "Unauthorized"),
}
_CHUNK = 1 << 16
_GOODBYE = 0.2
"""Seconds to wait for the other side's farewell: not all of them say one."""
_BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)


@dataclass(slots=True)
class _Rule:
    fault: Fault | None
    method: str
    path: re.Pattern[str]
    left: int
    hit: int = 0
    held: Held | None = None


class Held:
    """A request that waits in the proxy.

    Args:
        loop: The proxy's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived = threading.Event()
        self._go = asyncio.Event()

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until the request is there.

        Raises:
            TimeoutError: It doesn't come.
        """
        if not self._arrived.wait(timeout):
            raise TimeoutError(f"no such request within {timeout} s")

    def release(self) -> None:
        """Let it go on to the API server."""
        self._loop.call_soon_threadsafe(self._go.set)

    async def _stay(self) -> None:
        self._arrived.set()
        await self._go.wait()


class FaultProxy:
    """Passes each request on, over a connection of its own, unless a rule says otherwise.

    Args:
        port: Where the API server listens.
        certificate: The API server's; the proxy shows the same.
        key: Its key.
    """

    def __init__(self, port: int, certificate: Path, key: Path) -> None:
        self._upstream = port
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self._to_server = ssl.create_default_context(cafile=str(certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # One thread for both ways of a connection: two may not use a TLS socket at once.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self._serving: set[asyncio.Task[None] | None] = set()
        start = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context, ssl_shutdown_timeout=_GOODBYE)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result(30)

    @property
    def url(self) -> str:
        """Base URL, for `KubernetesCluster.kubeconfig`."""
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

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
        rule = _Rule(fault, method, re.compile(path), times)
        with self._lock:
            self._rules.append(rule)
        return lambda: rule.hit

    def hold(self, method: str, path: str) -> Held:
        """Keep the next request of a kind from the API server until it is released.

        Args:
            method: As for `fail`.
            path: Likewise.
        """
        held = Held(self._loop)
        with self._lock:
            self._rules.append(_Rule(None, method, re.compile(path), 1, held=held))
        return held

    def heal(self) -> None:
        """Spoil nothing more, and release what is held."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            if rule.held is not None:
                rule.held.release()

    def close(self) -> None:
        """Stop listening and break every connection."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        own = asyncio.current_task()
        # A connection that is being accepted makes its task a moment later.
        while others := [task for task in asyncio.all_tasks() if task is not own]:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        # The loop itself holds a task weakly, and a client that hangs up lets go of this one.
        task = asyncio.current_task()
        self._serving.add(task)
        try:
            with suppress(*_BROKEN):
                await self._pass_on(reader, writer)
        finally:
            self._serving.discard(task)
            _hang_up(writer)

    async def _pass_on(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
        rule = self._rule_for(method, target)
        if rule is not None and rule.held is not None:
            await rule.held._stay()
            rule = None
        if rule is not None and rule.fault is not None and rule.fault != "lost_reply":
            writer.write(_answer(rule.fault))
            await writer.drain()
            return
        from_server, to_server = await asyncio.open_connection(
            "127.0.0.1",
            self._upstream,
            ssl=self._to_server,
            server_hostname="127.0.0.1",
            ssl_shutdown_timeout=_GOODBYE,
        )
        try:
            to_server.write(_one_request(head) + body)
            if rule is not None:
                # Until the server is done: the request has been served.
                await from_server.read(_CHUNK)
                return
            upward = asyncio.create_task(_copy(reader, to_server))
            await _copy(from_server, writer)
            upward.cancel()
        finally:
            _hang_up(to_server)

    def _rule_for(self, method: str, target: str) -> _Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.left > 0 and rule.method == method and rule.path.search(target):
                    rule.left -= 1
                    rule.hit += 1
                    return rule
        return None


def _one_request(head: bytes) -> bytes:
    # One request a connection, so that each is looked at; an upgrade keeps the connection as it is.
    if re.search(rb"(?i)\r\nupgrade:", head):
        return head
    without = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)
    return without.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)


def _answer(fault: str) -> bytes:
    code, phrase, reason = _STATUS[fault]
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"spoiled by a test: {phrase}",
        "reason": reason,
        "code": code,
    }
    body = json.dumps(status).encode()
    head = (
        f"HTTP/1.1 {code} {phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _hang_up(writer: StreamWriter) -> None:
    # TLS may be saying goodbye already.
    with suppress(RuntimeError):
        writer.close()


async def _copy(source: StreamReader, target: StreamWriter) -> None:
    with suppress(*_BROKEN):
        while chunk := await source.read(_CHUNK):
            target.write(chunk)
            await target.drain()
