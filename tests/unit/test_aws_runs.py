# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Job runs of EMR Serverless and EMR on EKS in the AWS stand-in, seen by boto3 clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from airflow_resumable.testing.aws import ROLE, AwsService


@dataclass
class Service:
    """One of the two services by the same few verbs."""

    client: Any
    parent: dict[str, str]
    serverless: bool

    def start(self, token: str, *arguments: str, name: str = "run") -> str:
        driver = {"entryPoint": "s3://bucket/job.py", "entryPointArguments": list(arguments)}
        if self.serverless:
            more: dict[str, Any] = {"jobDriver": {"sparkSubmit": driver}}
        else:
            more = {"jobDriver": {"sparkSubmitJobDriver": driver}, "releaseLabel": "emr-6.9.0-latest"}
        said = self.client.start_job_run(
            **self.parent, clientToken=token, executionRoleArn=ROLE, name=name, **more
        )
        return str(said["jobRunId" if self.serverless else "id"])

    def _named(self, run: str) -> dict[str, str]:
        return {**self.parent, "jobRunId" if self.serverless else "id": run}

    def state(self, run: str) -> str:
        get = self.client.get_job_run if self.serverless else self.client.describe_job_run
        return str(get(**self._named(run))["jobRun"]["state"])

    def cancel(self, run: str) -> None:
        self.client.cancel_job_run(**self._named(run))

    def list(self, **filters: Any) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.client.list_job_runs(**self.parent, **filters)["jobRuns"]
        return runs


@pytest.fixture(params=["emr-serverless", "emr-containers"])
def service(request: pytest.FixtureRequest, aws: AwsService) -> Service:
    client = aws.client(request.param, own=False)
    if request.param == "emr-serverless":
        return Service(client, {"applicationId": aws.application()}, True)
    return Service(client, {"virtualClusterId": aws.virtual_cluster()}, False)


@pytest.fixture
def serverless(aws: AwsService) -> Service:
    return Service(aws.client("emr-serverless", own=False), {"applicationId": aws.application()}, True)


@pytest.fixture
def containers(aws: AwsService) -> Service:
    return Service(
        aws.client("emr-containers", own=False), {"virtualClusterId": aws.virtual_cluster()}, False
    )


def refusal(call: Callable[[], Any]) -> tuple[str, int]:
    with pytest.raises(ClientError) as refused:
        call()
    said = refused.value.response
    return said["Error"]["Code"], said["ResponseMetadata"]["HTTPStatusCode"]


def test_same_token_and_parameters_start_one_run(aws: AwsService, service: Service) -> None:
    """The second StartJobRun gets the first one's id."""
    first = service.start("token-1", "a")
    assert service.start("token-1", "a") == first
    [job] = aws.started()
    assert (job.id, job.token, job.name) == (first, "token-1", "run")
    assert service.start("token-2", "a") != first


def test_same_token_returns_a_run_that_has_failed(aws: AwsService, service: Service) -> None:
    """A fixed token replays a failed run for ever."""
    first = service.start("token-1")
    aws.fail_job(first)
    assert service.start("token-1") == first
    assert service.state(first) == "FAILED"


def test_forgotten_token_starts_another_run(aws: AwsService, service: Service) -> None:
    """Nobody says how long a token lives; after that it is a new one."""
    first = service.start("token-1")
    aws.forget_tokens()
    assert service.start("token-1") != first
    assert len(aws.started()) == 2


def test_serverless_token_with_other_parameters_is_a_conflict(aws: AwsService, serverless: Service) -> None:
    """ConflictException, 409, and no run."""
    serverless.start("token-1", "a")
    assert refusal(lambda: serverless.start("token-1", "b")) == ("ConflictException", 409)
    assert len(aws.started()) == 1


def test_container_token_with_other_parameters_is_invalid(aws: AwsService, containers: Service) -> None:
    """ValidationException, 400, and no run: the service documents no conflict."""
    containers.start("token-1", "a")
    assert refusal(lambda: containers.start("token-1", "b")) == ("ValidationException", 400)
    assert len(aws.started()) == 1


