# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A proxy before any HTTP service that spoils, delays or holds the requests a test chooses.

One thread of the test's process serves it, so a test talks to it by plain calls. Each request is passed on
over a connection of its own, so that each is looked at. It knows no service: what a 429 looks like is the
caller's to say (`Reply`), and so is which request is meant (`Match`).

    with HttpFaultProxy(port) as proxy:
        throttled = proxy.fail("throttle", path("GET", "/jobs/"), times=3)
        held = proxy.hold(path("POST", "/jobs"), when="answered")
        ...                      # the client talks to proxy.url
        held.wait()              # the service has the job, the client has no reply yet
        held.release()
        assert throttled.hits == 3

======================= ==================================================================================
fault                   what the client sees
======================= ==================================================================================
``error``               500, nothing passed on
``unavailable``         503, nothing passed on
``throttle``            429, nothing passed on
``denied``              403, nothing passed on
``unauthorized``        401, nothing passed on
``reset``               a TCP reset, nothing passed on
``lost_reply``          carried out in full, then a TCP reset instead of the reply
``truncated``           carried out in full, then half of the body and the end of the connection
``slow``                carried out in full, the reply comes after ``seconds``
======================= ==================================================================================

A `Reply` in place of a name is sent as it is, nothing passed on.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import struct
import threading
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Literal, Self

Match = Callable[["HttpRequest"], bool]
Kind = Literal[
    "error",
    "unavailable",
    "throttle",
    "denied",
    "unauthorized",
    "reset",
    "lost_reply",
    "truncated",
    "slow",
]

