# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Job runs of EMR Serverless and of EMR on EKS, on the stand-in for AWS, as tests need them."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Literal

import pytest
from botocore.loaders import create_loader  # type: ignore[import-untyped]

from airflow_resumable.operators.emr_containers import ResumableEmrContainerOperator
from airflow_resumable.operators.emr_serverless import ResumableEmrServerlessStartJobOperator
from airflow_resumable.testing.aws import ROLE, AwsService
from airflow_resumable.testing.aws.journal import Logged
from airflow_resumable.testing.conformance_service import Call, Fault, SeenJob, ServiceUnderTest

WORDS = {"runs": "job.py", "succeeds": "exit 0", "fails": "exit 3"}
"""What a run's driver says of its end, see `AwsService`."""

_ENDED = ("SUCCESS", "COMPLETED", "FAILED", "CANCELLED", "FORGOTTEN")


def reach(aws: AwsService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process' tasks find the stand-in; models that boto3 has read once are not read again."""
    for name, value in aws.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("botocore.session.create_loader", _loader)


_loader = cache(create_loader)

# A stop that comes in the middle of a connect leaves a socket that nobody closes.
cut_off_connects = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def cut_off(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let what a stop has cut off go in the test that did it."""
    yield
    if any(word in request.node.name for word in ("stop", "eviction", "kept", "refused", "more_than")):
        gc.collect()


class JobRunService(ServiceUnderTest):
    """The runs of one application or virtual cluster; its book is the service's log of requests.

    Args:
        aws: The stand-in.
        service: ``emr-serverless`` or ``emr-containers``.
    """

    def __init__(self, aws: AwsService, service: Literal["emr-serverless", "emr-containers"]) -> None:
        self.aws = aws
        self.service = service
        serverless = service == "emr-serverless"
        self._place_name = "applicationId" if serverless else "virtualClusterId"
        self._describe = "GetJobRun" if serverless else "DescribeJobRun"
        self._stopping = "CANCELLING" if serverless else "CANCEL_PENDING"
        self._held: set[str] = set()
        self.place = aws.application() if serverless else aws.virtual_cluster()

    def requests(self, action: str) -> list[Logged]:
        """Return the requests about this place, those refused by a fault left out."""
        found = self.aws.requests(action, service=self.service)
        return [one for one in found if one.parameters.get(self._place_name) == self.place]

    def calls(self) -> list[str]:
        """Return the actions that were asked for, in their order."""
        return [
            one.action
            for one in self.aws.requests(service=self.service)
            if one.parameters.get(self._place_name) == self.place
        ]

    def ids(self) -> list[str]:
        """Return the runs that were created, oldest first."""
        return [run for one in self.requests("StartJobRun") for run in one.created]

    def tokens(self) -> list[str]:
        """Return the tokens of the submits, repeated ones too."""
        return [str(one.parameters["clientToken"]) for one in self.requests("StartJobRun")]

    def state(self, run: str) -> str:
        """Return a run's state, ``FORGOTTEN`` where the service knows it no more."""
        with suppress(ValueError):
            return self.aws.state(run)
        return "FORGOTTEN"

    def jobs(self) -> Sequence[SeenJob]:
        """Return every run that was created here; as time goes by, one that was cancelled ends."""
        return [SeenJob(run, self._is_live(run)) for run in self.ids()]

    def _is_live(self, run: str) -> bool:
        state = self.state(run)
        if state == self._stopping and run not in self._held:
            state = self.aws.advance(run)
        return state not in _ENDED

    def release(self) -> None:
        """Let the runs that wait for a test succeed, those to come too."""
        self.aws.let_go(self.place)

    def forget(self, external_id: Any) -> None:
        """Drop a run from the service's history."""
        self.aws.forget(str(external_id))

    def cancels(self) -> int:
        """Return how many cancel requests the service has had."""
        return len(self.requests("CancelJobRun"))

    def stop_slowly(self, external_id: Any) -> None:
        """Put a run into the state in which it is stopping, and keep it there."""
        self._held.add(str(external_id))
        self.aws.become(str(external_id), self._stopping)
        self.aws.hold(str(external_id))

    def fail(self, call: Call, fault: Fault, times: int) -> None:
        """Spoil the next requests of one kind."""
        actions = {
            "submit": "StartJobRun",
            "status": self._describe,
            "find": "ListJobRuns",
            "cancel": "CancelJobRun",
        }
        self.aws.fail(fault, actions[call], service=self.service, times=times)


def serverless(
    service: JobRunService, outcome: str = "succeeds", kind: Any = None, **more: Any
) -> ResumableEmrServerlessStartJobOperator:
    """Make an operator with a short poll interval.

    Args:
        service: Where the run is to be.
        outcome: ``runs``, ``succeeds`` or ``fails``.
        kind: Ours, unless given.
        more: Other arguments.
    """
    made = (kind or ResumableEmrServerlessStartJobOperator)(
        **{
            "task_id": "task",
            "application_id": service.place,
            "execution_role_arn": ROLE,
            "job_driver": {
                "sparkSubmit": {"entryPoint": "s3://bucket/job", "entryPointArguments": [WORDS[outcome]]}
            },
            "botocore_config": {"retries": {"total_max_attempts": 1}},
            "retries": 2,
            **more,
        }
    )
    if "waiter_delay" not in more:
        # Whole seconds are all that the argument takes.
        made.waiter_delay = 0.02
    if "waiter_max_attempts" not in more:
        made.waiter_max_attempts = 10_000
    return made


def containers(
    service: JobRunService, outcome: str = "succeeds", kind: Any = None, **more: Any
) -> ResumableEmrContainerOperator:
    """Make an operator of EMR on EKS; as `serverless`."""
    driver = {"entryPoint": "s3://bucket/job", "entryPointArguments": [WORDS[outcome]]}
    made: ResumableEmrContainerOperator = (kind or ResumableEmrContainerOperator)(
        **{
            "task_id": "task",
            "name": "nightly",
            "virtual_cluster_id": service.place,
            "execution_role_arn": ROLE,
            "release_label": "emr-7.0.0-latest",
            "job_driver": {"sparkSubmitJobDriver": driver},
            "botocore_config": {"retries": {"total_max_attempts": 1}},
            "poll_interval": 0.02,
            "retries": 2,
            **more,
        }
    )
    return made
