# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Idempotency by ``clientToken``, which moto ignores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_resumable.testing.aws.errors import AwsError
from airflow_resumable.testing.aws.requests import Call

ACTIONS = {
    ("emr-serverless", "StartJobRun"),
    ("emr-serverless", "CreateApplication"),
    ("emr-containers", "StartJobRun"),
    ("emr-containers", "CreateVirtualCluster"),
}


@dataclass(frozen=True, slots=True)
class _Remembered:
    parameters: str
    reply: dict[str, Any]


class ClientTokens:
    """The same token with the same parameters gets the first reply again; with others it is refused.

    Sources: botocore's models mark ``clientToken`` as ``idempotencyToken`` in all four actions ("The client
    idempotency token of the job run to start", required, 1 to 64 characters). EMR Serverless lists
    ``ConflictException`` (409) among the errors of both its actions
    (https://docs.aws.amazon.com/emr-serverless/latest/APIReference/API_StartJobRun.html); EMR on EKS lists
    ``ValidationException`` (400) and no conflict
    (https://docs.aws.amazon.com/emr-on-eks/latest/APIReference/API_StartJobRun.html). The rule itself is
    AWS's general one: "Retrying with the same client token but with different request parameters" fails with
    a parameter mismatch (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html). Neither
    document says how long a token is remembered, nor whether it is the account's or the application's:
    here it lives until `forget` and is the account's, the stricter reading.
    """

    def __init__(self) -> None:
        self._remembered: dict[tuple[str, str, str], _Remembered] = {}

    def first_reply(self, call: Call) -> dict[str, Any] | None:
        """Return the reply that this token got before; None for a new token.

        Raises:
            AwsError: The token came with other parameters.
        """
        known = self._remembered.get(_key(call))
        if known is None:
            return None
        if known.parameters == _fingerprint(call.parameters):
            return known.reply
        text = f"Client token {call.parameters['clientToken']} was used before with other request parameters"
        if call.service == "emr-serverless":
            raise AwsError("ConflictException", text, 409)
        raise AwsError("ValidationException", text)

    def remember(self, call: Call, reply: dict[str, Any]) -> None:
        """Keep the reply to a token's first request."""
        if "clientToken" in call.parameters:
            self._remembered[_key(call)] = _Remembered(_fingerprint(call.parameters), reply)

    def forget(self) -> None:
        """Let every token be new again, as after whatever time the service remembers them."""
        self._remembered.clear()


def _key(call: Call) -> tuple[str, str, str]:
    return call.service, call.action, str(call.parameters.get("clientToken"))


def _fingerprint(parameters: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in parameters.items() if name != "clientToken"}
    return json.dumps(rest, sort_keys=True)
