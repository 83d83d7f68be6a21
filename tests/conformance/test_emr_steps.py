# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Several steps, failures, cluster's ends, cancels and faults under `ResumableEmrAddStepsOperator`.

EMR is moto behind a layer that mends it, see `airflow_resumable.testing.aws`; the layer's log counts.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_resumable.jobs.errors import (
    JobFailed,
    JobNotSettled,
    ResumableJobFatal,
    StatusBudgetExhausted,
)
from airflow_resumable.operators._emr_watch import CLUSTER_EVERY
from airflow_resumable.testing.aws import AwsService, step
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.forked_try import ForkedTry
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests.emr_job_runs import reach
from tests.emr_service import EmrService

RUNS = step("work")
DONE = step("done", ["sleep", "0"])
FAILS = step("broken", ["exit", "3"])


@pytest.fixture
def service(aws: AwsService, monkeypatch: pytest.MonkeyPatch) -> EmrService:
    """A cluster of the test's own, whose steps run ten at once."""
    reach(aws, monkeypatch)
    return EmrService(aws)


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"))


def at_look(number: int, act: Any) -> Any:
    """Act when an attempt of this process has looked so often."""
    looks = iter(range(1, 1_000_000))
    return at_point("mid_poll", lambda: act() if next(looks) == number else None)


# --- several steps ---


def test_steps_of_a_killed_worker_are_not_added_again(service: EmrService, tmp_path: Path) -> None:
    """The first was completed, the second runs when the worker is killed: both ids, in their order."""
    store = tmp_path / "store"
    first = ForkedTry(lambda: service.operator(DONE, RUNS), store, 1, "mid_poll")
    assert first.reached()
    first.end()
    assert [service.state(one) for one in service.steps()] == ["COMPLETED", "RUNNING"]
    second = ForkedTry(lambda: service.operator(DONE, RUNS), store, 2)
    service.release()
    assert second.end().value == service.steps()
    assert len(service.jobs()) == 1


def test_a_failed_step_does_not_end_the_others(service: EmrService, tries: TaskTries) -> None:
    """CONTINUE: the try fails when the last has ended, with EMR's reason, and the next adds all again."""
    with (
        at_look(3, service.release),
        pytest.raises(AirflowException, match=r"EMR Steps failed: step s-.*is FAILED"),
    ):
        tries.run(service.operator(FAILS, RUNS))
    assert [service.state(one) for one in service.steps()] == ["FAILED", "COMPLETED"]
    assert tries.run(service.operator(DONE, DONE)) == service.steps()[2:]
    assert len(service.steps()) == 4


def test_steps_that_emr_cancels_after_a_failure_are_failed_too(
    aws: AwsService, service: EmrService, tries: TaskTries
) -> None:
    """CANCEL_AND_WAIT on a cluster that runs one at a time."""
    service = EmrService(aws, concurrency=1)
    broken = step("broken", ["exit", "3"], on_failure="CANCEL_AND_WAIT")
    with pytest.raises(AirflowException, match=r"is FAILED.*is CANCELLED"):
        tries.run(service.operator(broken, RUNS))
    assert [service.state(one) for one in service.steps()] == ["FAILED", "CANCELLED"]


def test_many_steps_are_watched_ten_at_a_time(service: EmrService, tries: TaskTries) -> None:
    """EMR takes ten ids a request; all ids come back, and each request has asked for what is left."""
    steps = tries.run(service.operator(*[step(f"work {number}", ["sleep", "0"]) for number in range(24)]))
    assert (len(steps), steps) == (24, service.steps())
    asked = [
        one.parameters["StepIds"] for one in service.requests("ListSteps") if "StepIds" in one.parameters
    ]
    assert max(map(len, asked)) == 10


def test_names_stay_legible(service: EmrService, tries: TaskTries) -> None:
    """The user's own comes first."""
    tries.run(service.operator(step("nightly load", ["sleep", "0"])))
    (name,) = [one.name for one in service.aws.started("emr") if one.id in service.steps()]
    assert str(name).startswith("nightly load [r")


