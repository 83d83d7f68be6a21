# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The process behind `AwsService`: moto's server, with what the real services do and moto doesn't around it.

moto keeps the objects and speaks the protocols. This layer answers a request itself where moto has it wrong,
and moves the states of moto's objects before it passes a request on. One request at a time.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from airflow_resumable.testing.aws import clock, requests
from airflow_resumable.testing.aws.errors import AwsError
from airflow_resumable.testing.aws.journal import Journal
from airflow_resumable.testing.aws.requests import Call
from airflow_resumable.testing.aws.runs import Runs
from airflow_resumable.testing.aws.steps import Steps
from airflow_resumable.testing.aws.tokens import ACTIONS, ClientTokens

CONTROL = "/resumable-control"
"""Where `AwsService` sends its wishes."""

OWN = "by-the-test"
"""In the User-Agent of a test's own clients."""

REGION = "us-east-1"
PAGE = 50
"""Entries of a page: "The maximum number of steps that a single ListSteps action returns is 50" (ListSteps),
50 clusters (ListClusters), ``maxResults`` up to 50 (EMR Serverless ListJobRuns). moto gives 100."""

_PAGED = {"emr": ("ListSteps", "ListClusters"), "emr-serverless": ("ListJobRuns",)}
_START = Callable[[str, list[tuple[str, str]]], object]


