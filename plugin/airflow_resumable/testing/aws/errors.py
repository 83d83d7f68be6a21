# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""An error as the AWS services say it."""

from __future__ import annotations

import json


class AwsError(Exception):
    """An error reply.

    Args:
        code: Like ``ValidationException``.
        message: For people.
        status: HTTP status.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status

    @property
    def headers(self) -> dict[str, str]:
        """The reply's headers; the REST services name the code here."""
        return {"Content-Type": "application/x-amz-json-1.1", "x-amzn-ErrorType": self.code}

    @property
    def body(self) -> str:
        """The reply's JSON; EMR names the code here."""
        return json.dumps({"__type": self.code, "message": self.message})
