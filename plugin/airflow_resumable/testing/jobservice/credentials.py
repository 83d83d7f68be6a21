# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Credentials good for a limited number of requests, as short-lived cloud credentials are for a time."""

from __future__ import annotations

import secrets
import threading


class Credentials:
    """Hands out credentials and counts their uses; atomic under threads, held in memory only.

    Args:
        uses: Requests one credential is good for; None turns the check off.
    """

    def __init__(self, uses: int | None) -> None:
        self._uses = uses
        self._left: dict[str, int] = {}
        self._lock = threading.Lock()

    def issue(self) -> str:
        """Return a new credential."""
        credential = secrets.token_hex(16)
        with self._lock:
            self._left[credential] = self._uses or 0
        return credential

    def refusal(self, authorization: str | None) -> str | None:
        """Use the credential of an ``Authorization`` header once; return the error code if it isn't good."""
        if self._uses is None:
            return None
        scheme, _, credential = (authorization or "").partition(" ")
        with self._lock:
            left = self._left.get(credential)
            if scheme.lower() != "bearer" or left is None:
                return "unauthorized"
            if left == 0:
                return "expired"
            self._left[credential] = left - 1
        return None
