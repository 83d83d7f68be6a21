# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Which errors are worth another call, over the shapes that common clients give them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from airflow_resumable.jobs.transient import is_transient, status_code, was_refused
from airflow_resumable.sdk import JobAmbiguous, JobFailed
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from tests.attempts import TaskInstance, requests


class ApiException(Exception):
    """As the Kubernetes client raises it."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class ClientError(Exception):
    """As botocore raises it."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


class GoogleError(Exception):
    """As google.api_core raises it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def http_error(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://127.0.0.1/")
    return httpx.HTTPStatusError(
        str(status), request=request, response=httpx.Response(status, request=request)
    )


@pytest.mark.parametrize(
    "error",
    [
        http_error(429),
        http_error(503),
        httpx.ReadTimeout("t"),
        httpx.ConnectError("c"),
        httpx.RemoteProtocolError("p"),
        httpx.DecodingError("d"),
        ApiException(500),
        ApiException(429),
        ClientError("ThrottlingException", 400),
        ClientError("InternalFailure", 500),
        GoogleError(503),
        ConnectionResetError("r"),
        TimeoutError("t"),
        json.JSONDecodeError("cut off", "{", 1),
    ],
    ids=repr,
)
def test_what_goes_away_by_itself_is_asked_again(error: Exception) -> None:
    """Connection, time-out, 429, 5xx, throttling codes, a cut-off answer."""
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        http_error(400),
        http_error(403),
        http_error(404),
        ApiException(404),
        ClientError("AccessDeniedException", 403),
        GoogleError(409),
        KeyError("status"),
        ValueError("x"),
        FileNotFoundError("x"),
        PermissionError("x"),
        SimpleNamespace,
    ],
    ids=repr,
)
def test_what_stays_is_not(error: Any) -> None:
    """A refusal, a missing thing, a mistake in the code."""
    assert not is_transient(error if isinstance(error, BaseException) else error())


@pytest.mark.parametrize(
    "error",
    [
        AirflowException("x"),
        AirflowFailException("x"),
        AirflowSkipException("x"),
        JobFailed("x"),
        JobAmbiguous("x"),
    ],
)
def test_airflows_own_exceptions_are_no_answer_of_the_service(error: Exception) -> None:
    """Their class says status_code = 500, which is about Airflow's API, not about the service."""
    assert status_code(error) == 500
    assert not is_transient(error)
    assert not was_refused(error)


@pytest.mark.parametrize("method", ["submit_job", "get_job_status", "get_job_result"])
def test_an_operators_own_failure_ends_the_attempt_at_once(
    service: JobService, instance: TaskInstance, method: str
) -> None:
    """An AirflowFailException is passed on from wherever it is raised, and called once."""
    calls: list[str] = []

    def fail(self: Any, *_: Any) -> Any:
        calls.append(method)
        raise AirflowFailException("no such table")

    instance.operator_class = type("Failing", (LocalJobOperator,), {method: fail})
    with pytest.raises(AirflowFailException, match="no such table"):
        instance.attempt()
    assert len(calls) <= 2
    assert len(requests(service, "submit")) <= 1
