# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Credentials of a BigQuery job that end before the job does: by Google's own auth client, at a stand-in.

The stand-in is a token service: it signs nothing, and gives a new token to whoever has a key that is valid.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.http_faults import HttpFaultProxy, HttpRequest, path
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests import bigquery_service as bq
from tests.bigquery_service import BigQueryService, serving

USES = 3
POLLS = 30


class TokenService(ThreadingHTTPServer):
    """Gives a new token at each request, to one account.

    Attributes:
        account: Whose key is valid; any other's is refused.
        given: How many tokens were given.
        uses: How often each token was used at BigQuery.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.account = "first"
        self.given = 0
        self.uses: Counter[str] = Counter()
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    def connection(self, project: str, account: str) -> str:
        """Return a connection with a key of an account's, as an environment variable wants it."""
        key = {
            "type": "service_account",
            "client_email": account,
            "private_key": self._pem,
            "private_key_id": "key",
            "token_uri": f"http://127.0.0.1:{self.server_port}/{account}",
        }
        extra = {"keyfile_dict": json.dumps(key), "project": project}
        return json.dumps({"conn_type": "google_cloud_platform", "extra": extra})

    def has_expired(self, request: HttpRequest) -> bool:
        """Say whether a look at a job comes with a token that was used up, and count it."""
        token = request.headers.get("authorization", "")
        if request.method != "GET" or "/jobs/" not in request.target:
            return False
        self.uses[token] += 1
        return self.uses[token] > USES


class _Handler(BaseHTTPRequestHandler):
    server: TokenService

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        valid = self.path == f"/{self.server.account}"
        self.server.given += valid
        told: dict[str, Any] = {"error": "invalid_grant"}
        if valid:
            told = {"access_token": f"token-{self.server.given}", "expires_in": 3600, "token_type": "Bearer"}
        body = json.dumps(told).encode()
        self.send_response(200 if valid else 400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def tokens() -> Iterator[TokenService]:
    """Start a token service."""
    with TokenService() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


@pytest.fixture
def service(
    bigquery: BigQueryEmulator,
    bigquery_proxy: HttpFaultProxy,
    tokens: TokenService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[BigQueryService]:
    """Lead Google's client to the proxy, with a key."""
    for service in serving(bigquery, bigquery_proxy, tmp_path, monkeypatch):
        monkeypatch.setenv(bq.CONNECTION, tokens.connection(bigquery.project, "first"))
        yield service


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"))


def watched(service: BigQueryService) -> Any:
    subject = service.operator("runs")
    subject.long_poll = 0.02
    return subject


def test_credentials_that_expire_every_three_polls(
    service: BigQueryService, tries: TaskTries, tokens: TokenService
) -> None:
    """For thirty polls: each time there are new ones, and no count of refreshes runs out."""
    service.proxy.fail("unauthorized", tokens.has_expired, times=0)
    polls: list[int] = []

    def count() -> None:
        polls.append(1)
        if len(polls) >= POLLS:
            service.release()

    with at_point("mid_poll", count):
        tries.run(watched(service))
    assert tokens.given >= POLLS / USES
    assert len(service.inserted()) == 1


def test_a_key_that_was_replaced_in_the_connection(
    service: BigQueryService, tries: TaskTries, tokens: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one gives no token any more, the connection has the new one: it is read again."""
    replaced: list[int] = []

    def replace() -> None:
        if not replaced:
            replaced.append(1)
            tokens.account = "second"
            new = tokens.connection(service.emulator.project, "second")
            monkeypatch.setenv(bq.CONNECTION, new)
            service.proxy.fail(
                "unauthorized", lambda one: one.headers["authorization"] == "Bearer token-1", times=0
            )
            service.release()

    with at_point("mid_poll", replace):
        tries.run(watched(service))
    assert tokens.given == 2
    assert len(service.inserted()) == 1


def test_a_key_that_is_gone_fails_the_try_and_leaves_the_job(
    service: BigQueryService, tries: TaskTries, tokens: TokenService
) -> None:
    """The connection has no other: asking again can't help, a person has to."""

    def revoke() -> None:
        tokens.account = "nobody"
        service.proxy.fail("unauthorized", path("GET", "/jobs/"), times=0)

    with at_point("mid_poll", revoke), pytest.raises(Exception, match="invalid_grant"):
        tries.run(watched(service))
    assert service.cancels() == 0
    assert [job.live for job in service.jobs()] == [True]


def test_a_token_that_is_refused_though_it_is_new(service: BigQueryService, tries: TaskTries) -> None:
    """Google's auth client has given up by then; the hook is made anew, within the budget."""
    spoiled = service.proxy.fail("unauthorized", path("GET", r"/jobs/[^/?]+"), times=5)
    service.release()
    tries.run(watched(service))
    assert spoiled.hits == 5
    assert len(service.inserted()) == 1
