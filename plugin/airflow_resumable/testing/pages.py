# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A small HTTP API with pages and items, for Dags that save a checkpoint; its request log is the oracle.

    with PagesServer(rows=95, short_at=[20], fail_at=[39]) as server:
        server.hold(rows_from=49)
        ...  # start whatever loads server.url
        server.wait_held()  # it is exactly there now, and stays there until release()
        assert [request["offset"] for request in server.log()] == [0, 10, 20, 29, 39, 39, 49]

By hand: ``python -m airflow_resumable.testing.pages --port 8766``. The API:

``GET /rows?offset=&limit=``
    ``{"rows": [{"id", "name", "amount"}, ...], "next": OFFSET or null}``; null after the last row.
``GET /items/{n}``
    One such row.
``GET /log``
    Every request for rows and items in order of arrival; ``status`` is null while nothing was answered.
``POST /hold``, ``GET /hold?count=&wait=``, ``DELETE /hold``
    Hold back replies, wait until so many are held, let them go.
"""

from __future__ import annotations

import argparse
import json
import math
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

_FAULTS = {
    "short": "has one row fewer than asked for",
    "empty": "is empty once, though it says that there is more",
    "fail": "answers 500 once",
    "throttle": "answers 429 once, with Retry-After",
}
_SOURCE_ROOT = str(Path(__file__).parents[2])
_START = (
    "import sys; sys.path.append(sys.argv.pop(1)); from airflow_resumable.testing import pages; pages.main()"
)


class PagesError(RuntimeError):
    """The server did not start; the message says what it said."""


class _Refused(Exception):
    """A request that can't be answered: the status and the message of the reply."""


@dataclass
class _Request:
    seq: int
    offset: int | None = None
    limit: int | None = None
    item: int | None = None
    held: bool = False
    status: int | None = None


@dataclass(frozen=True)
class _Hold:
    rows_from: float = math.inf
    items_from: float = math.inf
    items: tuple[int, ...] = ()

    def concerns(self, request: _Request) -> bool:
        if request.item is not None:
            return request.item in self.items or request.item >= self.items_from
        return request.offset is not None and request.offset >= self.rows_from


