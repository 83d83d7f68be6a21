# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The process of one ResourceManager stand-in: the REST routes that are used here, faults, a request log.

=============================================== ==========================================================
``GET /ws/v1/cluster/info``                     also while it is the standby
``GET /ws/v1/cluster/apps``                     by applicationTags, states, user, startedTimeBegin, limit
``GET /ws/v1/cluster/apps/{id}``                404 for one that isn't known
``GET``, ``PUT /ws/v1/cluster/apps/{id}/state`` ``{"state": "KILLED"}``: 202, or 200 when it had ended
``POST /ws/v1/cluster/apps/new-application``    an id for the next
``POST /ws/v1/cluster/apps``                    a submit: 202
``GET /cluster/app/{id}``                       a page that names the application
``/stand-in/...``                               for tests alone: faults, and what happens to applications
=============================================== ==========================================================

Of several that share a data directory, the one named in the file ``active`` answers; the others redirect
to it as a standby ResourceManager does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from airflow_resumable.testing.yarn_stand_in_apps import ENDED, App, Applications, BadRequest, now_ms

_APP = re.compile(r"/ws/v1/cluster/apps/(application_[^/]+)(/state)?\Z")
_PAGE = re.compile(r"/cluster/app/([^/]+)\Z")
_REFUSALS = {"unavailable": 503, "forbidden": 403, "unauthorized": 401, "throttle": 429, "html": 404}
_FOR_TESTS = "/stand-in/"


class _Lost(Exception):
    """The connection is closed without a reply."""


class _Reply(Exception):
    def __init__(self, code: int, body: Any, **headers: str) -> None:
        super().__init__(code)
        self.code, self.body, self.headers = code, body, headers


def _remote(code: int, exception: str, message: str) -> _Reply:
    # https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/WebServicesIntro.html
    return _Reply(
        code,
        {
            "RemoteException": {
                "exception": exception,
                "message": message,
                "javaClassName": f"org.apache.hadoop.yarn.webapp.{exception}",
            }
        },
    )