# --- a try's own end ---


def test_a_try_that_has_looked_often_enough_leaves_the_steps_alone(
    service: EmrService, tries: TaskTries
) -> None:
    """`waiter_max_attempts` ends the try; the next one watches the same steps."""
    with pytest.raises(JobNotSettled, match="waiter_max_attempts is 3"):
        tries.run(service.operator(RUNS, waiter_max_attempts=3))
    assert service.cancels() == 0
    service.release()
    assert tries.run(service.operator(RUNS)) == service.steps()
    assert len(service.jobs()) == 1


def test_a_trigger_looks_as_often_as_a_worker(service: EmrService, tries: TaskTries) -> None:
    """Then the task is a worker's again, which fails the try and leaves the steps alone."""
    subject = service.operator(RUNS, RUNS, waiter_max_attempts=2)
    deferred = tries.defer(subject)
    event = deferred.event(60)
    with pytest.raises(JobNotSettled, match="after 4 looks"):
        deferred.resume(service.operator(RUNS, RUNS, waiter_max_attempts=2), event)
    assert service.cancels() == 0
    assert all(job.live for job in service.jobs())


def test_an_execution_timeout_keeps_the_steps(service: EmrService, tries: TaskTries) -> None:
    """Airflow calls `on_kill` without a signal, then raises its own error."""
    subject = service.operator(RUNS)

    class TimedOut(BaseException):
        """As Airflow's own, which no poll loop catches."""

    def time_out() -> None:
        subject.on_kill()
        raise TimedOut

    with at_look(1, time_out), pytest.raises(TimedOut):
        tries.run(subject)
    assert service.cancels() == 0
    service.release()
    assert tries.run(service.operator(RUNS)) == service.steps()


def test_nobody_waits_where_nobody_is_asked_to(service: EmrService, tries: TaskTries) -> None:
    """wait_for_completion=False: the ids, no look, and one job over a crash before the record."""
    subject = service.operator(RUNS, wait_for_completion=False)
    assert tries.crash(lambda: subject, "after_accept")
    assert tries.run(service.operator(RUNS, wait_for_completion=False)) == service.steps()
    assert [job.live for job in service.jobs()] == [True]
    assert not [one for one in service.requests("ListSteps") if "StepIds" in one.parameters]


def test_a_clear_of_steps_that_nobody_waited_for_ends_them_first(
    service: EmrService, tries: TaskTries
) -> None:
    """Cleared after its success: what still runs is cancelled, then others are added."""
    tries.run(service.operator(RUNS, wait_for_completion=False))
    tries.clear()
    tries.run(service.operator(RUNS, wait_for_completion=False))
    assert [job.live for job in service.jobs()] == [False, True]


def test_a_clear_may_go_on_with_steps_that_nobody_waited_for(service: EmrService, tries: TaskTries) -> None:
    """on_clear=reconnect: the same ids, and nobody waits now either."""
    expected = tries.run(service.operator(RUNS, wait_for_completion=False))
    tries.clear()
    again = service.operator(RUNS, wait_for_completion=False)
    assert tries.run(again, {"on_clear": "reconnect"}) == expected
    assert [job.live for job in service.jobs()] == [True]


# --- the cluster ---


@pytest.mark.parametrize("running", ["CANCELLED", "INTERRUPTED", "FAILED"])
def test_a_cluster_that_ends_fails_the_task_for_good(
    aws: AwsService, service: EmrService, tries: TaskTries, running: Any
) -> None:
    """With its reason, and no further try: nothing can be added to that cluster."""
    told = rf"is {running}.*TERMINATED_WITH_ERRORS.*Instance failure"
    end = at_look(2, lambda: aws.end_cluster(service.cluster, running=running))
    with end, pytest.raises(AirflowFailException, match=told):
        tries.run(service.operator(RUNS))
    assert tries.record(service.operator(RUNS))["phase"] == "failed"


