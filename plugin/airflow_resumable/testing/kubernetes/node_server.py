# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the API server asks of a node: the logs of containers, and commands to be run beside them.

The paths are a kubelet's; ``/stand-in/...`` is what a test asks of the stand-in itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

if TYPE_CHECKING:
    from airflow_resumable.testing.kubernetes.container_run import ContainerRun
    from airflow_resumable.testing.kubernetes.node import Node

_PROTOCOL = "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR = range(4)
_GOODBYE_AFTER = 0.1
_LOOK_EVERY = 0.1


def make_app(node: Node) -> Starlette:
    """Return the node's server."""

    def container_of(request: Request | WebSocket) -> ContainerRun | None:
        words = request.path_params
        run = node.find(words["namespace"], words["pod"])
        return run.container(words["container"]) if run else None

    async def logs(request: Request) -> Response:
        one = container_of(request)
        if one is None or not one.log.exists():
            name = request.path_params["container"]
            return PlainTextResponse(f"container {name!r} has no log (yet)", status_code=400)
        return StreamingResponse(_lines(one, request.query_params), media_type="text/plain")

    async def execute(socket: WebSocket) -> None:
        one = container_of(socket)
        command = socket.query_params.getlist("command")
        await socket.accept(subprotocol=_PROTOCOL)
        if one is None or not one.is_running or one.process is None:
            await _fail(socket, "container not found or not running")
        else:
            await _execute(socket, one, command)

    async def stand_in(request: Request) -> Response:
        match request.path_params["words"].split("/"):
            case ["pause"]:
                await node.pause()
            case ["resume"]:
                await node.resume()
            case ["evict", namespace, pod] if run := node.find(namespace, pod):
                await run.evict()
            case words:
                return PlainTextResponse(f"nothing to do for {words}", status_code=404)
        return PlainTextResponse("done")

    return Starlette(
        routes=[
            Route("/containerLogs/{namespace}/{pod}/{container}", logs),
            WebSocketRoute("/exec/{namespace}/{pod}/{container}", execute),
            Route("/stand-in/{words:path}", stand_in, methods=["POST"]),
        ]
    )


async def _lines(one: ContainerRun, query: Mapping[str, str]) -> AsyncIterator[bytes]:
    # https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.20/#read-log-pod-v1-core
    follow, timestamps = (query.get(name) == "true" for name in ("follow", "timestamps"))
    since = None
    if "sinceTime" in query:
        since = datetime.fromisoformat(query["sinceTime"])
    elif "sinceSeconds" in query:
        since = datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"]))

    def stamped(line: bytes, offset: int) -> bytes:
        written = one.written_at(offset)
        if since is not None and written < since:
            return b""
        return written.strftime("%Y-%m-%dT%H:%M:%S.%f000Z ").encode() + line if timestamps else line

    with one.log.open("rb") as log:
        if "tailLines" in query:
            lines = log.readlines()
            log.seek(sum(map(len, lines[: max(0, len(lines) - int(query["tailLines"]))])))
        offset, part = log.tell(), b""
        while True:
            # Asked before the read, so that what was written before the end is read.
            over = one.ended.is_set() or not follow
            while line := log.readline():
                part += line
                if part.endswith(b"\n"):
                    yield stamped(part, offset)
                    offset, part = offset + len(part), b""
            if over:
                break
            await asyncio.sleep(_LOOK_EVERY)
        if part:
            yield stamped(part, offset)


async def _execute(socket: WebSocket, one: ContainerRun, command: list[str]) -> None:
    assert one.process is not None
    pid = one.process.pid
    process = await asyncio.create_subprocess_exec(
        *(one.mounts.typed(word, pid) for word in command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin = process.stdin

    async def send(channel: int, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(1 << 15):
            await socket.send_bytes(bytes([channel]) + data)

    async def receive() -> None:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            data = message.get("bytes") or (message.get("text") or "").encode()
            if data[:1] == bytes([_STDIN]):
                stdin.write(one.mounts.typed(data[1:].decode(), pid).encode())
                await stdin.drain()

    typing = asyncio.create_task(receive())
    told = asyncio.gather(send(_STDOUT, process.stdout), send(_STDERR, process.stderr))
    # A command ends with its container.
    ended = asyncio.create_task(one.ended.wait())
    first: set[asyncio.Future[Any]] = {typing, told, ended}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(WebSocketDisconnect, RuntimeError, OSError):
        await told
        code = await process.wait()
        await socket.send_bytes(bytes([_ERROR]) + json.dumps(_outcome(code)).encode())
        # Kubernetes' Python client waits for the connection's end if the goodbye comes with what was before.
        await asyncio.sleep(_GOODBYE_AFTER)
        await socket.close()
    for task in (typing, ended):
        task.cancel()


def _outcome(code: int) -> dict[str, Any]:
    if code == 0:
        return {"status": "Success"}
    return {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with exit code {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


async def _fail(socket: WebSocket, message: str) -> None:
    status = {"status": "Failure", "message": message}
    await socket.send_bytes(bytes([_ERROR]) + json.dumps(status).encode())
    await socket.close()
