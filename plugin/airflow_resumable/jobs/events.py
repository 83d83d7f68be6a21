# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What an attempt decided, told to the log, to Airflow's metrics, and to whoever registered a hook."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace

_log = logging.getLogger(__name__)
_tracer = trace.get_tracer(__name__)


@dataclass(frozen=True, slots=True)
class ResumeDecision:
    """One decision of one attempt.

    Args:
        step: What is done next: ``Submit``, ``Watch``, ``Adopt``, ``Finish``, ``Fail`` and so on.
        metric: The counter under ``resumable_job.`` that was increased, or None.
        operator: The operator's class name.
        dag_id, run_id, task_id, map_index, try_number: The attempt.
        external_id: The service's id of the job, when one is known.
        generation: The job's generation, counted from 1, when there is one.
        token: The idempotency token, when there is one.
        reason: Why, in words.
    """

    step: str
    metric: str | None
    operator: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    external_id: Any
    generation: int | None
    token: str | None
    reason: str


ResumeHook = Callable[[ResumeDecision], None]
"""Called in the task's process, between two steps; what it raises is logged and does not end the task."""

_hooks: list[ResumeHook] = []


def add_decision_hook(hook: ResumeHook) -> Callable[[], None]:
    """Register a hook for every decision made in this process; call what is returned to remove it.

    Register it where each task's process comes by: in a plugin, in ``airflow_local_settings``, or in
    the Dag file.
    """
    _hooks.append(hook)
    return lambda: _hooks.remove(hook) if hook in _hooks else None


def announce(decision: ResumeDecision, external_id_key: str, stats_tags: Mapping[str, Any]) -> None:
    """Tell a decision under Airflow's own span name.

    Args:
        decision: The decision.
        external_id_key: The adapter's key.
        stats_tags: The task instance's; of these the team's name goes into the metric.
    """
    team = stats_tags.get("team_name")
    with _tracer.start_as_current_span("resumable_job.resume_decision") as span:
        span.set_attribute("operator", decision.operator)
        span.set_attribute("resumable.external_id_key", external_id_key)
        span.set_attribute("resumable.decision", decision.metric or decision.step)
        span.set_attribute("resumable.external_id", str(decision.external_id))
        tell(decision, {"operator": decision.operator, **({"team_name": team} if team else {})})


def tell(decision: ResumeDecision, tags: dict[str, str]) -> None:
    """Log a decision, count it under Airflow's names, and call the hooks.

    Args:
        decision: The decision.
        tags: The metric's tags: bounded ones only, no id of a Dag, run or job.
    """
    _log.info(
        "decided: %s; job %r, generation %s, token %s: %s",
        decision.step,
        decision.external_id,
        decision.generation,
        decision.token,
        decision.reason,
    )
    if decision.metric is not None:
        from airflow_resumable.integration.compat import count

        try:
            count(f"resumable_job.{decision.metric}", tags)
        except Exception:
            _log.exception("metric resumable_job.%s could not be counted; the task goes on", decision.metric)
    for hook in tuple(_hooks):
        try:
            hook(decision)
        except Exception:
            _log.exception("decision hook %r failed; the task goes on", hook)
