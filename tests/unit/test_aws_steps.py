# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""EMR steps of the AWS stand-in behave as the service's documents say, seen by a boto3 client."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from airflow_resumable.testing.aws import AwsService, step


@pytest.fixture
def emr(aws: AwsService) -> Any:
    return aws.client("emr", own=False)


def add(emr: Any, cluster: str, *steps: dict[str, Any]) -> list[str]:
    ids: list[str] = emr.add_job_flow_steps(JobFlowId=cluster, Steps=list(steps))["StepIds"]
    return ids


def states(emr: Any, cluster: str) -> list[str]:
    """The steps' states, oldest first."""
    return [one["Status"]["State"] for one in reversed(emr.list_steps(ClusterId=cluster)["Steps"])]


def refusal(call: Any, **parameters: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as refused:
        call(**parameters)
    error = refused.value.response["Error"]
    return error["Code"], error["Message"]


def test_steps_run_in_their_order_one_at_a_time(aws: AwsService, emr: Any) -> None:
    """The second step waits for the first; the cluster is RUNNING as long as one is left."""
    cluster = aws.cluster()
    first, second = add(emr, cluster, step("a"), step("b"))
    assert states(emr, cluster) == ["RUNNING", "PENDING"]
    aws.finish(first)
    assert states(emr, cluster) == ["COMPLETED", "RUNNING"]
    assert emr.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]["State"] == "RUNNING"
    aws.finish(second)
    assert states(emr, cluster) == ["COMPLETED", "COMPLETED"]
    assert emr.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]["State"] == "WAITING"


def test_concurrency_level_runs_several_steps_at_once(aws: AwsService, emr: Any) -> None:
    """As many steps run as StepConcurrencyLevel says."""
    cluster = aws.cluster(concurrency=2)
    add(emr, cluster, step("a"), step("b"), step("c"))
    assert states(emr, cluster) == ["RUNNING", "RUNNING", "PENDING"]


def test_step_ends_by_its_own_words(aws: AwsService, emr: Any) -> None:
    """`sleep` and `exit` in a step's arguments decide when and how it ends."""
    cluster = aws.cluster()
    good, bad = add(emr, cluster, step("a", ["sleep", "0"]), step("b", ["bash", "-c", "sleep 0; exit 3"]))
    assert states(emr, cluster) == ["COMPLETED", "FAILED"]
    for step_id in (good, bad):
        timeline = emr.describe_step(ClusterId=cluster, StepId=step_id)["Step"]["Status"]["Timeline"]
        assert timeline["CreationDateTime"] <= timeline["StartDateTime"] <= timeline["EndDateTime"]


def test_failed_step_cancels_the_pending_ones_by_cancel_and_wait(aws: AwsService, emr: Any) -> None:
    """CANCEL_AND_WAIT cancels what is pending and keeps the cluster."""
    cluster = aws.cluster()
    first, *_ = add(emr, cluster, step("a", on_failure="CANCEL_AND_WAIT"), step("b"), step("c"))
    aws.fail_job(first)
    assert states(emr, cluster) == ["FAILED", "CANCELLED", "CANCELLED"]
    assert emr.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]["State"] == "WAITING"


def test_failed_step_ends_the_cluster_by_terminate_cluster(aws: AwsService, emr: Any) -> None:
    """TERMINATE_CLUSTER ends the cluster with errors, whether a test or the step itself made it fail."""
    for arguments in (["spark-submit"], ["exit", "1"]):
        cluster = aws.cluster()
        first, _ = add(emr, cluster, step("a", arguments, on_failure="TERMINATE_CLUSTER"), step("b"))
        if arguments == ["spark-submit"]:
            aws.fail_job(first)
        assert states(emr, cluster) == ["FAILED", "CANCELLED"]
        status = emr.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]
        assert status["State"] == "TERMINATED_WITH_ERRORS"


def test_failed_step_lets_the_next_run_by_continue(aws: AwsService, emr: Any) -> None:
    """CONTINUE does nothing to the others."""
    cluster = aws.cluster()
    first, _ = add(emr, cluster, step("a"), step("b"))
    aws.fail_job(first, "exit code 1")
    assert states(emr, cluster) == ["FAILED", "RUNNING"]
    status = emr.describe_step(ClusterId=cluster, StepId=first)["Step"]["Status"]
    assert status["StateChangeReason"]["Message"] == "exit code 1"
    assert status["FailureDetails"] == {"Reason": "Unknown Error.", "Message": "exit code 1"}
    shown = emr.list_steps(ClusterId=cluster)["Steps"]
    assert [one["Status"].get("FailureDetails", {}).get("Message") for one in shown] == [None, "exit code 1"]


