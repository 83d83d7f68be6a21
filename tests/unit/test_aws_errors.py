# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What botocore's errors mean: ask again, fetch credentials, send a submit again, or give up."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions  # type: ignore[import-untyped]
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

from airflow_resumable.operators import _aws_errors as errors

URL = {"endpoint_url": "https://service"}


def answer(code: str, status: int = 400, message: str = "because") -> Any:
    """Return the error that botocore makes of an answer."""
    told = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return exceptions.ClientError(told, "AddJobFlowSteps")


@pytest.mark.parametrize(
    ("error", "asks_again", "sends_again"),
    [
        (answer("ThrottlingException"), True, True),
        (answer("TooManyRequestsException", 429), True, True),
        (answer("RequestLimitExceeded", 503), True, True),
        (answer("ServiceUnavailable", 503), True, False),
        (answer("InternalServerError", 500), True, False),
        (answer("RequestTimeout"), True, False),
        (answer("ValidationException"), False, False),
        (answer("AccessDeniedException", 403), False, False),
        (answer("UnrecognizedClientException", 403), False, False),
        (exceptions.EndpointConnectionError(**URL, error="no such host"), True, True),
        (exceptions.ConnectTimeoutError(**URL, error="slow"), True, True),
        (exceptions.ReadTimeoutError(**URL, error="slow"), True, False),
        (exceptions.ConnectionClosedError(**URL, error="reset"), True, False),
        (exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2), True, False),
        (exceptions.CredentialRetrievalError(provider="role", error_msg="busy"), True, False),
        (ResponseParserError("cut off"), True, False),
        (errors.AnswerCutOff("cut off"), True, False),
        (exceptions.NoCredentialsError(), False, False),
        (exceptions.ParamValidationError(report="no"), False, False),
        (ValueError("no"), False, False),
    ],
    ids=lambda one: errors.code_of(one) or type(one).__name__ if isinstance(one, Exception) else None,
)
def test_what_an_error_means(error: Exception, asks_again: bool, sends_again: bool) -> None:
    """A question may always be asked again; a submit only when the error proves that nothing was done."""
    assert errors.is_transient(error) is asks_again
    assert errors.was_not_taken(error) is sends_again
    assert not errors.is_expired(error)


@pytest.mark.parametrize("code", ["ExpiredTokenException", "ExpiredToken", "RequestExpired"])
def test_credentials_that_have_expired_are_told_from_wrong_ones(code: str) -> None:
    """They are fetched again; a submit that was refused for them has done nothing."""
    error = answer(code, 403)
    assert errors.is_expired(error)
    assert errors.was_not_taken(error)


def test_the_services_own_words_are_told() -> None:
    """Code and message; of any other error its text."""
    assert errors.code_of(answer("ValidationException")) == "ValidationException"
    assert errors.message_of(answer("ValidationException", message="too many")) == "too many"
    assert (errors.code_of(ValueError("no")), errors.message_of(ValueError("no"))) == ("", "no")


def test_a_part_that_is_missing_is_no_empty_one() -> None:
    """botocore reads JSON that was cut off as an answer without any part."""
    assert errors.part_of({"Steps": []}, "Steps") == []
    with pytest.raises(errors.AnswerCutOff, match="no 'Steps'"):
        errors.part_of({"ResponseMetadata": {}}, "Steps")
