# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableEmrAddStepsOperator` beside the provider's operator: results, XComs, links, change-over.

EMR is moto behind a layer that mends it, see `airflow_resumable.testing.aws`; the layer's log counts.
"""

from __future__ import annotations

import inspect
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, TaskDeferred

from airflow_resumable.integration.examples import example_dags_folder
from airflow_resumable.operators.emr import ResumableEmrAddStepsOperator
from airflow_resumable.testing.aws import AwsService, step
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.task_tries import TaskTries
from tests.emr_job_runs import reach
from tests.emr_service import EmrService

STEPS = [step("a", ["sleep", "0"]), step("b", ["sleep", "0"])]
# The parent pushes these, and Airflow the links at the end of a task; here the links come at once.
LINKS = ["_link_EmrClusterLink", "_link_EmrLogsLink", "_link_JobLink"]


@pytest.fixture
def service(aws: AwsService, monkeypatch: pytest.MonkeyPatch) -> EmrService:
    """A cluster of the test's own, whose steps run ten at once."""
    reach(aws, monkeypatch)
    return EmrService(aws)


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"))


def stock(service: EmrService, **more: Any) -> EmrAddStepsOperator:
    """Make the provider's operator."""
    given = {"wait_for_completion": True, "waiter_delay": 1, "steps": STEPS, **more}
    return EmrAddStepsOperator(task_id="task", job_flow_id=service.cluster, retries=2, **given)


def run_stock(operator: BaseOperator, tries: TaskTries) -> Any:
    """Run a try of the provider's operator."""
    return operator.execute(tries.context(operator))


def test_it_takes_what_the_parent_takes() -> None:
    """Same template fields, and each argument of the parent ends up where the parent puts it."""
    given: dict[str, Any] = {
        "task_id": "task",
        "job_flow_id": "j-1",
        "cluster_states": ["WAITING"],
        "steps": STEPS,
        "wait_for_completion": True,
        "waiter_delay": 7,
        "waiter_max_attempts": 9,
        "execution_role_arn": "arn",
        "region_name": "eu-west-1",
        "verify": False,
        "botocore_config": {"read_timeout": 3},
        "retries": 2,
    }
    parent, ours = EmrAddStepsOperator(**given), ResumableEmrAddStepsOperator(**given)
    assert set(ours.template_fields) == set(parent.template_fields)
    assert (ours.template_ext, ours.template_fields_renderers) == (
        parent.template_ext,
        parent.template_fields_renderers,
    )
    for name in inspect.signature(EmrAddStepsOperator.__init__).parameters:
        if name not in ("self", "kwargs"):
            assert getattr(ours, name) == getattr(parent, name), name
    with pytest.raises(AirflowException, match="Exactly one of job_flow_id or job_flow_name"):
        ResumableEmrAddStepsOperator(task_id="task", retries=2)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"wait_for_completion": False}, {"steps": repr(STEPS)}, {"do_xcom_push": False}],
    ids=["waits", "adds", "text", "no XCom"],
)
def test_results_and_xcoms_are_the_parents(
    service: EmrService, tries: TaskTries, arguments: dict[str, Any]
) -> None:
    """The list of ids, and what is pushed, down to the parts of the links."""
    theirs = TaskTries()
    expected = run_stock(stock(service, **arguments), theirs)
    returned = tries.run(service.operator(**{"steps": STEPS, **arguments}))
    assert (expected, returned) == (service.steps()[:2], service.steps()[2:])
    ours = {key: value for key, value in tries.xcoms if key not in LINKS}
    assert ours == dict(theirs.xcoms)


def test_what_is_sent_is_the_parents_but_for_the_names(service: EmrService, tries: TaskTries) -> None:
    """The runtime role too."""
    role = "arn:aws:iam::123456789012:role/job"
    run_stock(stock(service, execution_role_arn=role), TaskTries())
    tries.run(service.operator(*STEPS, execution_role_arn=role))
    theirs, ours = (one.parameters for one in service.requests("AddJobFlowSteps"))
    for one, name in zip(ours["Steps"], ("a", "b"), strict=True):
        assert one["Name"].startswith(f"{name} [r")
        one["Name"] = name
    assert ours == theirs


