# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong when a real system is started on this host."""

from __future__ import annotations


class SystemUnavailable(RuntimeError):
    """This host lacks something a system needs; the message is one line that says what to do."""


class StackError(RuntimeError):
    """A started system died, wasn't ready in time or refused a request; the message shows its words."""
