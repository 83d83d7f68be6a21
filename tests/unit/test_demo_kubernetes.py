# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's part for Kubernetes, as far as it needs no cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.cli.demo import host
from airflow_resumable.cli.demo.cases import BEFORE_ID, MARK_FAILED, MID_POLL, TIME_OUT, Case
from airflow_resumable.cli.demo.kubernetes import CASES, KubernetesJobs
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.testing.errors import SystemUnavailable


class _Jobs(KubernetesJobs):
    """The system, with one lane's namespace and no cluster."""

    def __init__(self, folder: Path, lane: Lane) -> None:
        super().__init__(folder)
        self._namespaces[lane.key] = "mine"


def _event(verb: str, code: int, namespace: str = "mine", user: str = "admin") -> str:
    event: dict[str, Any] = {
        "verb": verb,
        "requestURI": f"/api/v1/namespaces/{namespace}/pods",
        "user": {"username": user},
        "objectRef": {"resource": "pods", "namespace": namespace},
        "responseStatus": {"code": code},
    }
    return json.dumps(event) + "\n"


def _log(folder: Path, *lines: str) -> None:
    file = folder / "cluster" / "audit.log"
    file.parent.mkdir(parents=True)
    file.write_text("".join(lines), encoding="utf-8")


def test_the_audit_log_is_counted_by_namespace(tmp_path: Path) -> None:
    """Refused creates are submits and no jobs; the node's requests and other lanes' count for nothing."""
    lane = Lane(MID_POLL, "ours")
    _log(
        tmp_path,
        _event("create", 201),
        _event("create", 409),
        _event("delete", 200),
        _event("create", 201, namespace="other"),
        _event("delete", 200, user="stand-in-node"),
    )

    assert _Jobs(tmp_path, lane).counts(lane) == (1, 2, 1)


@pytest.mark.parametrize(
    ("case", "requests", "said"),
    [
        (MID_POLL, [("create", 201)], "keeps job 1"),
        (BEFORE_ID, [("create", 201)], "finds job 1"),
        (MID_POLL, [("create", 201), ("create", 201)], "starts job 2"),
        (MARK_FAILED, [("create", 201), ("delete", 200)], "has cancelled job 1"),
        (BEFORE_ID, [], "has no job"),
    ],
)
def test_a_decision_is_told_by_what_was_asked(
    case: Case, requests: list[tuple[str, int]], said: str, tmp_path: Path
) -> None:
    """In a few words, from the audit log."""
    lane = Lane(case, "stock")
    _log(tmp_path, *(_event(*one) for one in requests))

    assert _Jobs(tmp_path, lane).decision(lane, 2) == said


def test_no_case_has_a_window() -> None:
    """A pod is found by its labels, so two jobs are never allowed where one is right."""
    assert not [case.name for case in CASES if case.window]


def test_only_the_time_out_has_a_dag_of_its_own(tmp_path: Path) -> None:
    """All other cases are runs of one Dag."""
    jobs = KubernetesJobs(tmp_path)

    assert {jobs.dag_id(case) for case in CASES if case is not TIME_OUT} == {"demo_kubernetes"}
    assert jobs.dag_id(TIME_OUT) == "demo_kubernetes_time_out"


def test_a_missing_control_plane_is_said_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No program in the cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(host._LEAST_MEMORY, "kubernetes", 0)

    with pytest.raises(SystemUnavailable, match=r"scripts/kubernetes_control_plane\.sh"):
        host.require("kubernetes")
