# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""EMR clusters whose steps run, fail, are cancelled and end with the cluster; moto only lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_resumable.testing.aws import clock
from airflow_resumable.testing.aws.errors import AwsError
from airflow_resumable.testing.aws.requests import Call

if TYPE_CHECKING:
    from moto.emr.models import Cluster, ElasticMapReduceBackend

MOST_ACTIVE = 256
"""Steps of a cluster that are pending, running or being cancelled: "only 256 steps can be RUNNING or PENDING
at any given time" (https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-work-with-steps.html); the
refusal's text was seen in https://github.com/gchq/sleeper/pull/4607."""

MOST_NAMED = 10
""""You can specify a maximum of 10 stepIDs" (ListSteps)."""

MOST_LISTED = 1000
"""Older steps of a cluster are accepted but not listed, as seen in https://github.com/Yelp/mrjob/issues/1462."""

_OPEN = ("STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING")
_CANNOT_MODIFY = "A job flow that is shutting down, terminated, or finished may not be modified."


class Steps:
    """The steps of all clusters.

    Args:
        pace: How fast they pass through their states.

    Attributes:
        jobs: Every step, by its id.
        clusters: The id of each step's cluster.
    """

    def __init__(self, pace: clock.Pace) -> None:
        self.jobs: dict[str, clock.Job] = {}
        self.clusters: dict[str, str] = {}
        self._pace = pace
        self._refused: dict[str, str] = {}

    def adopt(self, backend: ElasticMapReduceBackend) -> list[str]:
        """Take over the steps that moto has made since; return their ids.

        moto lets a cluster's first step run for ever and the others wait for ever. Here each begins PENDING.
        """
        new = []
        for cluster in backend.clusters.values():
            for step in cluster.steps:
                if step.id not in self.jobs:
                    seconds, good = clock.own_words(step.args)
                    job = clock.Job(step, clock.STEP, seconds, good, held=self._pace.held)
                    self.jobs[step.id] = job
                    self.clusters[step.id] = cluster.id
                    job.begin()
                    new.append(step.id)
        return new

    def settle(self, backend: ElasticMapReduceBackend, looked_at: Iterable[str] = ()) -> None:
        """Let time pass for every cluster.

        Args:
            backend: moto's.
            looked_at: Ids of the steps that the reply to come shows.
        """
        looked = set(looked_at)
        for cluster in list(backend.clusters.values()):
            self._run(cluster, looked)

    def _run(self, cluster: Cluster, looked: set[str]) -> None:
        """Run steps in their order, as many at once as ``StepConcurrencyLevel`` says.

        "Amazon EMR executes each step in the order listed" (AddJobFlowSteps); several at once by
        https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-concurrent-steps.html. What a failed step
        does to the others is its ActionOnFailure (API_StepConfig.html): CANCEL_AND_WAIT cancels what is
        pending, TERMINATE_CLUSTER ends the cluster, CONTINUE neither.
        """
        if cluster.state not in _OPEN:
            return
        jobs = [self.jobs[step.id] for step in cluster.steps]
        alive = (clock.STEP.running, clock.STEP.stopping)
        busy = sum(job.state in alive for job in jobs)
        for step, job in zip(cluster.steps, jobs, strict=True):
            if job.ended:
                continue
            before = job.state
            job.tick(self._pace, step.id in looked, busy < (cluster.step_concurrency_level or 1))
            busy += (job.state in alive) - (before in alive)
            self.date(job)
            if before != job.state == clock.STEP.failed:
                self.after_failure(cluster, step.id)
                if cluster.state not in _OPEN:
                    return
        active = any(not job.ended for job in jobs)
        cluster.state = "RUNNING" if active else "WAITING"
        if jobs and not active and not cluster.keep_job_flow_alive_when_no_steps:
            self.end_cluster(cluster, "TERMINATED", "Steps completed")

    def date(self, job: clock.Job) -> None:
        """Write when a step began and ended into its timeline, which moto leaves empty."""
        record: Any = job.record
        record.start_date_time, record.end_date_time = job.began, job.over
        record.last_state_change_reason = job.reason

    def after_failure(self, cluster: Cluster, step_id: str) -> None:
        """Do what a failed step's ActionOnFailure says; see `_run`."""
        step = next(step for step in cluster.steps if step.id == step_id)
        if step.action_on_failure in ("TERMINATE_CLUSTER", "TERMINATE_JOB_FLOW"):
            self.end_cluster(cluster, "TERMINATED_WITH_ERRORS", "Shut down as step failed")
        elif step.action_on_failure == "CANCEL_AND_WAIT":
            for other in cluster.steps:
                if (job := self.jobs[other.id]).state == clock.STEP.starting[0]:
                    job.become(clock.STEP.stopped, "a step before it failed")
                    self.date(job)

    def end_cluster(
        self, cluster: Cluster, state: str, reason: str, running: str = clock.STEP.stopped
    ) -> None:
        """End a cluster, and cancel what it hasn't completed.

        "When a job flow is shut down, any step not yet completed is canceled" (TerminateJobFlows). moto
        leaves steps pending and running.

        Args:
            cluster: moto's.
            state: TERMINATED or TERMINATED_WITH_ERRORS.
            reason: Told as the state's.
            running: What a running step becomes: CANCELLED, INTERRUPTED or FAILED.
        """
        cluster.terminate()
        cluster.state = state
        setattr(cluster, "last_state_change_reason", reason)  # noqa: B010 moto reads it, but has no such field
        for step in cluster.steps:
            job = self.jobs[step.id]
            if not job.ended:
                alive = job.state == clock.STEP.running
                job.become(running if alive else clock.STEP.stopped, "the cluster was terminated")
                self.date(job)

    def explain(self, said: dict[str, Any]) -> dict[str, Any]:
        """Add FailureDetails to the failed steps of a DescribeStep's or ListSteps' reply; moto has none.

        The service "returns "Unknown Error" as a reason" where it can't tell better
        (https://docs.aws.amazon.com/emr/latest/APIReference/API_FailureDetails.html).
        """
        for shown in said.get("Steps", [said.get("Step", {})]):
            job = self.jobs.get(str(shown.get("Id")))
            if job is not None and job.state == clock.STEP.failed:
                message = job.reason or "the program ended with an exit code other than 0"
                shown["Status"]["FailureDetails"] = {"Reason": "Unknown Error.", "Message": message}
        return said

    def check_add(self, backend: ElasticMapReduceBackend, call: Call) -> None:
        """Refuse steps for a cluster that is unknown, ended or full.

        For an unknown cluster the service says ValidationException, not what its document promises for other
        actions (seen: https://github.com/raster-foundry/raster-foundry/issues/352); "You can only add steps
        to a cluster that is in one of the following states: STARTING, BOOTSTRAPPING, RUNNING, or WAITING"
        (AddJobFlowSteps), with the text as Terraform's AWS provider knows it.
        """
        cluster = backend.clusters.get(str(call.parameters.get("JobFlowId")))
        if cluster is None:
            raise AwsError("ValidationException", "Specified job flow ID does not exist.")
        if cluster.state not in _OPEN:
            raise AwsError("ValidationException", _CANNOT_MODIFY)
        active = sum(not self.jobs[step.id].ended for step in cluster.steps)
        if active + len(call.parameters.get("Steps", ())) > MOST_ACTIVE:
            raise AwsError(
                "ValidationException",
                "Maximum number of active steps(State = 'Running', 'Pending' or 'Cancel_Pending') for "
                "cluster exceeded.",
            )

    def check_known(self, backend: ElasticMapReduceBackend, call: Call) -> None:
        """Refuse an unknown cluster or step; moto answers 500 or an empty 200.

        InvalidRequestException is what DescribeStep, ListSteps and CancelSteps document; the texts were seen
        in https://github.com/Yelp/mrjob/issues/1855 and https://github.com/apache/airflow/issues/17636.
        """
        cluster_id = str(call.parameters.get("ClusterId"))
        cluster = backend.clusters.get(cluster_id)
        if cluster is None:
            raise AwsError("InvalidRequestException", f"Cluster id '{cluster_id}' is not valid.")
        wanted = call.parameters.get("StepIds") or ()
        if call.action == "ListSteps" and len(wanted) > MOST_NAMED:
            raise AwsError("InvalidRequestException", f"At most {MOST_NAMED} step ids may be specified.")
        known = {step.id for step in cluster.steps}
        named = [call.parameters["StepId"]] if call.action == "DescribeStep" else wanted
        for step_id in named:
            if step_id not in known and call.action != "ListSteps":
                raise AwsError("InvalidRequestException", f"Step id '{step_id}' is not valid")

    @contextmanager
    def newest(self, backend: ElasticMapReduceBackend, call: Call) -> Iterator[None]:
        """Keep all but the newest `MOST_LISTED` steps from moto while it answers a ListSteps."""
        cluster = backend.clusters.get(str(call.parameters.get("ClusterId")))
        if call.action != "ListSteps" or call.parameters.get("StepIds") or cluster is None:
            yield
            return
        steps = cluster.steps
        cluster.steps = steps[-MOST_LISTED:]
        try:
            yield
        finally:
            cluster.steps = steps

    def refuse_cancel(self, step_id: str, reason: str) -> None:
        """Answer the next cancel of a step FAILED."""
        self._refused[step_id] = reason

    def cancel(self, backend: ElasticMapReduceBackend, call: Call) -> dict[str, Any]:
        """Answer CancelSteps, which moto doesn't know.

        A pending step is CANCELLED at once; a running one is CANCEL_PENDING, then CANCELLED, on releases
        from 5.28.0 on, and can't be cancelled on older ones; one that has ended neither. Each gets its own
        Status, SUBMITTED or FAILED, and on failure a Reason, in a reply that is 200 all the same. "It does
        not guarantee that a step will be canceled, even if the request is successfully submitted"
        (CancelSteps).
        """
        if len(call.parameters["StepIds"]) > MOST_ACTIVE:
            raise AwsError("InvalidRequestException", f"At most {MOST_ACTIVE} steps in one request.")
        self.check_known(backend, call)
        cluster = backend.clusters[call.parameters["ClusterId"]]
        return {"CancelStepsInfoList": [self._cancel(cluster, step) for step in call.parameters["StepIds"]]}

    def _cancel(self, cluster: Cluster, step_id: str) -> dict[str, str]:
        job = self.jobs[step_id]
        reason = self._refused.pop(step_id, None)
        if reason is None and job.ended:
            reason = f"The step is in state {job.state} and can't be cancelled."
        running = job.state == clock.STEP.running
        if reason is None and running and not _cancels_running(cluster.release_label):
            reason = f"{cluster.release_label} can't cancel a running step."
        if reason is not None:
            return {"StepId": step_id, "Status": "FAILED", "Reason": reason}
        if running:
            job.cancel()
        elif job.state == clock.STEP.starting[0]:
            job.become(clock.STEP.stopped, "cancelled by request")
            self.date(job)
        return {"StepId": step_id, "Status": "SUBMITTED"}


def _cancels_running(release: str | None) -> bool:
    numbers = (release or "").removeprefix("emr-").split(".")
    if len(numbers) < 2 or not all(part.isdigit() for part in numbers[:2]):
        return True
    return (int(numbers[0]), int(numbers[1])) >= (5, 28)