def test_cancel_tells_each_step_apart(aws: AwsService, emr: Any) -> None:
    """A completed step can't be cancelled, a running one stops in its time, a pending one at once."""
    cluster = aws.cluster()
    done, running, pending = add(emr, cluster, step("a"), step("b"), step("c"))
    aws.finish(done)
    said = emr.cancel_steps(ClusterId=cluster, StepIds=[done, running, pending])["CancelStepsInfoList"]
    assert [(one["StepId"], one["Status"]) for one in said] == [
        (done, "FAILED"),
        (running, "SUBMITTED"),
        (pending, "SUBMITTED"),
    ]
    assert "COMPLETED" in said[0]["Reason"]
    assert states(emr, cluster) == ["COMPLETED", "CANCEL_PENDING", "CANCELLED"]
    assert states(emr, cluster) == ["COMPLETED", "CANCELLED", "CANCELLED"]
    assert [(one.id, one.accepted) for one in aws.cancels()] == [
        (done, False),
        (running, True),
        (pending, True),
    ]


def test_cancel_of_a_stopping_step_is_idempotent(aws: AwsService, emr: Any) -> None:
    """Asking twice is SUBMITTED twice."""
    cluster = aws.cluster()
    [running] = add(emr, cluster, step("a"))
    aws.hold(running)
    aws.become(running, "RUNNING")
    for _ in range(2):
        said = emr.cancel_steps(ClusterId=cluster, StepIds=[running], StepCancellationOption="SEND_INTERRUPT")
        assert said["CancelStepsInfoList"] == [{"StepId": running, "Status": "SUBMITTED"}]
    assert states(emr, cluster) == ["CANCEL_PENDING"]
    aws.release(running)
    assert states(emr, cluster) == ["CANCELLED"]


def test_old_release_cannot_cancel_a_running_step(aws: AwsService, emr: Any) -> None:
    """Before 5.28.0 only pending steps can be cancelled."""
    cluster = aws.cluster(release="emr-5.27.0")
    running, pending = add(emr, cluster, step("a"), step("b"))
    said = emr.cancel_steps(ClusterId=cluster, StepIds=[running, pending])["CancelStepsInfoList"]
    assert [one["Status"] for one in said] == ["FAILED", "SUBMITTED"]
    assert states(emr, cluster) == ["RUNNING", "CANCELLED"]


def test_deaf_step_runs_on_after_its_cancel(aws: AwsService, emr: Any) -> None:
    """An accepted cancel is no promise."""
    cluster = aws.cluster()
    [running] = add(emr, cluster, step("a"))
    assert states(emr, cluster) == ["RUNNING"]
    aws.deafen(running)
    said = emr.cancel_steps(ClusterId=cluster, StepIds=[running])["CancelStepsInfoList"]
    assert said[0]["Status"] == "SUBMITTED"
    assert states(emr, cluster) == ["RUNNING"]


def test_refused_cancel_says_why_and_leaves_the_step(aws: AwsService, emr: Any) -> None:
    """FAILED comes with a Reason in a reply that is 200."""
    cluster = aws.cluster()
    [running] = add(emr, cluster, step("a"))
    aws.refuse_cancel(running, "not now")
    said = emr.cancel_steps(ClusterId=cluster, StepIds=[running])["CancelStepsInfoList"]
    assert said == [{"StepId": running, "Status": "FAILED", "Reason": "not now"}]
    assert states(emr, cluster) == ["RUNNING"]


def test_terminated_cluster_cancels_its_steps_and_takes_no_more(aws: AwsService, emr: Any) -> None:
    """What isn't completed is CANCELLED; AddJobFlowSteps is refused; the steps can still be asked for."""
    cluster = aws.cluster()
    done, running, _ = add(emr, cluster, step("a"), step("b"), step("c"))
    aws.finish(done)
    emr.terminate_job_flows(JobFlowIds=[cluster])
    assert states(emr, cluster) == ["COMPLETED", "CANCELLED", "CANCELLED"]
    described = emr.describe_step(ClusterId=cluster, StepId=running)["Step"]["Status"]
    assert described["State"] == "CANCELLED"
    assert refusal(emr.add_job_flow_steps, JobFlowId=cluster, Steps=[step("d")]) == (
        "ValidationException",
        "A job flow that is shutting down, terminated, or finished may not be modified.",
    )


def test_cluster_that_breaks_down_may_interrupt_running_steps(aws: AwsService, emr: Any) -> None:
    """A cluster ended by its own trouble leaves INTERRUPTED where a test says so."""
    cluster = aws.cluster()
    add(emr, cluster, step("a"), step("b"))
    aws.end_cluster(cluster, running="INTERRUPTED")
    assert states(emr, cluster) == ["INTERRUPTED", "CANCELLED"]
    status = emr.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]
    assert status["State"] == "TERMINATED_WITH_ERRORS"
    assert status["StateChangeReason"]["Message"] == "Instance failure"


def test_cluster_without_keep_alive_ends_with_its_last_step(aws: AwsService, emr: Any) -> None:
    """A transient cluster terminates when nothing is left to do."""
    cluster = aws.cluster(keep_alive=False)
    [first] = [one["Id"] for one in emr.list_steps(ClusterId=cluster)["Steps"]]
    aws.finish(first)
    assert emr.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]["State"] == "TERMINATED"


