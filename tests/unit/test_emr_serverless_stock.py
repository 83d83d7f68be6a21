# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The operators of job runs beside the provider's: results, calls, rights, change-over.

The service's log of requests counts.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.amazon.aws.operators.emr import EmrContainerOperator, EmrServerlessStartJobOperator
from airflow.sdk.exceptions import TaskDeferred

from airflow_resumable.jobs.link import JobLink
from airflow_resumable.operators.emr_containers import ResumableEmrContainerOperator
from airflow_resumable.operators.emr_serverless import ResumableEmrServerlessStartJobOperator
from airflow_resumable.testing.aws import AwsService
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests.emr_job_runs import JobRunService, containers, cut_off, cut_off_connects, reach, serverless

__all__ = ["cut_off"]
pytestmark = [cut_off_connects, pytest.mark.usefixtures("cut_off")]

DOCS = Path(__file__).resolve().parents[2] / "docs/operators"
LOOKS = 12

Make = Callable[..., Any]


class Kind:
    """One of the two services.

    Args:
        name: The boto3 client's.
        make: Makes an operator.
        stock: The provider's.
        look: The action that asks for a run.
    """

    def __init__(self, name: Any, make: Make, stock: Any, look: str) -> None:
        self.name = name
        self.make = make
        self.stock = stock
        self.look = look

    def event(self, place: str, run: str) -> dict[str, Any]:
        """Return the event of the provider's trigger when a run has succeeded."""
        if self.name == "emr-containers":
            return {"status": "success", "job_id": run}
        return {"status": "success", "job_details": {"application_id": place, "job_id": run}}


KINDS = [
    Kind("emr-serverless", serverless, EmrServerlessStartJobOperator, "GetJobRun"),
    Kind("emr-containers", containers, EmrContainerOperator, "DescribeJobRun"),
]