class _Api:
    """The data, the faults that are left, the log and the hold; shared by the request threads."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rows: int = options.rows
        self.delay: float = options.delay
        self.short: frozenset[int] = frozenset(options.short_at)
        self._faults: dict[int, list[str]] = {}
        for fault in ("fail", "throttle", "empty"):
            for offset in getattr(options, f"{fault}_at"):
                self._faults.setdefault(offset, []).append(fault)
        self._requests: list[_Request] = []
        self._hold = _Hold()
        self._releases = 0
        self._changed = threading.Condition()

    def arrive(self, **what: Any) -> _Request:
        """Log a request and return when it may be answered."""
        with self._changed:
            request = _Request(len(self._requests) + 1, **what)
            self._requests.append(request)
            if self._hold.concerns(request):
                request.held, releases = True, self._releases
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._releases > releases)
                request.held = False
        # Replies come back in another order than the requests, the same one in each run.
        time.sleep(self.delay * ((request.item or request.offset or 0) * 5 % 7) / 6)
        return request

    def next_fault(self, offset: int) -> str | None:
        """Return the next fault of the page at `offset`; each happens once."""
        with self._changed:
            left = self._faults.get(offset)
            return left.pop(0) if left else None

    def log(self) -> list[dict[str, Any]]:
        with self._changed:
            return [asdict(request) for request in self._requests]

    def hold(self, hold: _Hold) -> None:
        with self._changed:
            self._hold = hold

    def held(self, count: int, wait: float) -> list[int]:
        def numbers() -> list[int]:
            return [request.seq for request in self._requests if request.held]

        with self._changed:
            self._changed.wait_for(lambda: len(numbers()) >= count, wait)
            return numbers()

    def release(self) -> None:
        with self._changed:
            self._hold = _Hold()
            self._releases += 1
            self._changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one segment: Nagle's algorithm would add 40 ms to each reply
    api: _Api

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing on standard error: ``GET /log`` tells all."""

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            match self.command, parts.path.strip("/").split("/"):
                case "GET", ["rows"]:
                    self._rows(_number(query, "offset", 0), _number(query, "limit", 10, lowest=1))
                case "GET", ["items", number]:
                    self._item(_number({"n": number}, "n", 0))
                case "GET", ["log"]:
                    self._reply(200, {"requests": self.api.log()})
                case "POST", ["hold"]:
                    self.api.hold(_hold(body))
                    self._reply(200, {})
                case "GET", ["hold"]:
                    held = self.api.held(_number(query, "count", 0), _number(query, "wait", 0))
                    self._reply(200, {"held": held})
                case "DELETE", ["hold"]:
                    self.api.release()
                    self._reply(200, {})
                case _:
                    raise _Refused(404, f"there is no {self.command} {parts.path}")
        except _Refused as refused:
            status, message = refused.args
            self._reply(status, {"message": message})

    do_GET = do_POST = do_DELETE = _serve

    def _rows(self, offset: int, limit: int) -> None:
        request = self.api.arrive(offset=offset, limit=limit)
        fault = self.api.next_fault(offset)
        if fault == "fail":
            return self._reply(500, {"message": "internal error"}, request)
        if fault == "throttle":
            return self._reply(429, {"message": "too many requests"}, request)
        size = limit - (offset in self.api.short)
        after = min(offset + (0 if fault == "empty" else size), max(self.api.rows, offset))
        more = after if after < self.api.rows else None
        self._reply(200, {"rows": [_row(number) for number in range(offset, after)], "next": more}, request)

    def _item(self, number: int) -> None:
        if number >= self.api.rows:
            raise _Refused(404, f"there is no item {number}; items are 0 to {self.api.rows - 1}")
        self._reply(200, _row(number), self.api.arrive(item=number))

    def _reply(self, status: int, body: dict[str, Any], request: _Request | None = None) -> None:
        if request is not None:
            if _hung_up(self.connection):
                self.close_connection = True
                return
            request.status = status
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(data)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed in the middle of a reply is what this server is for, not an error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _row(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"row {number}", "amount": number * number % 997}


