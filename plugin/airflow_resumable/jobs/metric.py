# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Which counter a step of an attempt increases."""

from __future__ import annotations

from airflow_resumable.jobs.decision import Facts, was_cleared
from airflow_resumable.jobs.steps import (
    Adopt,
    AskStatus,
    Fail,
    Finish,
    LookUpToken,
    Stand,
    Step,
    Submit,
    Watch,
)


def metric_of(step: Step, facts: Facts) -> str | None:
    """Return the counter under ``resumable_job.`` that a step increases: Airflow's own, and four of ours."""
    match step:
        case Stand():
            return "superseded"
        case Adopt():
            return "adopted"
        case LookUpToken():
            return "intent_dangling"
        case AskStatus():
            return "reconnect_attempt"
        case Watch():
            return "reconnect_success"
        case Finish():
            return "already_succeeded"
        case Fail(error="JobAmbiguous"):
            return "duplicate_found"
        case Submit(same_token=True):
            return None if facts.can.find_by_token else "intent_dangling"
        case Submit():
            return (
                "fresh_submit"
                if facts.record is None or was_cleared(facts, facts.record)
                else "terminal_resubmit"
            )
        case _:
            return None