def test_same_token_makes_one_application(aws: AwsService) -> None:
    """CreateApplication is idempotent too."""
    client = aws.client("emr-serverless", own=False)
    wanted = {"name": "app", "releaseLabel": "emr-7.0.0", "type": "SPARK", "clientToken": "token-1"}
    first = client.create_application(**wanted)["applicationId"]
    assert client.create_application(**wanted)["applicationId"] == first
    assert refusal(lambda: client.create_application(**{**wanted, "name": "other"}))[0] == "ConflictException"
    assert [one["id"] for one in client.list_applications()["applications"]] == [first]
    assert [logged.created for logged in aws.requests("CreateApplication")] == [[first], [], []]


def test_refused_start_leaves_its_token_free(aws: AwsService, serverless: Service) -> None:
    """A token is remembered only with the run it made."""
    nowhere = Service(serverless.client, {"applicationId": "0nowhere"}, True)
    assert refusal(lambda: nowhere.start("token-1")) == ("ResourceNotFoundException", 404)
    assert serverless.start("token-1") == aws.started()[0].id


def test_serverless_run_passes_its_states(aws: AwsService, serverless: Service) -> None:
    """Each state before the run is shown in as many replies as the pace says, then a test ends it."""
    aws.pace(startup_looks=1)
    run = serverless.start("token-1")
    assert [serverless.state(run) for _ in range(4)] == ["SUBMITTED", "PENDING", "SCHEDULED", "RUNNING"]
    aws.finish(run)
    assert serverless.state(run) == "SUCCESS"


def test_container_run_passes_its_states(aws: AwsService, containers: Service) -> None:
    """The same for EMR on EKS, whose order is its own."""
    aws.pace(startup_looks=1)
    run = containers.start("token-1")
    assert [containers.state(run) for _ in range(3)] == ["PENDING", "SUBMITTED", "RUNNING"]
    aws.finish(run)
    assert containers.state(run) == "COMPLETED"


def test_run_is_running_when_first_looked_at(aws: AwsService, service: Service) -> None:
    """Without a pace nothing is waited for, and nothing ends a run but a test."""
    run = service.start("token-1")
    assert service.state(run) == "RUNNING"
    assert service.state(run) == "RUNNING"


def test_run_ends_by_its_own_words(service: Service) -> None:
    """`sleep` and `exit` in a job driver decide when and how it ends."""
    assert service.state(service.start("token-1", "sleep", "0")) in ("SUCCESS", "COMPLETED")
    assert service.state(service.start("token-2", "exit", "1")) == "FAILED"


def test_held_run_moves_by_hand_only(aws: AwsService, service: Service) -> None:
    """A held run stays SUBMITTED or PENDING however often it is looked at, and is advanced state by state."""
    run = service.start("token-1", "sleep", "0")
    aws.hold(run)
    first = service.state(run)
    assert service.state(run) == first
    assert first in ("SUBMITTED", "PENDING")
    assert aws.advance(run) not in (first, "RUNNING", "SUCCESS")
    aws.release(run)
    assert service.state(run) in ("SUCCESS", "COMPLETED")


def test_cancelled_run_stops_in_its_time(aws: AwsService, service: Service) -> None:
    """The first look sees it stopping, the next one stopped."""
    run = service.start("token-1")
    service.cancel(run)
    assert service.state(run) in ("CANCELLING", "CANCEL_PENDING")
    assert service.state(run) == "CANCELLED"
    assert [(one.id, one.accepted) for one in aws.cancels()] == [(run, True)]


def test_held_run_stays_in_its_cancelling(aws: AwsService, service: Service) -> None:
    """A cancel can take as long as a test wants."""
    run = service.start("token-1")
    aws.hold(run)
    service.cancel(run)
    assert {service.state(run) for _ in range(3)} <= {"CANCELLING", "CANCEL_PENDING"}
    aws.stop(run)
    assert service.state(run) == "CANCELLED"


def test_ended_run_cannot_be_cancelled(aws: AwsService, service: Service) -> None:
    """ValidationException, and the outcome stays."""
    run = service.start("token-1")
    aws.finish(run)
    assert refusal(lambda: service.cancel(run)) == ("ValidationException", 400)
    assert service.state(run) in ("SUCCESS", "COMPLETED")
    assert [(one.id, one.accepted, one.reason) for one in aws.cancels()] == [
        (run, False, "ValidationException")
    ]