def test_unknown_cluster_and_step_are_refused_by_name(aws: AwsService, emr: Any) -> None:
    """Each action has its documented or seen error for what it doesn't know."""
    cluster = aws.cluster()
    invalid = ("InvalidRequestException", "Cluster id 'j-NONE' is not valid.")
    assert refusal(emr.describe_cluster, ClusterId="j-NONE") == invalid
    assert refusal(emr.list_steps, ClusterId="j-NONE") == invalid
    assert refusal(emr.describe_step, ClusterId="j-NONE", StepId="s-1") == invalid
    assert refusal(emr.cancel_steps, ClusterId="j-NONE", StepIds=["s-1"]) == invalid
    no_step = ("InvalidRequestException", "Step id 's-NONE' is not valid")
    assert refusal(emr.describe_step, ClusterId=cluster, StepId="s-NONE") == no_step
    assert refusal(emr.cancel_steps, ClusterId=cluster, StepIds=["s-NONE"]) == no_step
    gone = ("ValidationException", "Specified job flow ID does not exist.")
    assert refusal(emr.add_job_flow_steps, JobFlowId="j-NONE", Steps=[step("a")]) == gone
    assert refusal(emr.terminate_job_flows, JobFlowIds=["j-NONE"]) == gone
    assert aws.started() == []


def test_list_is_newest_first_in_pages_of_fifty(aws: AwsService, emr: Any) -> None:
    """A marker leads to the next page; filters by id and state narrow it."""
    cluster = aws.cluster()
    ids = [add(emr, cluster, *[step(f"{part}-{n}") for n in range(30)]) for part in range(4)]
    added = [step_id for part in ids for step_id in part]
    page = emr.list_steps(ClusterId=cluster)
    assert [one["Id"] for one in page["Steps"]] == added[:-51:-1]
    pages = emr.get_paginator("list_steps").paginate(ClusterId=cluster)
    assert [one["Id"] for part in pages for one in part["Steps"]] == added[::-1]
    assert len(aws.requests("ListSteps")) == 4
    running = emr.list_steps(ClusterId=cluster, StepStates=["RUNNING"])["Steps"]
    assert [one["Id"] for one in running] == added[:1]
    named = emr.list_steps(ClusterId=cluster, StepIds=added[:2])["Steps"]
    assert [one["Id"] for one in named] == added[1::-1]
    assert refusal(emr.list_steps, ClusterId=cluster, StepIds=added[:11])[0] == "InvalidRequestException"


def test_cluster_takes_256_active_steps(aws: AwsService, emr: Any) -> None:
    """The 257th is refused until one has ended."""
    cluster = aws.cluster()
    ids = add(emr, cluster, *[step(str(n)) for n in range(256)])
    code, text = refusal(emr.add_job_flow_steps, JobFlowId=cluster, Steps=[step("more")])
    assert code == "ValidationException"
    assert "active steps" in text
    aws.finish(ids[0])
    assert len(add(emr, cluster, step("more"))) == 1


def test_list_leaves_out_all_but_the_newest_thousand(aws: AwsService, emr: Any) -> None:
    """An older step can only be asked for by its id."""
    cluster = aws.cluster()
    aws.let_go(cluster)
    quick = [step(str(n), ["exit", "0"]) for n in range(250)]
    ids = [step_id for _ in range(4) for step_id in add(emr, cluster, *quick)] + add(
        emr, cluster, step("last")
    )
    pages = emr.get_paginator("list_steps").paginate(ClusterId=cluster)
    assert [one["Id"] for part in pages for one in part["Steps"]] == ids[:0:-1]
    assert emr.describe_step(ClusterId=cluster, StepId=ids[0])["Step"]["Name"] == "0"
    assert emr.list_steps(ClusterId=cluster, StepIds=ids[:1])["Steps"][0]["Id"] == ids[0]


def test_each_start_state_is_shown_when_asked_for(aws: AwsService, emr: Any) -> None:
    """With a pace a step is PENDING in that many replies before it runs."""
    aws.pace(startup_looks=2)
    cluster = aws.cluster()
    [added] = add(emr, cluster, step("a"))
    shown = [emr.describe_step(ClusterId=cluster, StepId=added)["Step"]["Status"]["State"] for _ in range(3)]
    assert shown == ["PENDING", "PENDING", "RUNNING"]


def test_forgotten_step_is_unknown(aws: AwsService, emr: Any) -> None:
    """A step out of the history is refused like one that never was, but was started all the same."""
    cluster = aws.cluster()
    [added] = add(emr, cluster, step("a"))
    aws.forget(added)
    assert refusal(emr.describe_step, ClusterId=cluster, StepId=added)[0] == "InvalidRequestException"
    assert [job.id for job in aws.started()] == [added]