@pytest.fixture(params=KINDS, ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each of the two."""
    kind: Kind = request.param
    return kind


@pytest.fixture
def service(aws: AwsService, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> JobRunService:
    """An application or virtual cluster without runs."""
    reach(aws, monkeypatch)
    return JobRunService(aws, kind.name)


@pytest.fixture
def tries() -> TaskTries:
    """One task instance."""
    return TaskTries()


def pushed(tries: TaskTries, run: str) -> dict[str, str]:
    """Return what was pushed, with the run's id left out, and without what only ours has."""
    ours = ("_link_",)
    return {
        key: json.dumps(value).replace(run, "RUN") for key, value in tries.xcoms if not key.startswith(ours)
    }


def test_result_and_xcoms_are_the_parents(kind: Kind, service: JobRunService) -> None:
    """The run's id, and what the links are made of; from a try that watched and from one that reconnected."""
    more: dict[str, Any] = {}
    if kind.name == "emr-serverless":
        monitoring = {
            "s3MonitoringConfiguration": {"logUri": "s3://logs/spark"},
            "cloudWatchLoggingConfiguration": {"enabled": True},
        }
        more = {
            "configuration_overrides": {"monitoringConfiguration": monitoring},
            "enable_application_ui_links": True,
        }
    stock, ours, again = (TaskTries(run_id=name) for name in ("stock", "ours", "again"))
    theirs = stock.run(kind.make(service, kind=kind.stock, **more))
    watched = ours.run(kind.make(service, **more))
    assert again.crash(lambda: kind.make(service, "runs", **more), "mid_poll")
    again.xcoms.clear()
    service.release()
    found = again.run(kind.make(service, "runs", **more))
    assert [theirs, watched, found] == service.ids()
    assert pushed(ours, watched) == pushed(stock, theirs) == pushed(again, found)
    assert JobLink().xcom_key in dict(ours.xcoms)


def calls_of(of: Kind, aws: AwsService, patch: pytest.MonkeyPatch, **more: Any) -> list[str]:
    """Return what a try asks that finds its run at work at the first looks."""
    service, pauses = JobRunService(aws, of.name), itertools.count(1)

    def pause(_: float) -> None:
        if next(pauses) == LOOKS:
            service.release()

    with patch.context() as patched:
        patched.setattr("time.sleep", pause)
        TaskTries(run_id=service.place).run(of.make(service, "runs", **more))
    return service.calls()


def test_no_more_calls_than_the_parent(
    kind: Kind, service: JobRunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a run that is looked at so many times, at the same interval: the same calls, in the same order."""
    theirs = calls_of(kind, service.aws, monkeypatch, kind=kind.stock)
    assert calls_of(kind, service.aws, monkeypatch) == theirs
    assert theirs.count(kind.look) == LOOKS + 1


def test_ours_takes_over_what_the_provider_has_deferred(
    kind: Kind, service: JobRunService, tries: TaskTries
) -> None:
    """Its trigger's event names the run, which is put on record and watched to its end."""
    theirs = kind.make(service, "runs", kind=kind.stock, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        tries.run(theirs)
    assert deferred.value.method_name == "execute_complete"
    (run,) = service.ids()
    service.release()
    ours = kind.make(service, "runs")
    event = kind.event(service.place, run)
    assert ours.execute_complete(tries.context(ours, try_number=1), event) == run
    record = tries.record(ours)
    assert (record["phase"], record["external_id"]) == ("succeeded", run)
    assert tries.run(kind.make(service, "runs")) == run
    assert service.ids() == [run]


def test_ours_believes_the_service_and_not_the_providers_event(
    kind: Kind, service: JobRunService, tries: TaskTries
) -> None:
    """A run that goes on is handed to our own trigger."""
    with pytest.raises(TaskDeferred):
        tries.run(kind.make(service, "runs", kind=kind.stock, deferrable=True))
    ours = kind.make(service, "runs", deferrable=True)
    event = kind.event(service.place, service.ids()[0])
    with pytest.raises(TaskDeferred) as deferred:
        ours.execute_complete(tries.context(ours, try_number=1), event)
    assert deferred.value.method_name == "resume_job"
    assert service.cancels() == 0


def test_a_run_of_ours_is_found_again_after_tries_of_the_providers(
    kind: Kind, service: JobRunService, tries: TaskTries
) -> None:
    """Back and forth: the provider's operator starts a run of its own, and ours watches the first one."""
    assert tries.crash(lambda: kind.make(service, "runs"), "after_id")
    first = service.ids()[0]
    tries.run(kind.make(service, kind=kind.stock))
    service.release()
    assert tries.run(kind.make(service, "runs")) == first
    assert len(service.ids()) == 2


def test_without_durable_it_is_the_parent(kind: Kind, service: JobRunService, tries: TaskTries) -> None:
    """Each try starts a run, with the user's token and without a record."""
    for _ in range(2):
        operator = kind.make(service, name="nightly", durable=False, client_request_token="mine")
        assert tries.run(operator) == service.ids()[0]
        assert tries.record(operator) is None
    assert set(service.tokens()) == {"mine"}


def test_without_a_store_the_run_is_started_all_the_same(
    kind: Kind, service: JobRunService, tries: TaskTries
) -> None:
    """With on_store_down=submit; under a token of nobody's, so no later try is given this run."""
    operator = kind.make(service, resume_policy={"on_store_down": "submit"})
    context: Any = tries.context(operator)
    context["task_state_store"] = None
    assert operator.execute(context) == service.ids()[0]
    assert re.fullmatch(r"[0-9a-f-]{36}", service.tokens()[0])


@pytest.mark.parametrize(
    ("page", "operator"),
    [
        ("emr_serverless", ResumableEmrServerlessStartJobOperator),
        ("emr_containers", ResumableEmrContainerOperator),
    ],
)
def test_the_policy_of_the_docs_is_what_the_facts_say(page: str, operator: Any) -> None:
    """Every action of the table but the dashboards, in the policy to copy."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    policy = json.loads(text.partition("```json\n")[2].partition("```")[0])
    allowed = set()
    for statement in policy["Statement"]:
        actions = statement["Action"]
        allowed |= {actions} if isinstance(actions, str) else set(actions)
    (facts,) = operator.service_facts
    stated = {f"{one.group}:{verb}" for one in facts.permissions for verb in one.verbs}
    assert stated - allowed <= {"emr-serverless:GetDashboardForJobRun"}
    assert allowed <= stated


def test_a_task_asks_for_no_more_than_the_docs_say(kind: Kind, service: JobRunService) -> None:
    """Over a crash, a clear and a stop."""
    tries = TaskTries()
    tries.crash(lambda: kind.make(service, "runs"), "after_accept")
    tries.stop(kind.make(service, "runs"), "running")
    tries.clear()
    with at_point("after_id", service.release):
        tries.run(kind.make(service, "runs"))
    (facts,) = kind.make(service).service_facts
    assert set(service.calls()) <= {verb for one in facts.permissions for verb in one.verbs}