_STATUS = {"error": 500, "unavailable": 503, "throttle": 429, "denied": 403, "unauthorized": 401}
_CHUNK = 1 << 16
_GOODBYE = 0.2
"""Seconds to wait for the other side's TLS farewell: not all of them say one."""
_BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as the proxy got it.

    Attributes:
        method: The HTTP method.
        target: Path and query.
        headers: By lower-case name.
        body: The whole of it.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply in place of the service's.

    Attributes:
        status: HTTP status.
        body: JSON when it is no text.
        headers: Beyond content type and length.
    """

    status: int
    body: str | Mapping[str, object] = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """A request in the proxy's list.

    Attributes:
        at: When it came, seconds since the epoch.
        request: The request.
        spoiled: Name or status of the fault it met; None without.
    """

    at: float
    request: HttpRequest
    spoiled: str | None


Fault = Kind | Reply | Callable[[HttpRequest], Reply]


def path(method: str, pattern: str) -> Match:
    """Choose requests by method and a regular expression that is searched in path and query."""
    expression = re.compile(pattern)
    return lambda request: request.method == method and bool(expression.search(request.target))


class Spoiling:
    """Says how many requests a rule has met."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.hits = 0

    def wait(self, hits: int = 1, timeout: float = 30.0) -> None:
        """Wait until so many requests were met.

        Raises:
            TimeoutError: They weren't.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= hits, timeout):
                raise TimeoutError(f"{self.hits} instead of {hits} such requests within {timeout} s")

    def _hit(self) -> None:
        with self._changed:
            self.hits += 1
            self._changed.notify_all()


class Held:
    """A request that waits in the proxy, or whose reply does."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived = threading.Event()
        self._go = asyncio.Event()

    @property
    def arrived(self) -> bool:
        """Whether the request is there, or was."""
        return self._arrived.is_set()

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until the request is there.

        Raises:
            TimeoutError: It doesn't come.
        """
        if not self._arrived.wait(timeout):
            raise TimeoutError(f"no such request within {timeout} s")

    def release(self) -> None:
        """Let it go on."""
        self._loop.call_soon_threadsafe(self._go.set)

    async def _stay(self) -> None:
        self._arrived.set()
        await self._go.wait()


@dataclass(slots=True)
class _Rule:
    match: Match
    fault: Fault | None
    times: int
    after: int
    every: int | None
    seconds: float
    spoiling: Spoiling
    held: Held | None = None
    answered: bool = False
    met: int = 0

    def due(self, request: HttpRequest) -> bool:
        if (self.times and self.spoiling.hits >= self.times) or not self.match(request):
            return False
        self.met += 1
        if self.met <= self.after:
            return False
        return self.every is None or (self.met - self.after) % self.every == 0


class HttpFaultProxy:
    """Passes each request on unless a rule says otherwise.

    Args:
        port: Where the service listens, on 127.0.0.1.
        replies: What the named faults with a status look like; JSON with the status' phrase without.
        listen: For TLS towards the client.
        connect: For TLS towards the service.
    """

    def __init__(
        self,
        port: int,
        *,
        replies: Mapping[str, Fault] | None = None,
        listen: ssl.SSLContext | None = None,
        connect: ssl.SSLContext | None = None,
    ) -> None:
        self._upstream = port
        self._replies = dict(replies or {})
        self._connect = connect
        self._scheme = "https" if listen else "http"
        self._rules: list[_Rule] = []
        self._seen: list[Seen] = []
        self._lock = threading.Lock()
        # One thread for both ways of a connection: two may not use a TLS socket at once.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self._serving: set[asyncio.Task[None] | None] = set()
        start = asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=listen, ssl_shutdown_timeout=_GOODBYE if listen else None
        )
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result(30)
        self._closed = False

    def __enter__(self) -> Self:
        """Return the proxy, which listens already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Base URL for the client."""
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def seen(self) -> list[Seen]:
        """Every request so far, in order of arrival, spoiled or not."""
        with self._lock:
            return list(self._seen)

    def fail(
        self,
        fault: Fault,
        match: Match,
        *,
        times: int = 1,
        after: int = 0,
        every: int | None = None,
        seconds: float = 0.0,
    ) -> Spoiling:
        """Spoil the next requests of a kind; of several rules, the oldest that is due acts.

        Args:
            fault: See the module.
            match: Which requests.
            times: How many, 0 for all.
            after: Let so many through first.
            every: Spoil each so-many-th only, the first being number one.
            seconds: For ``slow``.
        """
        return self._add(_Rule(match, fault, times, after, every, seconds, Spoiling())).spoiling

    def hold(self, match: Match, *, when: Literal["arrived", "answered"] = "arrived", after: int = 0) -> Held:
        """Keep the next request of a kind, until it is released.

        Args:
            match: Which request.
            when: ``arrived``: before the service sees it; ``answered``: carried out, its reply waits.
            after: Let so many through first.
        """
        held = Held(self._loop)
        self._add(_Rule(match, None, 1, after, None, 0.0, Spoiling(), held, when == "answered"))
        return held

    def heal(self) -> None:
        """Spoil nothing more, and release what is held."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            if rule.held is not None:
                rule.held.release()

    def close(self) -> None:
        """Stop listening and break every connection; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _add(self, rule: _Rule) -> _Rule:
        with self._lock:
            self._rules.append(rule)
        return rule

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
                await self._handle(reader, writer)
        finally:
            self._serving.discard(task)
            _hang_up(writer)

    async def _handle(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        headers = _headers(head)
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        raw, body = await _body(reader, headers)
        request = HttpRequest(method, target, headers, body)
        rule = self._rule_for(request)
        if rule is not None and rule.held is not None and not rule.answered:
            await rule.held._stay()
            rule = None
        fault = rule.fault if rule is not None else None
        if isinstance(fault, str):
            fault = self._replies.get(fault, fault)
        if fault == "reset":
            _reset(writer)
            return
        if (reply := _reply(fault, request)) is not None:
            writer.write(_message(reply))
            await writer.drain()
            return
        await self._pass_on(_one_request(head) + raw, rule, reader, writer)

    async def _pass_on(
        self, message: bytes, rule: _Rule | None, reader: StreamReader, writer: StreamWriter
    ) -> None:
        tls = {"server_hostname": "127.0.0.1", "ssl_shutdown_timeout": _GOODBYE} if self._connect else {}
        from_server, to_server = await asyncio.open_connection(
            "127.0.0.1",
            self._upstream,
            ssl=self._connect,
            **tls,  # type: ignore[arg-type]
        )
        try:
            to_server.write(message)
            if rule is None:
                upward = asyncio.create_task(_copy(reader, to_server))
                await _copy(from_server, writer)
                upward.cancel()
                return
            if rule.fault == "lost_reply":
                # The first bytes say that the request has been served; a stream has no last ones.
                await from_server.read(_CHUNK)
                _reset(writer)
                return
            answer = await from_server.read(-1)
            if rule.held is not None:
                await rule.held._stay()
            elif rule.fault == "truncated":
                head, _, body = answer.partition(b"\r\n\r\n")
                answer = head + b"\r\n\r\n" + body[: len(body) // 2]
            else:
                await asyncio.sleep(rule.seconds)
            writer.write(answer)
            await writer.drain()
        finally:
            _hang_up(to_server)

    def _rule_for(self, request: HttpRequest) -> _Rule | None:
        with self._lock:
            found = next((rule for rule in self._rules if rule.due(request)), None)
            self._seen.append(Seen(time.time(), request, _name(found.fault) if found is not None else None))
            if found is not None:
                found.spoiling._hit()
        return found


def _reply(fault: Fault | None, request: HttpRequest) -> Reply | None:
    if isinstance(fault, Reply):
        return fault
    if isinstance(fault, str):
        status = _STATUS.get(fault)
        return Reply(status, {"error": HTTPStatus(status).phrase}) if status else None
    return fault(request) if fault is not None else None


def _name(fault: Fault | None) -> str | None:
    if fault is None or isinstance(fault, str):
        return fault
    return str(fault.status) if isinstance(fault, Reply) else fault.__name__


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _body(reader: StreamReader, headers: Mapping[str, str]) -> tuple[bytes, bytes]:
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return body, body
    raw, body = b"", b""
    while True:
        size = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
        raw, body = raw + size + chunk, body + chunk[:-2]
        if len(chunk) == 2:
            return raw, body


def _one_request(head: bytes) -> bytes:
    # One request a connection, so that each is looked at; an upgrade keeps the connection as it is.
    if re.search(rb"(?i)\r\nupgrade:", head):
        return head
    without = re.sub(rb"(?i)\r\n(connection|expect):[^\r]*", b"", head)
    return without.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)


def _message(reply: Reply) -> bytes:
    body = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **reply.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n{lines}\r\n".encode() + body


def _reset(writer: StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        # With a linger time of zero the kernel answers with RST instead of FIN.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _hang_up(writer: StreamWriter) -> None:
    # TLS may be saying goodbye already.
    with suppress(RuntimeError):
        writer.close()


async def _copy(source: StreamReader, target: StreamWriter) -> None:
    with suppress(*_BROKEN):
        while chunk := await source.read(_CHUNK):
            target.write(chunk)
            await target.drain()