def _hung_up(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
    except ConnectionError:
        return True


def _number(given: dict[str, Any], field: str, default: int, *, lowest: int = 0) -> int:
    value = given.get(field, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = lowest - 1
    if number < lowest:
        raise _Refused(400, f"{field}={value!r} is not accepted; allowed: a whole number, {lowest} or more")
    return number


def _hold(body: bytes) -> _Hold:
    try:
        given = json.loads(body)
        return _Hold(**{**given, "items": tuple(given.get("items", ()))})
    except (ValueError, TypeError, AttributeError) as error:
        raise _Refused(400, f"body is not accepted; allowed: rows_from, items_from, items: {error}") from None


class PagesServer:
    """The API as a process of its own, which ends with the block or, at the latest, with this process.

    Args:
        rows: How many rows, and items, there are.
        port: TCP port, 0 for a free one.
        delay: Seconds that the slowest replies take; the others take a part of it, so that replies
            overtake each other.
        short_at: Offsets whose page has one row fewer than asked for.
        empty_at: Offsets whose page is empty once, though it says that there is more.
        fail_at: Offsets whose page answers 500 once.
        throttle_at: Offsets whose page answers 429 once, with ``Retry-After: 1``.

    Raises:
        PagesError: On entering the block, when the server does not start.
    """

    def __init__(
        self,
        *,
        rows: int = 100,
        port: int = 0,
        delay: float = 0.0,
        short_at: Sequence[int] = (),
        empty_at: Sequence[int] = (),
        fail_at: Sequence[int] = (),
        throttle_at: Sequence[int] = (),
    ) -> None:
        self._options = [f"--rows={rows}", f"--port={port}", f"--delay={delay}"]
        places = {"short": short_at, "empty": empty_at, "fail": fail_at, "throttle": throttle_at}
        self._options += [f"--{name}-at={offset}" for name, offsets in places.items() for offset in offsets]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        """Start the server and return once it listens."""
        # Isolated and without site-packages: only the standard library is needed, and it starts faster.
        command = [sys.executable, "-I", "-S", "-c", _START, _SOURCE_ROOT, "--until-eof", *self._options]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if not said.startswith("http://"):
            said += self._process.stdout.read()
            self.__exit__()
            raise PagesError(f"the pages server did not start: {said.strip()}")
        self.url = said
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.communicate()

    def log(self) -> list[dict[str, Any]]:
        """Return the requests for rows and items in order of arrival, numbered by ``seq`` from 1."""
        requests: list[dict[str, Any]] = self._call("GET", "/log")["requests"]
        return requests

    def hold(
        self, *, rows_from: int | None = None, items_from: int | None = None, items: Sequence[int] = ()
    ) -> None:
        """Hold back the replies to some requests from now on, instead of those of an earlier call.

        Args:
            rows_from: Pages that begin at this offset or later.
            items_from: This item and all later ones.
            items: These items.
        """
        given = {"rows_from": rows_from, "items_from": items_from, "items": list(items)}
        self._call("POST", "/hold", json={name: value for name, value in given.items() if value is not None})

    def wait_held(self, count: int = 1, timeout: float = 60.0) -> list[dict[str, Any]]:
        """Wait until `count` requests are held; return those that are.

        Raises:
            TimeoutError: They are not within `timeout` seconds; says what was asked for until then.
        """
        params = {"count": count, "wait": math.ceil(timeout)}
        held = self._call("GET", "/hold", params=params, timeout=timeout + 10)["held"]
        requests = self.log()
        if len(held) < count:
            raise TimeoutError(f"{len(held)} of {count} requests held within {timeout:g} s: {requests}")
        return [request for request in requests if request["seq"] in held]

    def release(self) -> None:
        """Answer what is held and hold nothing any more."""
        self._call("DELETE", "/hold")

    def _call(self, method: str, path: str, *, timeout: float = 10.0, **options: Any) -> dict[str, Any]:
        # Imported late: the server's own process imports this module and has no site-packages.
        import httpx

        # trust_env=False: a proxy of the host has no business between a test and 127.0.0.1.
        with httpx.Client(base_url=self.url, timeout=timeout, trust_env=False) as client:
            body: dict[str, Any] = client.request(method, path, **options).raise_for_status().json()
        return body


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pages", description="An HTTP API with pages and items, for tests.")
    parser.add_argument("--port", type=int, default=0, help="0, the default, picks a free one")
    parser.add_argument("--rows", type=int, default=100, help="how many rows and items (100)")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that the slowest replies take")
    for fault, what in _FAULTS.items():
        parser.add_argument(f"--{fault}-at", type=int, action="append", default=[], help=f"page that {what}")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input is closed")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; the first line of output is the URL."""
    parser = _parser()
    options = parser.parse_args(arguments)
    handler = type("_Bound", (_Handler,), {"api": _Api(options)})
    try:
        server = _Server(("127.0.0.1", options.port), handler)
    except OSError as error:
        parser.exit(2, f"pages: port {options.port} of 127.0.0.1: {error.strerror}; choose another --port\n")
    # shutdown() waits for the loop, which is this thread's: it has to be called from another one.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    if options.until_eof:
        threading.Thread(target=_shut_down_at_eof, args=[server], daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever(poll_interval=0.05)
    except KeyboardInterrupt:
        print("pages: stopped", file=sys.stderr)
    finally:
        server.server_close()


def _shut_down_at_eof(server: _Server) -> None:
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
