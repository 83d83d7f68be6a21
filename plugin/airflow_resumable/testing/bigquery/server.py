# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The emulator and the layer over it, run by the Python of the emulator's own virtual environment.

`airflow_resumable.testing.bigquery.emulator` starts it by file name; nothing of this package is imported.

What the layer restores of the real service, and where that is documented:

- *The location is a part of a job's identity.* Asked with another one, or with none for a job outside of the
  multi-regions US and EU, BigQuery knows no such job; one that is submitted without a location runs where its
  dataset is, else in the US; and the answer 409 names the place: ``Already Exists: Job project:EU.id``.
  https://cloud.google.com/bigquery/docs/reference/rest/v2/JobReference
- *A submit is answered at once*, not after up to a second.
- *States that can't be brought about here*: PENDING, a quota error, a state never heard of. A test says what
  a job shows (``POST /layer/show``).

And what no BigQuery has: the function ``_gate(path)``, true once a file exists, so that a query runs as long
as a test wants; and a log of requests, one JSON object a line.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlencode

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_JOB = re.compile(
    r"/bigquery/v2/projects/(?P<project>[^/]+)/(?P<kind>jobs|queries)(?:/(?P<id>[^/]+))?(?P<do>/\w+)?$"
)
_GATE = re.compile(r"_gate\('[^']*', '[^']*'\)")
_MULTI_REGIONS = ("US", "EU")
_SUBMIT_WAIT_MS = 20
_JOBS_AT_ONCE = 64
_GATE_LIMIT = 120.0
"""Seconds after which a query that waits for a gate fails, so that none is left."""


class Layer:
    """Stands before the emulator's ASGI application, which keeps each job under ``LOCATION--id``.

    Args:
        app: The application.
        log: Where requests are written down.
    """

    def __init__(self, app: App, log: Path) -> None:
        self._app = app
        self._log = log.open("a", buffering=1, encoding="utf-8")
        self._writing = threading.Lock()
        self._shown: dict[str, dict[str, Any]] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if scope["path"] == "/layer/show":
            told = json.loads(body)
            self._shown[_inner(told["location"], told["job_id"])] = told["status"]
            await _answer(send, 200, b"{}")
            return
        found = _JOB.match(scope["path"])
        if found is None or (found["kind"] == "queries" and not found["id"]):
            await self._app(scope, _replay(body), send)
            return
        started = time.time()
        status, answer, noted = await self._job_call(scope, found, body)
        line = {"at": started, "method": scope["method"], "path": scope["path"], "status": status, **noted}
        with self._writing:
            self._log.write(json.dumps(line) + "\n")
        await _answer(send, status, answer)

    async def _job_call(
        self, scope: Message, found: re.Match[str], body: bytes
    ) -> tuple[int, bytes, dict[str, Any]]:
        project, query = found["project"], parse_qs(scope["query_string"].decode())
        location = _spelled(query.get("location", [""])[0])
        if scope["method"] == "POST" and not found["id"]:
            asked = json.loads(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
            reference = asked.get("jobReference") or {}
            job_id = reference.get("jobId") or str(uuid.uuid4())
            location = _spelled(reference.get("location")) or await self._place_of(project, asked)
            inner, dry = _inner(location, job_id), bool(asked.get("configuration", {}).get("dryRun"))
            asked["jobReference"] = {**reference, "jobId": inner}
            told = json.dumps(asked).replace("_gate('", f"_gate('{inner}', '")
            if dry:
                # The emulator computes what is constant, and would wait.
                told = _GATE.sub("TRUE", told)
            status, answer = await self._ask(scope, scope["path"], told.encode())
            if dry and status == 200:
                job = json.loads(answer)
                job["jobReference"] = {"projectId": project, "location": location}
                return status, json.dumps(job).encode(), {"location": location, "dry_run": True}
        elif found["id"]:
            job_id = found["id"]
            places = (location,) if location else _MULTI_REGIONS
            for place in places:
                location = place
                known, _ = await self._ask({**scope, "method": "GET"}, _path(project, "jobs", place, job_id))
                if known == 200:
                    break
            path = _path(project, found["kind"], location, job_id) + (found["do"] or "")
            if found["kind"] == "queries" and self._still_runs(_inner(location, job_id)):
                return 200, json.dumps({"jobComplete": False}).encode(), {"job_id": job_id}
            status, answer = await self._ask(scope, path, body)
        else:
            status, answer = await self._ask(scope, scope["path"], body)
            listed = json.loads(answer)
            listed["jobs"] = [self._restored(one) for one in listed.get("jobs", ())]
            return status, json.dumps(listed).encode(), {}
        answer = answer.replace(
            f"{project}:{_inner(location, job_id)}".encode(), f"{project}:{location}.{job_id}".encode()
        )
        job = json.loads(answer) if answer else {}
        if "jobReference" in job:
            job = self._restored(job)
        elif "job" in job:
            job["job"] = self._restored(job["job"])
        return status, json.dumps(job).encode(), {"job_id": job_id, "location": location}

    def _still_runs(self, inner: str) -> bool:
        return bool(self._shown.get(inner, {}).get("state", "DONE") != "DONE")

    def _restored(self, job: dict[str, Any]) -> dict[str, Any]:
        inner = job["jobReference"].get("jobId")
        if not inner or "--" not in inner:
            return job
        location, _, job_id = inner.partition("--")
        project = job["jobReference"]["projectId"]
        job["jobReference"] |= {"jobId": job_id, "location": location}
        if "id" in job:
            job["id"] = f"{project}:{location}.{job_id}"
        if "selfLink" in job:
            job["selfLink"] = f"/bigquery/v2/projects/{project}/jobs/{job_id}?location={location}"
        if "status" in job and inner in self._shown:
            job["status"] = self._shown[inner]
        return job

    async def _place_of(self, project: str, asked: Mapping[str, Any]) -> str:
        query = asked.get("configuration", {}).get("query", {})
        dataset = (query.get("defaultDataset") or query.get("destinationTable") or {}).get("datasetId")
        if dataset is None:
            return "US"
        scope = {"type": "http", "method": "GET", "headers": [], "query_string": b"", "http_version": "1.1"}
        path = f"/bigquery/v2/projects/{project}/datasets/{dataset}"
        status, answer = await self._ask(scope, path)
        return (_spelled(json.loads(answer).get("location")) if status == 200 else "") or "US"

    async def _ask(self, scope: Message, path: str, body: bytes = b"") -> tuple[int, bytes]:
        query = parse_qs(scope["query_string"].decode())
        query.pop("location", None)
        dropped = (b"content-length", b"content-encoding")
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in dropped]
        headers.append((b"content-length", str(len(body)).encode()))
        asked = {
            **scope,
            "path": path,
            "raw_path": path.encode(),
            "headers": headers,
            "query_string": urlencode(query, doseq=True).encode(),
        }
        status, parts = 500, []

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._app(asked, _replay(body), send)
        return status, b"".join(parts)


