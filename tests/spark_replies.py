# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Replies of real Spark 4.3.0 masters and workers, and a server that gives them.

For what a real cluster can't be made to do within a unit test: two masters with a standby, answers cut
short, thousands of drivers. The behaviour against real clusters is in tests/conformance.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

DRIVER = "driver-20261129182630-0000"
NOT_LEADER = {
    "action": "SubmissionStatusResponse",
    "message": (
        "Exception from the cluster:\njava.lang.Exception: Current state is not alive: STANDBY. Can only "
        "request driver status in ALIVE state.\n"
        "\torg.apache.spark.deploy.master.Master$$anonfun$receiveAndReply$1.applyOrElse(Master.scala:494)\n"
        "\tjava.base/java.lang.Thread.run(Thread.java:840)"
    ),
    "serverSparkVersion": "4.3.0",
    "submissionId": DRIVER,
    "success": False,
}
NO_SUCH_DRIVER = {
    "action": "SubmissionStatusResponse",
    "serverSparkVersion": "4.3.0",
    "submissionId": DRIVER,
    "success": False,
}
KILL_TAKEN = {
    "action": "KillSubmissionResponse",
    "message": f"Kill request for {DRIVER} submitted",
    "serverSparkVersion": "4.3.0",
    "submissionId": DRIVER,
    "success": True,
}
NOTHING_TO_KILL = {
    **KILL_TAKEN,
    "message": f"Driver {DRIVER} has already finished or does not exist",
    "success": False,
}
KILL_NOT_LEADER = {
    **KILL_TAKEN,
    "message": "Current state is not alive: STANDBY. Can only kill drivers in ALIVE state.",
    "success": False,
}
NOT_READY = (
    503,
    {"action": "ErrorResponse", "message": "Master is not ready.", "serverSparkVersion": "4.3.0"},
)


def status(state: str | None) -> dict[str, Any]:
    """Return a leading master's answer about a driver; None leaves the state out."""
    answer: dict[str, Any] = {
        "action": "SubmissionStatusResponse",
        "serverSparkVersion": "4.3.0",
        "submissionId": DRIVER,
        "success": True,
    }
    return answer if state is None else {**answer, "driverState": state}


def driver(
    driver_id: str = DRIVER,
    state: str = "RUNNING",
    *,
    worker: str | None = "worker-1",
    started: int = 1795976790069,
    main_class: str = "SleepApp",
) -> dict[str, Any]:
    """Return a driver as the master's JSON page shows it."""
    return {
        "id": driver_id,
        "starttime": str(started),
        "state": state,
        "cores": 1,
        "memory": 512,
        "resources": {},
        "submitdate": "Sun Nov 29 18:26:30 UTC 2026",
        "worker": worker or "None",
        "mainclass": main_class,
    }


def page(
    *drivers: dict[str, Any], workers: dict[str, str] | None = None, state: str = "ALIVE"
) -> dict[str, Any]:
    """Return the master's JSON page."""
    ended = ("FINISHED", "FAILED", "KILLED", "ERROR")
    return {
        "url": "spark://127.0.0.1:7077",
        "workers": [{"id": name, "webuiaddress": url} for name, url in (workers or {}).items()],
        "activedrivers": [one for one in drivers if one["state"] not in ended],
        "completeddrivers": [one for one in drivers if one["state"] in ended],
        "status": state,
    }


def log(mark: str | None, *, after: str = "INFO SecurityManager: ...\n") -> str:
    """Return the top of a driver's stderr as its worker serves it."""
    marked = f'"-Dspark.airflow.resumable.mark={mark}" ' if mark else ""
    text = (
        f'Launch Command: "/usr/bin/java" "-cp" "/opt/spark/jars/*" "-Dspark.cores.max=1" {marked}'
        '"org.apache.spark.deploy.worker.DriverWrapper" "spark://Worker@127.0.0.1:7078" "/opt/app.jar" '
        '"SleepApp"\n'
        f"{'=' * 40}\n\n{after}"
    )
    return f"==== Bytes 0-{len(text)} of {len(text)} of /opt/spark/work/{DRIVER}/stderr ====\n{text}"


NO_LOG = f"==== Bytes 0-0 of 0 of /w/{DRIVER}/stderr ====\nError: invalid log directory /w/{DRIVER}/"

Reply = Any
"""A JSON object, a text, (code, either of them), or a function of the request's path that returns one."""


class Replies:
    """A server that answers by the beginning of a request's path, ``GET /json/`` or ``POST /v1/...``.

    Args:
        replies: What to answer, by method and beginning of the path; anything else is 404.
        host: Where to listen; all of 127.0.0.0/8 is this machine.
        port: Where to listen, 0 for a free port.
    """

    def __init__(self, replies: dict[str, Reply], host: str = "127.0.0.1", port: int = 0) -> None:
        self.replies = replies
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer((host, port), type("_Bound", (_Handler,), {"owner": self}))
        self._server.daemon_threads = True
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://{self.host}:{self.port}"

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

    def reply(self, request: str) -> tuple[int, bytes]:
        """Return the status and body for a request."""
        self.requests.append(request)
        found: Reply = next(
            (one for start, one in self.replies.items() if request.startswith(start)), (404, {})
        )
        if callable(found):
            found = found(request)
        code, body = found if isinstance(found, tuple) else (200, found)
        # Laid out as Spark does: the provider reads a state from its line.
        text = body if isinstance(body, str) else json.dumps(body, indent=2, separators=(",", " : "))
        return code, text.encode()


class _Handler(BaseHTTPRequestHandler):
    owner: Replies

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: `Replies.requests` tells all."""

    def _answer(self) -> None:
        code, body = self.owner.reply(f"{self.command} {self.path}")
        try:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            # A caller that gave up on a slow answer.
            self.close_connection = True

    do_GET = do_POST = _answer
