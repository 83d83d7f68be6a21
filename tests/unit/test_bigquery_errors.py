# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What BigQuery's answers mean: errors, states, and the job that a 409 names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import requests
from google.api_core import exceptions as google_exceptions
from google.auth import exceptions as auth_exceptions
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_resumable.jobs.adapter import Observation, observe
from airflow_resumable.operators import _bigquery_errors as errors
from airflow_resumable.operators._bigquery_jobs import KNOWN_STATES, Place, status_of
from airflow_resumable.operators.bigquery import ResumableBigQueryInsertJobOperator
from tests.bigquery_service import SUCCEEDS, defaults

# Neither has types.
google: Any = google_exceptions
auth: Any = auth_exceptions

# https://cloud.google.com/bigquery/docs/error-messages, every row: reason, HTTP status, whether asking helps.
REASONS = (
    ("accessDenied", 403, False),
    ("attributeError", 400, False),
    ("backendError", 500, True),
    ("backendError", 503, True),
    ("badRequest", 400, False),
    ("billingNotEnabled", 403, False),
    ("billingTierLimitExceeded", 400, False),
    ("blocked", 403, False),
    ("duplicate", 409, False),
    ("internalError", 500, True),
    ("invalid", 400, False),
    ("invalidQuery", 400, False),
    ("invalidUser", 400, False),
    ("jobBackendError", 400, True),
    ("jobInternalError", 400, True),
    ("jobRateLimitExceeded", 400, True),
    ("notFound", 404, False),
    ("notImplemented", 501, False),
    ("proxyAuthenticationRequired", 407, False),
    ("quotaExceeded", 403, False),
    ("rateLimitExceeded", 403, True),
    ("resourceInUse", 400, False),
    ("resourcesExceeded", 400, False),
    ("responseTooLarge", 403, False),
    ("tableUnavailable", 400, True),
    ("timeout", 400, False),
)


def operator() -> ResumableBigQueryInsertJobOperator:
    return ResumableBigQueryInsertJobOperator(**defaults(SUCCEEDS))


def told(code: int, reason: str) -> Exception:
    error: Exception = google.from_http_status(code, "told by a test", errors=[{"reason": reason}])
    return error


@pytest.mark.parametrize(("reason", "code", "transient"), REASONS)
def test_every_documented_reason_is_classified(reason: str, code: int, transient: bool) -> None:
    """By its reason before its HTTP status: `rateLimitExceeded` comes with 403, `notImplemented` with 501."""
    assert operator().is_transient_error(told(code, reason)) is transient


@pytest.mark.parametrize(
    "error",
    [
        google.ServiceUnavailable("no reason"),
        google.TooManyRequests("no reason"),
        google.BadGateway("no reason"),
        requests.exceptions.ConnectionError("Connection reset by peer"),
        requests.exceptions.ConnectionError("Failed to resolve 'bigquery.googleapis.com'"),
        requests.exceptions.ReadTimeout("Read timed out"),
        requests.exceptions.ChunkedEncodingError("Connection broken: IncompleteRead"),
        requests.exceptions.JSONDecodeError("Expecting value", "{", 1),
        auth.TransportError("the token service can't be reached"),
        auth.RefreshError("try again", retryable=True),
        google.RetryError("Timeout of 600.0s exceeded", google.ServiceUnavailable("503")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_network_does_is_transient(error: Exception) -> None:
    """Whatever raised it: Google's client, requests below it, or the token service."""
    assert operator().is_transient_error(error)


@pytest.mark.parametrize(
    "error",
    [
        google.NotFound("no reason"),
        google.Forbidden("no reason"),
        google.BadRequest("no reason"),
        ValueError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_will_not_go_away_is_not(error: Exception) -> None:
    """An answer without a reason goes by its HTTP status."""
    assert not operator().is_transient_error(error)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("409 POST https://x/jobs: Already Exists: Job proj:US.airflow_key_1", Place("proj", "US")),
        (
            "Already Exists: Job proj:europe-west1.a-b_c\n\nLocation: US\nJob ID: a-b_c",
            Place("proj", "europe-west1"),
        ),
        ("Already Exists: Job example.com:proj:EU.a", Place("example.com:proj", "EU")),
        ("Already Exists: Job proj:airflow_key_1", None),
        ("Already Exists: Table proj:ds.t", None),
    ],
)
def test_a_409_names_the_place(text: str, place: Place | None) -> None:
    """The first line is BigQuery's; the location that Google's client adds below is the request's."""
    assert errors.place_of(google.Conflict(text)) == place


# --- states ---


def job(state: Any, reason: str | None = None) -> Any:
    return SimpleNamespace(state=state, error_result={"reason": reason} if reason else None)


def seen(one: Any) -> Observation:
    subject = operator()
    return observe(subject, status_of(one), subject.get_capabilities())


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (job("PENDING"), Observation.ACTIVE),
        (job("RUNNING"), Observation.ACTIVE),
        (job("DONE"), Observation.SUCCEEDED),
        (SimpleNamespace(state="DONE", error_result={"message": "no reason"}), Observation.FAILED),
        (job(None), Observation.UNKNOWN),
        (job("success"), Observation.UNKNOWN),
        (job("error: stopped"), Observation.UNKNOWN),
    ],
)
def test_states_are_told_in_words_of_their_own(one: Any, expected: Observation) -> None:
    """Also a state of BigQuery's that is spelled like a word of ours."""
    assert seen(one) is expected


@pytest.mark.parametrize("reason", ["stopped", "timeout", *(reason for reason, _, _ in REASONS)])
def test_a_job_that_has_ended_with_an_error_has_failed(reason: str) -> None:
    """Cancelled, out of time, for want of quota, or for BigQuery's own fault: all the same."""
    assert seen(job("DONE", reason)) is Observation.FAILED


@given(state=st.one_of(st.none(), st.text()), reason=st.one_of(st.none(), st.text()))
def test_a_state_never_heard_of_is_neither_an_end_nor_a_submit(state: Any, reason: str | None) -> None:
    """Whatever BigQuery comes to say, only DONE is an end, and nothing else leads to another job."""
    assume(state not in KNOWN_STATES)
    assert seen(job(state, reason)) is Observation.UNKNOWN