def test_a_step_that_ends_its_cluster_says_why(service: EmrService, tries: TaskTries) -> None:
    """TERMINATE_CLUSTER."""
    broken = step("broken", ["exit", "3"], on_failure="TERMINATE_CLUSTER")
    with pytest.raises(AirflowFailException, match=r"is FAILED.*Shut down as step failed"):
        tries.run(service.operator(broken, RUNS))


def test_steps_that_are_listed_as_running_on_an_ended_cluster_have_failed(
    aws: AwsService, service: EmrService, tries: TaskTries
) -> None:
    """The list may never say more, so the cluster itself is asked now and then."""

    def end() -> None:
        aws.end_cluster(service.cluster)
        aws.become(service.steps()[0], "RUNNING")

    with (
        at_look(2, end),
        pytest.raises(AirflowFailException, match=r"CLUSTER_TERMINATED.*TERMINATED_WITH_ERRORS"),
    ):
        tries.run(service.operator(RUNS))


@pytest.mark.parametrize("waits", [True, False])
def test_an_ended_cluster_takes_no_steps(
    aws: AwsService, service: EmrService, tries: TaskTries, waits: bool
) -> None:
    """The error names the cluster and its end; no try follows."""
    aws.end_cluster(service.cluster, state="TERMINATED", reason="Terminated by user request")
    with pytest.raises(
        ResumableJobFatal, match=rf"{service.cluster} is TERMINATED .*Terminated by user request"
    ):
        tries.run(service.operator(RUNS, wait_for_completion=waits))
    assert service.steps() == []


def test_an_unknown_cluster_is_told_as_emr_tells_it(service: EmrService, tries: TaskTries) -> None:
    """Nothing is added anywhere."""
    with pytest.raises(Exception, match="Specified job flow ID does not exist"):
        tries.run(service.operator(RUNS, job_flow_id="j-UNKNOWN"))


def test_a_cluster_is_found_by_its_name(service: EmrService, tries: TaskTries) -> None:
    """And steps are looked for where they were added, also once that name means another cluster or none."""
    client = service.aws.client("emr")
    instances = {"InstanceCount": 1, "MasterInstanceType": "m5.xlarge", "KeepJobFlowAliveWhenNoSteps": True}
    made = client.run_job_flow(Name="night", Instances=instances, JobFlowRole="a", ServiceRole="b")
    states = ["STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING"]
    by_name = {"job_flow_id": None, "job_flow_name": "night", "cluster_states": states}
    assert tries.crash(lambda: service.operator(DONE, **by_name), "after_accept")
    service.aws.finish(service.steps()[0])
    service.aws.end_cluster(made["JobFlowId"], state="TERMINATED", reason="done")
    assert tries.run(service.operator(DONE, **by_name)) == service.steps()
    with pytest.raises(AirflowException, match="No cluster found for name: night"):
        TaskTries(run_id="next").run(service.operator(DONE, **by_name))
    assert dict(tries.xcoms)["job_flow_id"] == made["JobFlowId"]


def test_steps_are_watched_in_the_region_on_record(service: EmrService, tries: TaskTries) -> None:
    """The Dag names another one by the next try; an intent without an id knows its region too."""
    for point in ("after_accept", "mid_poll"):
        assert tries.crash(lambda: service.operator(RUNS), point)
    service.release()
    assert tries.run(service.operator(RUNS, region_name="eu-west-1")) == service.steps()
    assert tries.record(service.operator(RUNS))["location"] == {"region": "us-east-1"}


def test_a_lookup_searches_the_region_of_the_intent(service: EmrService, tries: TaskTries) -> None:
    """The Dag names another one, and a cluster that isn't known, before the id is on record."""
    assert tries.crash(lambda: service.operator(RUNS), "after_accept")
    service.release()
    elsewhere = service.operator(RUNS, region_name="us-west-2", job_flow_id="j-UNKNOWN")
    assert tries.run(elsewhere) == service.steps()
    assert len(service.jobs()) == 1