class ResourceManager:
    """The routes of one ResourceManager stand-in.

    Args:
        name: Its name among those that share the data directory.
        data_dir: Where the applications, the request log and the file ``active`` are.
        max_completed: See `Applications`.
    """

    def __init__(self, name: str, data_dir: Path, *, max_completed: int) -> None:
        self.name, self._data_dir = name, data_dir
        self._apps = Applications(data_dir / "apps.jsonl", max_completed=max_completed)
        self._was_active = False
        self._faults: list[dict[str, Any]] = []
        self.lock = threading.RLock()

    @property
    def _url(self) -> str:
        return (self._data_dir / f"{self.name}.url").read_text().strip()

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes, user: str) -> _Reply:
        """Answer a request and log it before the reply is sent.

        Raises:
            _Lost: The reply is lost; what was asked for is done.
        """
        if path.startswith(_FOR_TESTS):
            with self.lock:
                return self._for_tests(path.removeprefix(_FOR_TESTS), json.loads(body or b"{}"))
        call, match = _call(method, path), _APP.match(path)
        row: dict[str, Any] = {"call": call, "method": method, "path": path, "query": query, "user": user}
        row["app"] = match[1] if match else None
        with self.lock:
            active = (self._data_dir / "active").read_text().strip()
            fault = self._take_fault(call) if active == self.name else None
        if fault and fault["kind"] == "hang_before":
            time.sleep(fault["seconds"])
        with self.lock:
            try:
                reply = self._reply(call, path, query, body, active, fault, row)
            except _Reply as refusal:
                reply = refusal
            except BadRequest as error:
                reply = _remote(400, "BadRequestException", str(error))
            row.update(at=time.time(), rm=self.name, code=reply.code, fault=fault and fault["kind"])
            with (self._data_dir / "requests.jsonl").open("a") as log:
                log.write(json.dumps(row) + "\n")
        if fault and fault["kind"] == "hang_after":
            time.sleep(fault["seconds"])
        if fault and fault["kind"] == "lost_reply":
            raise _Lost
        return reply

    def _reply(
        self,
        call: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        active: str,
        fault: Mapping[str, Any] | None,
        row: dict[str, Any],
    ) -> _Reply:
        if call == "info":
            state = "ACTIVE" if active == self.name else "STANDBY"
            return _Reply(200, {"clusterInfo": {"state": "STARTED", "haState": state, "rm": "stand-in"}})
        if active != self.name:
            self._was_active = False
            return self._standby(active, path, query)
        self._be_active()
        if fault and fault["kind"] in _REFUSALS:
            code = _REFUSALS[fault["kind"]]
            if fault["kind"] == "html":
                return _Reply(code, "<html>HTTP ERROR 404 Not Found</html>")
            return _remote(code, "StandInException", f"{fault['kind']}, as a test has asked for")
        self._apps.settle()
        routes: dict[str, Callable[[], _Reply]] = {
            "new": lambda: _Reply(200, {"application-id": self._apps.new_id()}),
            "submit": lambda: self._submit(json.loads(body), row),
            "find": lambda: self._find(query),
            "status": lambda: _Reply(200, {"app": self._known(row["app"]).public(self._url)}),
            "state": lambda: _Reply(200, {"state": self._known(row["app"]).state}),
            "kill": lambda: self._kill(row["app"], json.loads(body), fault),
            "page": lambda: _Reply(200, f"<html>{path}</html>"),
        }
        return routes[call]() if call in routes else _Reply(404, "<html>HTTP ERROR 404 Not Found</html>")

    def _be_active(self) -> None:
        if not self._was_active:
            self._apps.load()
            self._was_active = True

    def _standby(self, active: str, path: str, query: Mapping[str, str]) -> _Reply:
        url_file = self._data_dir / f"{active}.url"
        if not active or not url_file.exists():
            return _Reply(200, "There is no active RM right now.\n")
        target = url_file.read_text().strip() + path
        if query:
            target += "?" + "&".join(f"{name}={value}" for name, value in query.items())
        if (self._data_dir / "old-standby").exists():
            # Hadoop 2.4 to 2.6.
            text = f"This is standby RM. Redirecting to the current active RM: {target}\n"
            return _Reply(200, text, Refresh=f"3; url={target}")
        return _Reply(307, f"This is standby RM. The redirect url is: {path}\n", Location=target)

    def _known(self, app_id: str | None) -> App:
        app = self._apps.get(app_id or "")
        if app is None:
            raise _remote(404, "NotFoundException", f"java.lang.Exception: app with id: {app_id} not found")
        return app

    def _find(self, query: Mapping[str, str]) -> _Reply:
        found = [app.public(self._url) for app in self._apps.select(query)]
        return _Reply(200, {"apps": {"app": found} if found else None})

    def _submit(self, context: dict[str, Any], row: dict[str, Any]) -> _Reply:
        row["app"] = app_id = context["application-id"]
        plan = json.loads(context["am-container-spec"]["commands"]["command"])
        row["created"] = self._apps.submit(
            App(
                id=app_id,
                name=context.get("application-name", "N/A"),
                user=row["user"],
                queue=context.get("queue", "default"),
                tags=list(context.get("application-tags", {}).get("tag", [])),
                started=now_ms() + int(plan.get("skew_ms", 0)),
                plan=plan,
            )
        )
        row["tags"] = self._known(app_id).tags
        return _Reply(202, "", Location=f"{self._url}/ws/v1/cluster/apps/{app_id}")

    def _kill(self, app_id: str, wanted: dict[str, Any], fault: Mapping[str, Any] | None) -> _Reply:
        if wanted.get("state") != "KILLED":
            raise BadRequest("Only 'KILLED' is allowed as a target state.")
        ended = self._known(app_id).state in ENDED
        slow = fault["seconds"] if fault and fault["kind"] == "slow_kill" else 0.0
        app = self._apps.kill(app_id, after=slow)
        if slow:
            self._apps.show(app_id, "KILLING")
        return _Reply(200 if ended else 202, {"state": app.state})

    def _take_fault(self, call: str) -> dict[str, Any] | None:
        for fault in self._faults:
            if fault["call"] in (call, "any") and fault["times"] > 0:
                fault["times"] -= 1
                return fault
        return None

    def _for_tests(self, what: str, body: dict[str, Any]) -> _Reply:
        self._be_active()
        self._apps.settle()
        if what == "fault":
            self._faults.append({"times": 1, "seconds": 1.0, **body})
        elif what == "heal":
            self._faults.clear()
        elif what == "forget":
            self._apps.forget(body["id"])
        elif what == "show":
            self._apps.show(body["id"], body["state"])
        elif what == "others":
            for number in range(body["count"]):
                plan = {"seconds": 0} if number % 2 else {"gate": "/nowhere/at/all"}
                app_id, tags = self._apps.new_id(), ["other", f"number-{number}"]
                self._apps.submit(App(app_id, "other", "other", "default", tags, now_ms(), plan))
            self._apps.settle()
        elif what == "apps":
            return _Reply(200, {app.id: app.public(self._url) for app in self._apps.select({})})
        else:
            return _Reply(404, f"no {what}")
        return _Reply(200, {})


def _call(method: str, path: str) -> str:
    if path in ("/ws/v1/cluster", "/ws/v1/cluster/info"):
        return "info"
    if path == "/ws/v1/cluster/apps":
        return {"GET": "find", "POST": "submit"}.get(method, "other")
    if path == "/ws/v1/cluster/apps/new-application":
        return "new"
    if match := _APP.match(path):
        return {"PUT": "kill", "GET": "state" if match[2] else "status"}.get(method, "other")
    return "page" if _PAGE.match(path) else "other"


class _Handler(BaseHTTPRequestHandler):
    manager: ResourceManager

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # What the authentication filter of a real one makes of it; without a filter it is "dr.who".
        user = query.pop("user.name", "") or self.headers.get("Authorization", "") or "dr.who"
        try:
            reply = self.manager.answer(self.command, parts.path, query, body, user)
        except _Lost:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        text = isinstance(reply.body, str)
        data = (reply.body if text else json.dumps(reply.body)).encode()
        self.send_response(reply.code)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain" if text else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PUT = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: requests are logged in a file."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away."""


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(0)


def main() -> None:
    """Serve until the process is killed, or its parent is gone."""
    parser = argparse.ArgumentParser(prog="yarn_stand_in_server", description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--max-completed", default=1000, type=int)
    options = parser.parse_args()
    _Handler.manager = ResourceManager(options.name, options.data_dir, max_completed=options.max_completed)
    server = _Server(("127.0.0.1", options.port), _Handler)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