def _inner(location: str, job_id: str) -> str:
    return f"{location}--{job_id}"


def _path(project: str, kind: str, location: str, job_id: str) -> str:
    return f"/bigquery/v2/projects/{project}/{kind}/{_inner(location, job_id)}"


def _spelled(location: str | None) -> str:
    upper = (location or "").upper()
    return upper if upper in _MULTI_REGIONS else upper.lower()


async def _read(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _replay(body: bytes) -> Receive:
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return left.pop() if left else {"type": "http.disconnect"}

    return receive


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Gates:
    """Makes queries wait, and end at once when their job is cancelled."""

    def __init__(self) -> None:
        self._cancelled: set[str] = set()

    def wait(self, inner: str, path: str) -> bool:
        """Be the SQL function ``_gate``, whose first argument the layer has put in."""
        until = time.monotonic() + _GATE_LIMIT
        while not os.path.exists(path):
            if inner in self._cancelled or time.monotonic() > until:
                raise InterruptedError(f"{path} does not open")
            time.sleep(0.01)
        return True

    def install(self, runner: Any, native: Any) -> None:
        """Put the function into the emulator, and hear of its cancels."""
        cancel = runner.cancel

        def heard(project_id: str, job_id: str) -> Any:
            running = runner._running.get((project_id, job_id))
            if running is not None:
                running.cancelled = True
            self._cancelled.add(job_id)
            return cancel(project_id, job_id)

        runner.cancel = heard
        native.FUNCTIONS["_gate"] = (self.wait, ["VARCHAR", "VARCHAR"], "BOOLEAN")


def main() -> None:
    """Serve until the end of the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--project", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    asked = parser.parse_args()
    settings: Any = importlib.import_module("local_bigquery.settings").settings
    settings.data_dir, settings.default_project_id = asked.folder / "data", asked.project
    runner: Any = importlib.import_module("local_bigquery.jobs.runner")
    runner.SUBMIT_WAIT_MS, runner._executor = _SUBMIT_WAIT_MS, ThreadPoolExecutor(_JOBS_AT_ONCE)
    _Gates().install(runner, importlib.import_module("local_bigquery.sql.native"))
    app = cast(App, importlib.import_module("local_bigquery.app").app)
    uvicorn: Any = importlib.import_module("uvicorn")
    # Its first statement takes seconds; better now than in a test's first request.
    importlib.import_module("local_bigquery.engine.database").connection()
    uvicorn.run(
        Layer(app, asked.folder / "requests.jsonl"), host="127.0.0.1", port=asked.port, access_log=False
    )


if __name__ == "__main__":
    main()