def test_links_are_there_before_the_task_has_ended(service: EmrService, tries: TaskTries) -> None:
    """As soon as the steps are on record, each where Airflow puts it."""
    assert tries.crash(lambda: service.operator(step("work")), "after_id")
    pushed = dict(tries.xcoms)
    page = f"https://console.aws.amazon.com/emr/home?region=us-east-1#/clusterDetails/{service.cluster}"
    assert (pushed["_link_EmrClusterLink"], pushed["_link_JobLink"]) == (page, page)
    assert pushed["emr_logs"]["job_flow_id"] == service.cluster
    service.release()


def test_links_to_logs_name_the_bucket(service: EmrService, tries: TaskTries) -> None:
    """Where the cluster has one."""
    instances = {"InstanceCount": 1, "MasterInstanceType": "m5.xlarge", "KeepJobFlowAliveWhenNoSteps": True}
    made = service.aws.client("emr").run_job_flow(
        Name="logs", Instances=instances, JobFlowRole="a", ServiceRole="b", LogUri="s3://bucket/logs/"
    )
    cluster = made["JobFlowId"]
    tries.run(service.operator(*STEPS, job_flow_id=cluster))
    link = dict(tries.xcoms)["_link_EmrLogsLink"]
    assert "s3/buckets/bucket/logs" in link
    assert link.endswith(f"prefix={cluster}/")


def test_steps_may_be_a_template_file(service: EmrService, tries: TaskTries, tmp_path: Path) -> None:
    """Rendered as the parent renders it."""
    from airflow.sdk import DAG

    given = json.dumps([{**STEPS[0], "Name": "load {{ params.day }}"}])
    (tmp_path / "steps.json").write_text(given)
    with DAG("dag", schedule=None, template_searchpath=[str(tmp_path)], params={"day": "2026-12-01"}) as dag:
        subject = service.operator(steps="steps.json")
    subject.resolve_template_files()
    subject.render_template_fields({"params": dag.params.dump(), "dag": dag})
    tries.run(subject)
    (sent,) = service.requests("AddJobFlowSteps")
    assert sent.parameters["Steps"][0]["Name"].startswith("load 2026-12-01 [r")


def test_not_durable_is_the_parent(service: EmrService, tries: TaskTries) -> None:
    """Names without a mark, no record, and every try adds the steps."""
    for _ in range(2):
        assert tries.run(service.operator(*STEPS, durable=False, waiter_delay=1)) == service.steps()[-2:]
    assert tries.record(service.operator(*STEPS)) is None
    assert [one.name for one in service.aws.started("emr") if one.id in service.steps()] == ["a", "b"] * 2


def test_from_the_parents_to_ours_in_flight(service: EmrService, tries: TaskTries) -> None:
    """The provider keeps no record: its steps go on, untouched, and this operator adds its own."""
    run_stock(stock(service, steps=[step("work")], wait_for_completion=False), tries)
    tries.run(service.operator(*STEPS))
    assert [job.live for job in service.jobs()] == [True, False]
    assert service.cancels() == 0
    assert tries.record(service.operator(*STEPS))["generation"] == 1
    service.release()


def test_from_ours_to_the_parents_in_flight(service: EmrService, tries: TaskTries) -> None:
    """It reads no record: our steps go on, untouched, and it adds its own; the record is there afterwards."""
    assert tries.crash(lambda: service.operator(step("work")), "mid_poll")
    run_stock(stock(service), tries)
    assert [job.live for job in service.jobs()] == [True, False]
    service.release()
    assert tries.run(service.operator(*STEPS)) == service.steps()[:1]
    assert len(service.jobs()) == 2


def test_a_task_that_the_parent_has_deferred_ends_as_it_would_have(
    service: EmrService, tries: TaskTries
) -> None:
    """The import was changed while the provider's trigger watched: its event goes to the new class."""
    operator = stock(service, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        run_stock(operator, tries)
    assert deferred.value.method_name == "execute_complete"
    event = {"status": "success", "value": service.steps()}
    subject = service.operator(*STEPS, deferrable=True)
    returned: Any = subject.execute_complete(tries.context(subject), event)
    assert returned == service.steps()
    assert len(service.jobs()) == 1


def test_the_example_does_what_it_says(service: EmrService, tries: TaskTries) -> None:
    """Its task is deferred until both steps are completed."""
    subject = runpy.run_path(str(example_dags_folder() / "resumable_emr_add_steps.py"))["add_steps"]
    subject.job_flow_id = service.cluster
    deferred = tries.defer(subject)
    service.release()
    assert deferred.resume(subject, deferred.event(60)) == service.steps()
    assert [service.state(one) for one in service.steps()] == ["COMPLETED"] * 2
