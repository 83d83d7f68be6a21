# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's part for the stand-ins for AWS, on a log without a stand-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.cli.demo import host
from airflow_resumable.cli.demo.cases import BEFORE_ID, MARK_FAILED, MID_POLL, STATUS_503, TIME_OUT, Case
from airflow_resumable.cli.demo.emr import EmrJobs
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.testing.errors import SystemUnavailable
from airflow_resumable.testing.http_faults import HttpRequest

Request = tuple[str, dict[str, str], list[str]]

ADDED: Request = ("AddJobFlowSteps", {"JobFlowId": "j-1"}, ["s-1"])
REFUSED: Request = ("AddJobFlowSteps", {"JobFlowId": "j-1"}, [])
CANCELLED: Request = ("CancelSteps", {"ClusterId": "j-1"}, [])
OTHERS: Request = ("AddJobFlowSteps", {"JobFlowId": "j-2"}, ["s-9"])


def jobs_of(folder: Path, lane: Lane, *requests: Request) -> EmrJobs:
    """Return the system with one lane's cluster, and this log."""
    jobs = EmrJobs(folder)
    jobs._owners[lane.key] = "j-1"
    log = folder / "aws" / "requests.jsonl"
    log.parent.mkdir(exist_ok=True)
    common = {"at": 0.0, "service": "emr", "status": 200, "error": None, "reply": {}}
    lines = [
        json.dumps({**common, "number": number, "action": action, "parameters": said, "created": created})
        for number, (action, said, created) in enumerate(requests)
    ]
    log.write_text("".join(f"{line}\n" for line in lines))
    return jobs


def request(action: str, **said: Any) -> HttpRequest:
    """Return a request as it comes to the proxy."""
    headers = {"x-amz-target": f"ElasticMapReduce.{action}", "content-type": "application/x-amz-json-1.1"}
    credential = "AWS4-HMAC-SHA256 Credential=a/20261201/us-east-1/elasticmapreduce/aws4_request"
    headers["authorization"] = credential
    return HttpRequest("POST", "/", headers, json.dumps(said).encode())


def test_the_jobs_of_the_lanes_cluster_are_counted(tmp_path: Path) -> None:
    """Other lanes' count for nothing; a refused request is a submit and no job."""
    lane = Lane(MID_POLL, "ours")
    assert jobs_of(tmp_path, lane, ADDED, OTHERS, REFUSED, CANCELLED).counts(lane) == (1, 2, 1)


@pytest.mark.parametrize(
    ("case", "requests", "said"),
    [
        (MID_POLL, [ADDED], "keeps job 1"),
        (BEFORE_ID, [ADDED], "finds job 1"),
        (MID_POLL, [ADDED, ADDED], "starts job 2"),
        (MARK_FAILED, [ADDED, CANCELLED], "has cancelled job 1"),
        (BEFORE_ID, [OTHERS], "has no job"),
    ],
)
def test_a_decision_is_told_by_what_was_asked(
    case: Case, requests: list[Any], said: str, tmp_path: Path
) -> None:
    """In a few words, from the log."""
    lane = Lane(case, "stock")
    assert jobs_of(tmp_path, lane, *requests).decision(lane, 2) == said


def test_the_lanes_own_status_requests_are_spoiled(tmp_path: Path) -> None:
    """The provider asks for one step, our operator for those it knows; a lookup is neither."""
    lane = Lane(STATUS_503, "ours")
    is_meant = jobs_of(tmp_path, lane)._match(lane, submits=False)
    assert is_meant(request("DescribeStep", ClusterId="j-1", StepId="s-1"))
    assert is_meant(request("ListSteps", ClusterId="j-1", StepIds=["s-1"]))
    assert not is_meant(request("ListSteps", ClusterId="j-1"))
    assert not is_meant(request("ListSteps", ClusterId="j-2", StepIds=["s-1"]))
    assert not is_meant(request("AddJobFlowSteps", JobFlowId="j-1", Steps=[]))


def test_only_the_time_out_has_a_dag_of_its_own(tmp_path: Path) -> None:
    """All other cases are runs of one Dag."""
    jobs = EmrJobs(tmp_path)
    assert {jobs.dag_id(case) for case in jobs.cases if case is not TIME_OUT} == {"demo_emr"}
    assert jobs.dag_id(TIME_OUT) == "demo_emr_time_out"


def test_a_missing_provider_is_said_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setitem(host._LEAST_MEMORY, "emr", 0)
    monkeypatch.setattr(host, "_AMAZON_PROVIDER", "no-such-package")
    with pytest.raises(SystemUnavailable, match=r"no-such-package.*airflow-resumable\[amazon\]"):
        host.require("emr")
