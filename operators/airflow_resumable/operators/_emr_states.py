# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The states of steps that were added together, and what they say of the whole.

See https://docs.aws.amazon.com/emr/latest/APIReference/API_StepStatus.html for the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PENDING = "PENDING"
RUNNING = "RUNNING"
CANCEL_PENDING = "CANCEL_PENDING"
COMPLETED = "COMPLETED"
FAILED = ("FAILED", "CANCELLED", "INTERRUPTED")
ENDED = (COMPLETED, *FAILED)

CLUSTER_GONE = "CLUSTER_TERMINATED"
"""Not a word of EMR's: steps are listed as if they were going to run, on a cluster that is terminated."""
ADDED = "ADDED"
"""Not a word of EMR's: the steps were added, and nobody waits for their end."""

_KNOWN = (RUNNING, PENDING, CANCEL_PENDING, *ENDED)


def together(states: Iterable[str]) -> str:
    """Return the one state that counts for steps that were added together.

    While one is at work or waits for its turn, the whole is alive, whatever has become of the others: steps
    go on after one that failed, by its ``ActionOnFailure``. A word that isn't EMR's comes before all ends.
    """
    seen = list(states)
    for live in (RUNNING, PENDING):
        if live in seen:
            return live
    for state in seen:
        if state not in _KNOWN:
            return state
    for state in (CANCEL_PENDING, *FAILED):
        if state in seen:
            return state
    return COMPLETED if seen else ""


def is_active(status: str) -> bool:
    """Say whether steps may still run."""
    return status in (RUNNING, PENDING)


def is_failed(status: str) -> bool:
    """Say whether all steps have ended, and not all of them well."""
    return status in (*FAILED, CLUSTER_GONE)


def why(step: Mapping[str, Any]) -> str:
    """Return what EMR says of the end of a step, as its summary in a list has it."""
    status = step.get("Status", {})
    details, change = status.get("FailureDetails", {}), status.get("StateChangeReason", {})
    said = [
        str(part)
        for part in (details.get("Reason"), details.get("Message"), change.get("Message"))
        if part not in (None, "")
    ]
    if log := details.get("LogFile"):
        said.append(f"see {log}")
    return f"step {step.get('Id')} ({step.get('Name')}) is {status.get('State')}" + (
        f": {'; '.join(dict.fromkeys(said))}" if said else ""
    )
