# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the docs say of each operator: read from its class, which says what it can do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.operators import _spark_kubernetes, _spark_standalone, _spark_yarn
from scripts import generate, operator_facts

OPERATORS = operator_facts.operators()


def test_every_operator_has_facts_and_a_page() -> None:
    """A row of the docs' overview for each service, and a page with the tables of its own."""
    assert {
        "ResumableEmrContainerOperator",
        "ResumableEmrServerlessStartJobOperator",
        "ResumableKubernetesJobOperator",
        "ResumableKubernetesPodOperator",
        "ResumableSparkConnectOperator",
        "ResumableSparkSubmitOperator",
    } <= set(OPERATORS)
    folder = Path(__file__).resolve().parents[2] / "docs/operators"
    pages = "".join(page.read_text(encoding="utf-8") for page in folder.glob("*.md"))
    included = set(re.findall(r"{include} \.\./_generated/(facts_\w+\.md)", pages))
    assert included == {Path(name).name for name in generate.GENERATORS if "/facts_" in name}
    services = sum(len(kind.service_facts) for kind in OPERATORS.values())
    assert operator_facts.overview().count("\n| `Resumable") == services


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_facts_agree_with_what_the_operator_can_do(name: str) -> None:
    """The weakest window that is stated is the class's own, and whoever has a window says what it is."""
    kind: Any = OPERATORS[name]
    order = list(SubmitWindow)

    stated = [one.submit_window for one in kind.service_facts]
    assert max(stated, key=order.index) is kind.submit_window
    assert all(one.window and one.token and one.memory and one.cancel for one in kind.service_facts)
    assert all(one.retries >= 1 and one.retry_delay.total_seconds() >= 0 for one in kind.service_facts)


def test_a_sparks_cluster_is_graded_as_its_target_is() -> None:
    """What the page says of a cluster is what the operator does there."""
    targets = (
        _spark_standalone.StandaloneTarget,
        _spark_kubernetes.KubernetesTarget,
        _spark_yarn.YarnTarget,
    )
    stated = {
        one.service: one.submit_window for one in OPERATORS["ResumableSparkSubmitOperator"].service_facts
    }

    assert sorted(stated.values()) == sorted(one.submit_window for one in targets)


def test_a_kill_table_shows_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the configuration of whoever makes the page."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__ON_USER_STOP", "keep")
    page = operator_facts.page(OPERATORS["ResumableKubernetesPodOperator"])

    assert "| a user marks the task failed, success or skipped | cancel | cancel |" in page
    assert "| SIGTERM while the task is to run: eviction, redeploy, shutdown | keep | cancel |" in page


def test_a_role_has_each_verb_once() -> None:
    """What several things need is merged into one rule."""
    page = operator_facts.page(OPERATORS["ResumableSparkSubmitOperator"])
    role = page[page.index("```yaml") :]

    assert role.count('resources: ["pods"]') == 1
    assert "verbs: [create, get, list, delete, watch, patch]" in role