# --- cancels ---


def test_a_step_that_cannot_be_cancelled_is_told_of(
    aws: AwsService, service: EmrService, tries: TaskTries, caplog: pytest.LogCaptureFixture
) -> None:
    """EMR's reason for it, and that it lives: nothing is added beside it after a clear."""
    tries.run(service.operator(RUNS, RUNS, wait_for_completion=False))
    first, second = service.steps()
    aws.refuse_cancel(second, "not now")
    tries.clear()
    with caplog.at_level(logging.WARNING), pytest.raises(AirflowException, match="could not be cancelled"):
        tries.run(service.operator(RUNS, RUNS))
    assert f"EMR does not cancel step {second}: not now" in caplog.text
    assert "was NOT cancelled" in caplog.text
    assert [service.state(one) for one in (first, second)] == ["CANCELLED", "RUNNING"]
    tries.run(service.operator(DONE, DONE))
    assert [job.live for job in service.jobs()] == [False, False]


def test_a_cancel_of_what_has_ended_is_no_failure(service: EmrService, tries: TaskTries) -> None:
    """One of two steps is completed; EMR refuses to cancel that one, and the other is gone."""
    tries.run(service.operator(DONE, RUNS, wait_for_completion=False))
    service.state(service.steps()[0])
    tries.clear()
    assert tries.run(service.operator(DONE, DONE)) == service.steps()[2:]


def test_a_cancel_that_is_not_answered_does_not_keep_a_dying_task(
    aws: AwsService, service: EmrService, tries: TaskTries
) -> None:
    """The user's stop goes on without it; the record is kept."""
    tries.crash(lambda: service.operator(RUNS), "mid_poll")
    held = aws.gate("CancelSteps")
    try:
        assert tries.stop(service.operator(RUNS), "failed") == "JobKept"
        assert tries.record(service.operator(RUNS))["phase"] == "submitted"
    finally:
        held.release()


@pytest.mark.parametrize("fault", ["error", "unauthorized", "denied", "reset"])
def test_a_cancel_that_fails_is_told_and_keeps_the_record(
    service: EmrService, tries: TaskTries, caplog: pytest.LogCaptureFixture, fault: Any
) -> None:
    """The user has marked the task failed; the steps go on, and somebody has to know."""
    tries.crash(lambda: service.operator(RUNS), "mid_poll")
    service.fail("cancel", fault, 0)
    with caplog.at_level(logging.ERROR):
        assert tries.stop(service.operator(RUNS), "failed") == "JobKept"
    assert "was NOT cancelled" in caplog.text
    assert tries.record(service.operator(RUNS))["phase"] == "submitted"


def test_steps_that_are_stopping_are_waited_for(
    aws: AwsService, service: EmrService, tries: TaskTries
) -> None:
    """Then one other job is started, and no earlier."""
    tries.crash(lambda: service.operator(RUNS), "mid_poll")
    (one,) = service.steps()
    aws.become(one, "CANCEL_PENDING")
    assert tries.run(service.operator(DONE)) == service.steps()[1:]
    assert len(service.jobs()) == 2


# --- faults ---


@pytest.mark.parametrize(
    "fault",
    ["throttle", "too_many", "error", "unavailable", "reset", "lost_reply", "truncated", "expired_token"],
)
def test_a_fault_of_the_watch_is_outlived(service: EmrService, tries: TaskTries, fault: Any) -> None:
    """Several in a row: neither another job nor a cancel."""
    times = 5 if fault == "throttle" else 2
    with at_look(2, lambda: service.fail("status", fault, times)), at_look(3, service.release):
        tries.run(service.operator(RUNS))
    assert (len(service.jobs()), service.cancels()) == (1, 0)