class Layer:
    """The WSGI application.

    Args:
        app: moto's.
        journal: The request log.
    """

    def __init__(self, app: Callable[[dict[str, Any], _START], Iterable[bytes]], journal: Journal) -> None:
        self._app = app
        self._journal = journal
        self._lock = threading.RLock()
        self._begin()

    def _begin(self) -> None:
        self.pace = clock.Pace()
        self.tokens = ClientTokens()
        self.steps = Steps(self.pace)
        self.serverless = Runs("emr-serverless", clock.SERVERLESS_RUN, self.pace)
        self.containers = Runs("emr-containers", clock.CONTAINER_RUN, self.pace)
        self._let_go: set[str] = set()

    def __call__(self, environ: dict[str, Any], start_response: _START) -> Iterable[bytes]:
        """Answer one request."""
        at = time.time()
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        path = environ["PATH_INFO"]
        with self._lock:
            if path == CONTROL:
                return self._control(json.loads(body), start_response)
            headers = {
                name.removeprefix("HTTP_").replace("_", "-").lower(): str(value)
                for name, value in environ.items()
                if name.startswith("HTTP_")
            }
            target = f"{path}?{environ.get('QUERY_STRING', '')}"
            call = requests.decode(environ["REQUEST_METHOD"], target, headers, body)
            if call is None:
                return self._app(environ, start_response)
            status, reply_headers, reply, created = self._answer(call, environ)
            said = _parsed(reply)
            code = dict((name.lower(), value) for name, value in reply_headers).get("x-amzn-errortype")
            error = code or said.get("__type") if status >= 400 else None
            self._journal.add(
                at=at,
                service=call.service,
                action=call.action,
                parameters=call.parameters,
                status=status,
                error=error,
                created=created,
                reply=said,
                own=OWN in headers.get("user-agent", ""),
            )
            start_response(f"{status} {'OK' if status < 400 else 'Error'}", reply_headers)
            return [reply]

    def _answer(
        self, call: Call, environ: dict[str, Any]
    ) -> tuple[int, list[tuple[str, str]], bytes, list[str]]:
        try:
            self._adopt()
            self._settle(call)
            own = self._own_answer(call)
            if own is not None:
                headers = [("Content-Type", "application/x-amz-json-1.1")]
                return 200, headers, json.dumps(own).encode(), []
        except AwsError as error:
            return error.status, list(error.headers.items()), error.body.encode(), []
        with self.steps.newest(_emr(), call):
            status, headers, reply = self._pass_on(environ)
        created = self._adopt()
        if status < 400:
            if (call.service, call.action) in ACTIONS:
                self.tokens.remember(call, _parsed(reply))
            if not created and call.action in ("CreateApplication", "CreateVirtualCluster", "RunJobFlow"):
                created = [str(_parsed(reply).get(name)) for name in _IDS if name in _parsed(reply)]
        return *self._mended(call, status, headers, reply), created

    def _own_answer(self, call: Call) -> dict[str, Any] | None:
        """Answer what moto has wrong; None passes the request on."""
        emr = _emr()
        if (call.service, call.action) in ACTIONS:
            return self.tokens.first_reply(call)
        if call.action == "CancelJobRun":
            return (self.serverless if call.service == "emr-serverless" else self.containers).cancel(call)
        if call.action == "GetDashboardForJobRun":
            return self.serverless.dashboard(call)
        if call.service != "emr":
            return None
        if call.action == "AddJobFlowSteps":
            self.steps.check_add(emr, call)
        elif call.action == "CancelSteps":
            return self.steps.cancel(emr, call)
        elif call.action in ("DescribeStep", "ListSteps"):
            self.steps.check_known(emr, call)
        elif call.action == "TerminateJobFlows":
            for cluster_id in call.parameters["JobFlowIds"]:
                if cluster_id not in emr.clusters:
                    raise AwsError("ValidationException", "Specified job flow ID does not exist.")
        return None

    def _pass_on(self, environ: dict[str, Any]) -> tuple[int, list[tuple[str, str]], bytes]:
        got: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            got[:] = [int(status.split()[0]), headers]

        reply = b"".join(self._app(environ, start_response))
        return got[0], got[1], reply

    def _mended(
        self, call: Call, status: int, headers: list[tuple[str, str]], reply: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Mend moto's reply.

        An EMR Serverless ResourceNotFoundException is 404 in its model, not 400; EMR on EKS filters by the
        whole name, moto by any part of it; an ended cluster has cancelled its steps, and a failed step says
        why.
        """
        if call.service == "emr-serverless" and _parsed(reply).get("__type") == "ResourceNotFoundException":
            status = 404
        if call.action == "TerminateJobFlows" and status < 400:
            for cluster_id in call.parameters["JobFlowIds"]:
                cluster = _emr().clusters[cluster_id]
                self.steps.end_cluster(cluster, "TERMINATED", "Terminated by user request")
        said = None
        if call.service == "emr-containers" and call.action == "ListJobRuns" and "name" in call.parameters:
            said = _parsed(reply)
            runs = said.get("jobRuns", [])
            said["jobRuns"] = [run for run in runs if run["name"] == call.parameters["name"]]
        elif call.action in ("DescribeStep", "ListSteps") and status < 400:
            said = self.steps.explain(_parsed(reply))
        if said is not None:
            reply = json.dumps(said).encode()
            headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
        return status, headers, reply

    def _adopt(self) -> list[str]:
        serverless, containers = _serverless(), _containers()
        for application_id in serverless.applications:
            # moto says of an application without runs that it doesn't exist.
            serverless.job_runs.setdefault(application_id, [])
        runs = [run for runs in serverless.job_runs.values() for run in runs]
        return (
            self.steps.adopt(_emr())
            + self.serverless.adopt(runs)
            + self.containers.adopt(containers.job_runs.values())
        )

    def _settle(self, call: Call) -> None:
        for job_id, job in self._all().items() if self._let_go else ():
            if job.seconds is None and self._owner(job_id) in self._let_go:
                job.seconds = 0.0
        asked = call.parameters
        looked: Iterable[str] = ()
        if call.action in ("DescribeStep", "GetJobRun", "DescribeJobRun"):
            looked = [str(asked.get("StepId") or asked.get("jobRunId") or asked.get("id"))]
        elif call.action == "ListSteps" and asked.get("StepIds"):
            looked = asked["StepIds"]
        elif call.action in ("ListSteps", "ListJobRuns"):
            looked = [job_id for job_id in self._all() if self._owner(job_id) in asked.values()]
        self.steps.settle(_emr(), looked if call.service == "emr" else ())
        self.serverless.settle(looked if call.service == "emr-serverless" else ())
        self.containers.settle(looked if call.service == "emr-containers" else ())

    def _all(self) -> dict[str, clock.Job]:
        return {**self.steps.jobs, **self.serverless.jobs, **self.containers.jobs}

    def _owner(self, job_id: str) -> str | None:
        if job_id in self.steps.clusters:
            return self.steps.clusters[job_id]
        record: Any = (self.serverless.jobs.get(job_id) or self.containers.jobs[job_id]).record
        return getattr(record, "application_id", None) or getattr(record, "virtual_cluster_id", None)

    def _control(self, wish: dict[str, Any], start_response: _START) -> Iterable[bytes]:
        try:
            said: dict[str, Any] = {"result": self._obey(wish)}
            status = "200 OK"
        except (KeyError, ValueError) as error:
            said, status = {"error": f"{type(error).__name__}: {error}"}, "400 Bad Request"
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(said).encode()]

    def _obey(self, wish: dict[str, Any]) -> Any:
        self._adopt()
        match wish["do"]:
            case "reset":
                for backends in _backends():
                    backends.reset()
                self._begin()
                self._journal.clear()
            case "pace":
                for name, value in wish["values"].items():
                    setattr(self.pace, name, value)
            case "let_go":
                self._let_go.add(wish["id"])
            case "forget_tokens":
                self.tokens.forget()
            case "end_cluster":
                self.steps.settle(_emr())
                cluster = _emr().clusters[wish["id"]]
                self.steps.end_cluster(cluster, wish["state"], wish["reason"], wish["running"])
            case "forget":
                self._forget(wish["id"])
            case "refuse_cancel":
                self.steps.refuse_cancel(wish["id"], wish["reason"])
            case what:
                return self._move(what, wish)
        return None

    def _move(self, what: str, wish: dict[str, Any]) -> str:
        application = _serverless().applications.get(wish["id"])
        if application is not None and what == "become":
            application.state = wish["state"]
            return str(application.state)
        job = self._all()[wish["id"]]
        cycle = job.lifecycle
        match what:
            case "state":
                pass
            case "finish":
                job.become(cycle.succeeded)
            case "fail":
                job.become(cycle.failed, wish["reason"])
            case "stop":
                job.become(cycle.stopped)
            case "become":
                job.become(wish["state"])
            case "advance":
                job.advance()
            case "hold":
                job.held = True
            case "deafen":
                job.deaf = True
            case "release":
                job.held = job.deaf = False
            case _:
                raise ValueError(f"no such wish: {what!r}")
        if wish["id"] in self.steps.jobs:
            self.steps.date(job)
            if what == "fail":
                cluster = _emr().clusters[str(self._owner(wish["id"]))]
                self.steps.after_failure(cluster, wish["id"])
        if what in ("state", "finish", "fail", "stop", "release"):
            self.steps.settle(_emr())
            self.serverless.settle()
            self.containers.settle()
        return job.state

    def _forget(self, job_id: str) -> None:
        owner = str(self._owner(job_id))
        if self.steps.jobs.pop(job_id, None):
            cluster = _emr().clusters[owner]
            cluster.steps[:] = [step for step in cluster.steps if step.id != job_id]
        elif self.serverless.jobs.pop(job_id, None):
            runs = _serverless().job_runs[owner]
            runs[:] = [run for run in runs if run.id != job_id]
        else:
            del self.containers.jobs[job_id]
            del _containers().job_runs[job_id]


_IDS = ("applicationId", "id", "JobFlowId")


def _parsed(reply: bytes) -> dict[str, Any]:
    try:
        found = json.loads(reply) if reply else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _backends() -> list[Any]:
    from moto.emr.models import emr_backends
    from moto.emrcontainers.models import emrcontainers_backends
    from moto.emrserverless.models import emrserverless_backends

    return [emr_backends, emrserverless_backends, emrcontainers_backends]


def _backend(index: int) -> Any:
    from moto.core.models import DEFAULT_ACCOUNT_ID

    return _backends()[index][DEFAULT_ACCOUNT_ID][REGION]


def _emr() -> Any:
    return _backend(0)


def _serverless() -> Any:
    return _backend(1)


def _containers() -> Any:
    return _backend(2)


def _page_sizes() -> None:
    from moto.core.utils import get_pagination_model

    for service, actions in _PAGED.items():
        for action in actions:
            get_pagination_model(service)[action]["limit_default"] = PAGE


def _follow(parent: int) -> None:
    """End with the process that started this one, however that ends."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(0)


def main() -> None:
    """Serve until a SIGTERM; the first line of standard output is the port."""
    parser = argparse.ArgumentParser(prog="airflow-resumable-aws")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=_follow, args=(options.parent_pid,), daemon=True).start()

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Leave it to the journal."""

    _page_sizes()
    layer = Layer(DomainDispatcherApplication(create_backend_app), Journal(options.journal))
    server = make_server("127.0.0.1", 0, layer, threaded=True, request_handler=Quiet)
    print(server.server_port, flush=True)
    sys.stdout.close()
    server.serve_forever()


if __name__ == "__main__":
    main()
