# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
r"""The HTTP side of the service: reading, logging, replying, and spoiling replies.

============================== ============ ================================================================
route                          verb
============================== ============ ================================================================
``POST /jobs``                 submit       201 new, 200 the token's job, 409 the token is another job's
``GET /jobs/{id}``             status       200; with ``?wait=S`` once it is finished, or after S seconds
``GET /jobs``                  find         newest first, 100 a page; by token, family, location, since
``POST /jobs/{id}/cancel``     cancel       202, also when it was asked before; 409 finished
``DELETE /jobs/{id}``          forget       200; then it is unknown, its token free, its process untouched
``POST /credentials``          credentials  200
``POST /faults``               \-           201; ``GET``, ``DELETE /faults`` and ``DELETE /faults/{id}``
``GET /log``                   \-           by verb, job, token, family, fault, created, since_seq; with
                                            ``wait=S`` once a request matches, or after S seconds
``GET /health``                \-           200
anything else                  other        404 or 405
============================== ============ ================================================================

Routes with a verb are logged; a bad field is 400 and an unknown job 404.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import sys
import time
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from airflow_resumable.testing.jobservice import payload
from airflow_resumable.testing.jobservice.faults import Fault, Faults
from airflow_resumable.testing.jobservice.journal import Journal
from airflow_resumable.testing.jobservice.payload import Invalid
from airflow_resumable.testing.jobservice.routes import (
    WAIT_LIMIT,
    Call,
    Refused,
    Reply,
    Routes,
    guarded,
    spoiled_reply,
)
from airflow_resumable.testing.jobservice.runner import Runner

_BODY_LIMIT = 4 << 20
_FAULT_PATH = re.compile(r"/faults/([^/]+)\Z")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _Incomplete(Exception):
    """The connection ended before the whole request had come."""


class Server(ThreadingHTTPServer):
    """Serves the routes on 127.0.0.1; listening as soon as it is made.

    Args:
        port: The TCP port, 0 for a free one.
        journal: The store.
        runner: The processes.
        credential_uses: Requests one credential is good for; None for no credentials at all.

    Raises:
        OSError: The port can't be bound.
    """

    daemon_threads = True
    # With the default backlog of 5 the kernel drops connections when 50 come at once, to be resent 1 s later.
    request_queue_size = 512

    def __init__(
        self, port: int, journal: Journal, runner: Runner, *, credential_uses: int | None = None
    ) -> None:
        self.journal = journal
        self.routes = Routes(journal, runner, credential_uses=credential_uses)
        self.faults = Faults()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """The base URL of the service."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def server_bind(self) -> None:
        """Bind without the look-up of the host's name that HTTPServer makes, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what went wrong in a request, unless it is that the client went away."""
        if not isinstance(sys.exception(), ConnectionError):
            traceback.print_exc()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        at = time.time()
        try:
            raw = self._body()
            self._refuse_browsers()
        except _Incomplete:
            self._log_unread(at, None)
            return
        except Refused as refused:
            self._log_unread(at, refused.reply.code)
            self._send(refused.reply)
            return
        path = unquote(urlsplit(self.path).path)
        if path == "/health":
            self._send(guarded(self._health))
        elif path == "/log":
            self._send(guarded(self._log))
        elif path == "/faults" or _FAULT_PATH.match(path):
            self._send(guarded(lambda: self._faults(path, raw)))
        else:
            self._serve(at, Call(self.command, path), raw)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is not HTTP, or an unknown method; called by the base class."""
        self._log_unread(time.time(), code)
        self._send(Reply(code, {"error": "bad_request", "message": message or HTTPStatus(code).phrase}))

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the request log is in the journal."""

    # -- reading

    def _refuse_browsers(self) -> None:
        # A command runner on a well-known port: any web page could post to it, and by a rebound name read it.
        origin = self.headers.get("Origin")
        # Only what isn't a browser can leave it out.
        host = self.headers.get("Host", "localhost").rsplit(":", 1)[0]
        kind = self.headers.get("Content-Type", "application/json").split(";")[0].strip()
        if origin is not None:
            refused = Invalid("Origin", origin, "no such header; this service is not for web pages")
        elif host not in ("127.0.0.1", "localhost"):
            refused = Invalid("Host", host, "127.0.0.1 or localhost")
        elif self.command == "POST" and kind != "application/json":
            refused = Invalid("Content-Type", kind, "application/json")
        else:
            return
        raise Refused(403, **refused.payload())

    def _body(self) -> bytes:
        if "Transfer-Encoding" in self.headers:
            raise Refused(411, "length_required", message="send a Content-Length")
        try:
            length = payload.count("Content-Length", self.headers.get("Content-Length", "0"))
        except Invalid as invalid:
            raise Refused(400, **invalid.payload()) from None
        if length > _BODY_LIMIT:
            raise Refused(413, "too_large", message=f"a body of at most {_BODY_LIMIT} bytes")
        raw = self.rfile.read(length)
        if len(raw) < length:
            raise _Incomplete
        return raw

    def _query(self) -> dict[str, str]:
        query: dict[str, str] = {}
        for name, value in parse_qsl(urlsplit(self.path).query, keep_blank_values=True):
            if name in query:
                raise Invalid(name, value, "given once")
            query[name] = value
        return query

    def _client(self) -> str | None:
        value = self.headers.get("X-Client")
        # http.server reads headers as Latin-1; this one is UTF-8.
        return None if value is None else value.encode("latin-1", "replace").decode("utf-8", "replace")

    # -- the control routes, which are not logged and meet no fault

    def _only(self, *methods: str) -> None:
        if self.command not in methods:
            raise Refused(405, "method_not_allowed", message="allowed: " + ", ".join(methods))

    def _health(self) -> Reply:
        self._only("GET")
        return Reply(200, {"ok": True, "pid": os.getpid()})

    def _faults(self, path: str, raw: bytes) -> Reply:
        faults = self.server.faults
        if match := _FAULT_PATH.match(path):
            self._only("DELETE")
            if not faults.delete(match[1]):
                raise Refused(404, "not_found", message=f"no fault {match[1]!r}")
            return Reply(200, {"deleted": 1})
        self._only("GET", "POST", "DELETE")
        if self.command == "POST":
            return Reply(201, faults.add(payload.parse_object(raw)).public())
        return Reply(200, {"faults": faults.all()} if self.command == "GET" else {"deleted": faults.clear()})

    def _log(self) -> Reply:
        self._only("GET")
        query = self._query()
        payload.known_fields(
            query, ("verb", "job", "token", "family", "fault", "created", "since_seq", "wait")
        )
        wait = payload.seconds("wait", query.pop("wait", "0"), limit=WAIT_LIMIT)
        filters: dict[str, Any] = dict(query)
        if "since_seq" in query:
            filters["since_seq"] = payload.count("since_seq", query["since_seq"])
        if "created" in query:
            filters["created"] = payload.choice("created", query["created"], ("true", "false")) == "true"
        journal = self.server.journal
        if wait:
            journal.wait_until(lambda: bool(journal.requests(filters)), wait)
        return Reply(200, {"requests": journal.requests(filters)})

    # -- the logged routes

    def _serve(self, at: float, call: Call, raw: bytes) -> None:
        fault: Fault | None = None
        refusal: Reply | None = None
        try:
            self.server.routes.understand(call, self._query(), raw, self.headers.get("Authorization"))
            fault = self.server.faults.take(call.verb, call.job_id, call.token, call.family)
        except Invalid as invalid:
            refusal = Reply(400, invalid.payload())
        except Refused as refused:
            refusal = refused.reply
        seq = self.server.journal.log(
            at=at,
            verb=call.verb,
            method=self.command,
            path=self.path,
            job=call.job_id,
            token=call.token,
            family=call.family,
            client=self._client(),
            fault=fault.kind if fault else None,
        )
        if fault is not None and fault.kind == "reset":
            self._reset()
            return
        reply = refusal or (spoiled_reply(fault) if fault else None)
        if reply is None:
            reply = guarded(lambda: self.server.routes.carry_out(call, seq, fault))
        self._deliver(seq, reply, fault)

    def _log_unread(self, at: float, code: int | None) -> None:
        """Log a request whose body, or more, could not be read; the connection can't be used any more."""
        self.close_connection = True
        seq = self.server.journal.log(
            at=at,
            verb="other",
            method=self.command or "",
            path=getattr(self, "path", self.requestline),
            job=None,
            token=None,
            family=None,
            client=None,
            fault=None,
        )
        self.server.journal.log_code(seq, code)

    # -- replying

    def _deliver(self, seq: int, reply: Reply, fault: Fault | None) -> None:
        kind = fault.kind if fault else None
        if kind == "lost_reply":
            self.close_connection = True
            return
        if fault is not None and kind in ("hold", "slow_reply"):
            fault.released.wait(fault.seconds)
            if self._peer_is_gone():
                self.close_connection = True
                return
        self.server.journal.log_code(seq, reply.code)
        try:
            self._send(reply, truncated=kind == "truncated")
        except OSError:
            self.server.journal.log_code(seq, None)
            self.close_connection = True

    def _send(self, reply: Reply, *, truncated: bool = False) -> None:
        body = json.dumps(reply.body).encode()
        headers = {"Content-Type": "application/json", **reply.headers}
        if truncated:
            # With no Content-Length the client can't tell: it gets torn JSON, not a transport error.
            self.close_connection = True
            body = body[: len(body) // 2]
        else:
            headers["Content-Length"] = str(len(body))
        if self.close_connection:
            headers["Connection"] = "close"
        lines = [f"HTTP/1.1 {reply.code} {HTTPStatus(reply.code).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        # The base class would say goodbye with a FIN first, and rfile keep the descriptor open.
        os.close(self.connection.detach())

    def _peer_is_gone(self) -> bool:
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
