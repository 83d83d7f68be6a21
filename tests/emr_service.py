# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""EMR's stand-in as tests of steps see it, one cluster for each test, and operators that use it."""

from __future__ import annotations

from typing import Any

from airflow_resumable.operators.emr import ResumableEmrAddStepsOperator
from airflow_resumable.testing.aws import AwsService, faults, requests, step
from airflow_resumable.testing.conformance import SeenJob, ServiceUnderTest
from airflow_resumable.testing.http_faults import HttpRequest

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "INTERRUPTED")


def _lists(by_ids: bool) -> Any:
    def is_meant(request: HttpRequest) -> bool:
        call = requests.decode(request.method, request.target, request.headers, request.body)
        return call is not None and call.action == "ListSteps" and by_ids == ("StepIds" in call.parameters)

    return is_meant


_CALLS = {
    "submit": faults.action("AddJobFlowSteps"),
    "status": _lists(True),
    "find": _lists(False),
    "cancel": faults.action("CancelSteps"),
}


class EmrService(ServiceUnderTest):
    """One cluster of the stand-in; the stand-in's own log of requests counts.

    Args:
        aws: The stand-in.
        concurrency: How many steps of the cluster run at once.
    """

    def __init__(self, aws: AwsService, concurrency: int = 10) -> None:
        self.aws = aws
        self.cluster = aws.cluster(concurrency=concurrency)
        self.is_released = False
        self._client = aws.client("emr")
        aws.pace(cancel_looks=0)
        self._before = len(aws.requests())

    def requests(self, action: str) -> list[Any]:
        """List the requests of one action that were sent since this view was made."""
        return [one for one in self.aws.requests()[self._before :] if one.action == action]

    def jobs(self) -> list[SeenJob]:
        """Read the log: what one request has added is one job."""
        return [
            SeenJob(
                {"job_flow_id": one.parameters["JobFlowId"], "step_ids": list(one.created)},
                any(self.state(step) not in ENDED for step in one.created),
            )
            for one in self.requests("AddJobFlowSteps")
            if one.created
        ]

    def steps(self) -> list[str]:
        """List the ids of all steps that were added."""
        return [step for one in self.requests("AddJobFlowSteps") for step in one.created]

    def state(self, step_id: str) -> str:
        """Return a step's state, ``FORGOTTEN`` for one that is no longer listed."""
        # Past the proxy and not in the log; a step that was told to end has ended once somebody has looked.
        listed = self._client.list_steps(ClusterId=self.cluster, StepIds=[step_id])["Steps"]
        return str(listed[0]["Status"]["State"]) if listed else "FORGOTTEN"

    def release(self) -> None:
        """Let every step that was made to run end well, those to come too."""
        self.is_released = True
        self.aws.let_go(self.cluster)
        for one in self.steps():
            if self.state(one) not in (*ENDED, "FORGOTTEN"):
                self.aws.release(one)
                self.aws.finish(one)

    def forget(self, external_id: Any) -> None:
        """Drop the steps from the cluster's list."""
        for one in external_id["step_ids"]:
            self.aws.forget(one)

    def cancels(self) -> int:
        """Count the requests."""
        return len(self.requests("CancelSteps"))

    def stop_slowly(self, external_id: Any) -> None:
        """Have the steps stay in CANCEL_PENDING."""
        for one in external_id["step_ids"]:
            self.aws.become(one, "CANCEL_PENDING")
            self.aws.hold(one)

    def fail(self, call: Any, fault: Any, times: int) -> None:
        """Have the proxy spoil requests."""
        self.aws.proxy.fail(faults.REPLIES.get(fault, fault), _CALLS[call], times=times)

    def operator(self, *steps: dict[str, Any], **arguments: Any) -> ResumableEmrAddStepsOperator:
        """Make an operator that waits for its steps, one that runs unless others are given."""
        given: dict[str, Any] = {
            "task_id": "task",
            "job_flow_id": self.cluster,
            "steps": list(steps) or [step("work")],
            "wait_for_completion": True,
            "waiter_delay": 0.05,
            "waiter_max_attempts": 1000,
            # As many attempts as are asked for, and no pause of botocore's own between them.
            "botocore_config": {"retries": {"total_max_attempts": 1}},
            "retries": 2,
        }
        return ResumableEmrAddStepsOperator(**{**given, **arguments})