def test_unknown_run_is_not_found(aws: AwsService, service: Service) -> None:
    """404 by EMR Serverless' model, 400 by EMR on EKS'; a forgotten run likewise."""
    missing = ("ResourceNotFoundException", 404 if service.serverless else 400)
    nobody = "0" * (16 if service.serverless else 19)
    assert refusal(lambda: service.state(nobody)) == missing
    assert refusal(lambda: service.cancel(nobody)) == missing
    run = service.start("token-1")
    aws.forget(run)
    assert refusal(lambda: service.state(run)) == missing
    assert service.list() == []


def test_runs_are_found_by_time_and_state(service: Service, aws: AwsService) -> None:
    """The time of creation is the real one, so a window finds it."""
    assert service.list() == []
    run = service.start("token-1", name="wanted")
    now, minute = datetime.now(UTC), timedelta(minutes=1)
    names = ("createdAtAfter", "createdAtBefore") if service.serverless else ("createdAfter", "createdBefore")
    after, before = names
    assert [one["id"] for one in service.list(**{after: now - minute, before: now + minute})] == [run]
    assert service.list(**{after: now + minute}) == []
    assert service.list(**{before: now - minute}) == []
    assert [one["name"] for one in service.list(states=["RUNNING"])] == ["wanted"]
    assert service.list(states=["FAILED"]) == []


def test_container_runs_are_found_by_their_whole_name(containers: Service) -> None:
    """A name that is part of another's finds its own run only, and its token is told."""
    run = containers.start("token-1", name="load")
    containers.start("token-2", name="load-more")
    [found] = containers.list(name="load")
    assert (found["id"], found["clientToken"]) == (run, "token-1")


def test_serverless_list_tells_the_name_but_no_token(serverless: Service) -> None:
    """A summary has no clientToken: a lost run is found by its name."""
    serverless.start("token-1", name="wanted")
    [found] = serverless.list()
    assert found["name"] == "wanted"
    assert "clientToken" not in found


def test_serverless_list_has_pages_of_fifty(serverless: Service) -> None:
    """Without maxResults a page ends after fifty."""
    runs = {serverless.start(f"token-{n}") for n in range(60)}
    assert len(serverless.list()) == 50
    pages = serverless.client.get_paginator("list_job_runs").paginate(**serverless.parent)
    assert {run["id"] for page in pages for run in page["jobRuns"]} == runs


def test_jobs_of_an_owner_are_let_go(aws: AwsService, service: Service) -> None:
    """Those that wait for the test succeed, those to come too; a job's own words are kept."""
    first = service.start("token-1")
    [owner] = service.parent.values()
    assert service.state(first) == "RUNNING"
    aws.let_go(owner)
    assert service.state(first) in ("SUCCESS", "COMPLETED")
    assert service.state(service.start("token-2")) in ("SUCCESS", "COMPLETED")
    assert service.state(service.start("token-3", "exit", "1")) == "FAILED"


def test_serverless_run_has_a_dashboard(aws: AwsService, serverless: Service) -> None:
    """A new address each time, and none of an unknown run."""
    run = serverless.start("token-1")
    get = serverless.client.get_dashboard_for_job_run
    first, second = (get(**serverless.parent, jobRunId=run)["url"] for _ in range(2))
    assert first.startswith("https://")
    assert first != second
    assert refusal(lambda: get(**serverless.parent, jobRunId="0nobody"))[0] == "ResourceNotFoundException"


def test_serverless_application_can_be_in_any_state(aws: AwsService, serverless: Service) -> None:
    """One that starts, stops, or is terminated and takes no run."""
    [application] = serverless.parent.values()
    aws.become(application, "STARTING")
    assert serverless.client.get_application(applicationId=application)["application"]["state"] == "STARTING"
    aws.become(application, "TERMINATED")
    assert refusal(lambda: serverless.start("token-1"))[0] == "ValidationException"
    assert aws.started() == []


def test_run_can_be_in_a_state_that_no_document_knows(aws: AwsService, service: Service) -> None:
    """For operators that must not take the unknown for an end."""
    run = service.start("token-1")
    aws.become(run, "HIBERNATING")
    assert service.state(run) == "HIBERNATING"
