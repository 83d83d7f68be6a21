# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of each operator's page, from what its class says of its service."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import airflow_resumable.operators
from airflow_resumable.jobs.kill import KillReason, action_for
from airflow_resumable.jobs.policies import ResumePolicy
from airflow_resumable.operators._facts import Permission, ServiceFacts

# As declared, whatever the configuration of whoever runs this.
_DEFAULTS = ResumePolicy(
    on_infrastructure_stop="keep",
    on_user_stop="cancel",
    on_timeout="keep",
    on_final_failure="cancel",
    on_clear="resubmit",
)
_REASONS = {
    KillReason.USER: "a user marks the task failed, success or skipped",
    KillReason.CLEARED: "a user clears the running task",
    KillReason.INFRASTRUCTURE: "SIGTERM while the task is to run: eviction, redeploy, shutdown",
    KillReason.TIMEOUT: "`execution_timeout`",
    KillReason.SUPERSEDED: "another attempt has taken over",
}


def operators() -> dict[str, type[Any]]:
    """Return every operator with facts, by its name; public modules only, in their order."""
    found: dict[str, type[Any]] = {}
    package = airflow_resumable.operators
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("_"):
            continue
        names = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        for name, kind in sorted(names.items()):
            if name.startswith("Resumable") and hasattr(kind, "service_facts"):
                found[name] = kind
    return found


def overview() -> str:
    """Return one row for each service of each operator."""
    lines = [
        "| operator | service | submit window | what remains open |",
        "|:---|:---|:---|:---|",
        *(
            f"| `{name}` | {facts.service} | **{facts.submit_window}** | {facts.window} |"
            for name, kind in operators().items()
            for facts in kind.service_facts
        ),
    ]
    return "\n".join(lines) + "\n"


def page(kind: type[Any]) -> str:
    """Return the tables of one operator."""
    parts = [_table(kind.service_facts), _kills(), *_permissions(kind.service_facts)]
    return "\n".join(parts)


def _table(all_facts: tuple[ServiceFacts, ...]) -> str:
    rows = {
        "submit window": [f"**{one.submit_window}**" for one in all_facts],
        "what remains open": [one.window for one in all_facts],
        "the token's name there": [one.token for one in all_facts],
        "the service's memory": [one.memory for one in all_facts],
        "a cancel": [one.cancel for one in all_facts],
        "smallest sensible retries": [
            f"`retries={one.retries}, retry_delay={_delay(one.retry_delay)}`: {one.retries_why}"
            for one in all_facts
        ],
    }
    lines = [
        f"| | {' | '.join(one.service for one in all_facts)} |",
        "|:---|" + ":---|" * len(all_facts),
        *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()),
    ]
    return "\n".join(lines) + "\n"


def _delay(delay: timedelta) -> str:
    return f"timedelta(seconds={delay.total_seconds():g})"


def _kills() -> str:
    lines = [
        "What becomes of the job when its task is ended, by the default policies:",
        "",
        "| why | tries are left | the last try |",
        "|:---|:---|:---|",
    ]
    for reason, words in _REASONS.items():
        cells = [action_for(reason, _DEFAULTS, last_try=last) for last in (False, True)]
        if reason is KillReason.SUPERSEDED:
            cells = ["left alone", "left alone"]
        lines.append(f"| {words} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def _permissions(all_facts: tuple[ServiceFacts, ...]) -> Iterator[str]:
    for facts in all_facts:
        if not facts.permissions:
            continue
        title = f"Permissions for {facts.service}:" if len(all_facts) > 1 else "Permissions:"
        rows = "\n".join(
            f"| {f'{one.group}/' if one.group else ''}{one.resource} | {', '.join(one.verbs)} | {one.why} |"
            for one in facts.permissions
        )
        yield f"{title}\n\n| resource | verbs | why |\n|:---|:---|:---|\n{rows}\n"
        if "Kubernetes" in facts.service:
            yield f"As a Role, tried on a real API server:\n\n```yaml\n{_role(facts.permissions)}```\n"


def _role(permissions: tuple[Permission, ...]) -> str:
    merged: dict[tuple[str, str], list[str]] = {}
    for one in permissions:
        verbs = merged.setdefault((one.group, one.resource), [])
        verbs += [verb for verb in one.verbs if verb not in verbs]
    lines = [
        "apiVersion: rbac.authorization.k8s.io/v1",
        "kind: Role",
        "metadata:",
        "  name: airflow-resumable",
    ]
    lines.append("rules:")
    for (group, resource), verbs in merged.items():
        lines += [
            f'  - apiGroups: ["{group}"]',
            f'    resources: ["{resource}"]',
            f"    verbs: [{', '.join(verbs)}]",
        ]
    return "\n".join(lines) + "\n"