@pytest.mark.parametrize("fault", ["throttle", "too_many", "expired_token"])
def test_a_request_that_emr_refused_is_sent_again(service: EmrService, tries: TaskTries, fault: Any) -> None:
    """It proves that nothing was added, so the same try goes on."""
    service.fail("submit", fault, 3)
    tries.run(service.operator(DONE))
    assert (len(service.jobs()), tries.try_number) == (1, 1)


@pytest.mark.parametrize("fault", ["lost_reply", "truncated"])
def test_a_request_whose_reply_is_lost_is_looked_for(
    service: EmrService, tries: TaskTries, fault: Any
) -> None:
    """Not sent again, not even by botocore; the list has it."""
    service.fail("submit", fault, 1)
    subject = service.operator(DONE, botocore_config={"retries": {"total_max_attempts": 5}})
    assert tries.run(subject) == service.steps()
    assert (len(service.requests("AddJobFlowSteps")), tries.try_number) == (1, 1)


@pytest.mark.parametrize("fault", ["error", "unavailable", "reset"])
def test_a_request_that_may_have_been_taken_is_the_next_trys(
    service: EmrService, tries: TaskTries, fault: Any
) -> None:
    """The list doesn't have it, and it might come yet: this try fails, the next one adds the steps."""
    service.fail("submit", fault, 1)
    with pytest.raises(Exception):  # noqa: B017, PT011 - botocore's own
        tries.run(service.operator(DONE))
    assert tries.run(service.operator(DONE)) == service.steps()
    assert len(service.jobs()) == 1


def test_credentials_that_expire_all_the_time_are_fetched_each_time(
    aws: AwsService, service: EmrService, tries: TaskTries
) -> None:
    """Every third request of thirty is refused for that; a lifetime limit is not used up."""
    spoiled = aws.fail("expired_token", "ListSteps", times=0, every=3)
    with at_look(20, service.release):
        tries.run(service.operator(RUNS))
    assert spoiled.hits >= 5
    assert (len(service.jobs()), service.cancels()) == (1, 0)


def test_a_used_up_budget_leaves_the_steps_alone(service: EmrService, tries: TaskTries) -> None:
    """On the last try too."""
    tries.crash(lambda: service.operator(RUNS), "mid_poll")
    service.fail("status", "unavailable", 0)
    with pytest.raises(StatusBudgetExhausted):
        tries.run(service.operator(RUNS), {"status_error_budget": 1}, try_number=3)
    assert service.cancels() == 0


def test_a_failed_deferred_job_is_told_in_the_log(
    service: EmrService, tries: TaskTries, caplog: pytest.LogCaptureFixture
) -> None:
    """By the trigger and by the worker, with EMR's reason."""
    deferred = tries.defer(service.operator(FAILS))
    event = deferred.event(60)
    with caplog.at_level(logging.ERROR), pytest.raises(JobFailed):
        deferred.resume(service.operator(FAILS), event)
    assert "(broken [r" in caplog.text


def test_a_cluster_that_may_not_be_described_costs_a_link(
    aws: AwsService, service: EmrService, tries: TaskTries
) -> None:
    """The steps are watched all the same, and the cluster is not asked for again."""
    spoiled = aws.fail("denied", "DescribeCluster", times=0)
    with at_look(3 * CLUSTER_EVERY, service.release):
        tries.run(service.operator(RUNS))
    assert spoiled.hits == 2
    assert "emr_logs" not in dict(tries.xcoms)


# --- calls ---


def test_a_look_is_one_request(service: EmrService, tries: TaskTries) -> None:
    """The provider's waiter asks once every `waiter_delay` seconds; so does this, for all steps."""
    looks = 2 * CLUSTER_EVERY + 3
    counted: list[int] = []

    def count() -> None:
        counted.append(len(service.aws.requests()))

    with at_look(1, count), at_look(looks, count), at_look(looks + 1, service.release):
        tries.run(service.operator(RUNS, RUNS, RUNS))
    assert counted[1] - counted[0] == looks - 1
    assert len(service.requests("DescribeCluster")) == 2 + 1
