# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of a test cluster's API server that spoils the requests a test chooses."""

from __future__ import annotations

import json
import re
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Fault = Literal["unavailable", "lost_reply", "denied", "unauthorized"]

_STATUS = {
    "unavailable": (503, "Service Unavailable", "ServiceUnavailable"),
    "denied": (403, "Forbidden", "Forbidden"),
    "unauthorized": (401, "Unauthorized", "Unauthorized"),
}
_CHUNK = 1 << 16


@dataclass(slots=True)
class _Rule:
    fault: Fault
    method: str
    path: re.Pattern[str]
    left: int
    hit: int = 0


class FaultProxy:
    """Passes each request on, over a connection of its own, unless a rule says otherwise.

    Args:
        port: Where the API server listens.
        certificate, key: The API server's; the proxy shows the same.
    """

    def __init__(self, port: int, certificate: Path, key: Path) -> None:
        self._upstream = port
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self._to_server = ssl.create_default_context(cafile=str(certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError, ValueError):
                    proxy._serve(context.wrap_socket(self.request, server_side=True))

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="fault-proxy", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Base URL, for `KubernetesCluster.kubeconfig`."""
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, fault: Fault, method: str, path: str, times: int = 1) -> Callable[[], int]:
        """Spoil the next requests of a kind.

        Args:
            fault: ``unavailable`` (503), ``denied`` (403), ``unauthorized`` (401): nothing is passed on;
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

    def heal(self) -> None:
        """Spoil nothing more."""
        with self._lock:
            self._rules.clear()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _serve(self, client: ssl.SSLSocket) -> None:
        with client:
            self._pass_on(client)

    def _pass_on(self, client: ssl.SSLSocket) -> None:
        head, rest = _read_head(client)
        if not head:
            return
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        rule = self._rule_for(method, target)
        if rule is not None and rule.fault != "lost_reply":
            _read_body(client, head, rest)
            _answer(client, rule.fault)
            return
        with (
            socket.create_connection(("127.0.0.1", self._upstream)) as plain,
            self._to_server.wrap_socket(plain, server_hostname="127.0.0.1") as server,
        ):
            server.sendall(_one_request(head) + rest)
            if rule is not None:
                body = _read_body(client, head, rest)
                server.sendall(body[len(rest) :])
                # Until the server is done: the request has been served.
                server.recv(_CHUNK)
                return
            upward = threading.Thread(target=_copy, args=(client, server), daemon=True)
            upward.start()
            _copy(server, client)
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            upward.join(5)

    def _rule_for(self, method: str, target: str) -> _Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.left > 0 and rule.method == method and rule.path.search(target):
                    rule.left -= 1
                    rule.hit += 1
                    return rule
        return None


def _read_head(client: ssl.SSLSocket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = client.recv(_CHUNK)
        if not chunk:
            return b"", b""
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def _read_body(client: ssl.SSLSocket, head: bytes, rest: bytes) -> bytes:
    found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    length = int(found[1]) if found else 0
    while len(rest) < length:
        chunk = client.recv(_CHUNK)
        if not chunk:
            break
        rest += chunk
    return rest


def _one_request(head: bytes) -> bytes:
    # One request a connection, so that each is looked at; an upgrade keeps the connection as it is.
    if re.search(rb"(?i)\r\nupgrade:", head):
        return head
    without = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)
    return without.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)


def _answer(client: ssl.SSLSocket, fault: str) -> None:
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
    client.sendall(head.encode() + body)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
