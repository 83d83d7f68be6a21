# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `ResumableSparkSubmitOperator` asks of each kind of cluster that spark-submit can submit to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_resumable.jobs.adapter import Capabilities, FoundJob, Observation, SubmitWindow

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from pydantic import JsonValue

    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator


class SparkTarget(ABC):
    """One cluster, for one operator object: named by the Spark connection, known once that is read.

    The base class is a service that can be looked at and cancelled; what a kind of cluster can besides, it
    says by its class attributes and overrides.

    Args:
        operator: The operator.
        hook: Its hook, whose connection names the cluster.
    """

    submit_window: ClassVar[SubmitWindow] = SubmitWindow.OPEN
    token_memory: ClassVar[timedelta | None] = None
    missing_is_failure: ClassVar[bool] = False
    finds_by_family: ClassVar[bool] = False
    snapshots: ClassVar[bool] = False
    least_poll_interval: ClassVar[float] = 0.0
    """Seconds that are left between two looks at least, as by the parent."""
    active: ClassVar[frozenset[str]] = frozenset()
    succeeded: ClassVar[frozenset[str]] = frozenset()
    failed: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, operator: ResumableSparkSubmitOperator, hook: SparkSubmitHook) -> None:
        self.operator = operator
        self.hook = hook

    @property
    def attempt(self) -> JobAttempt:
        """The attempt that the operator makes."""
        attempt = self.operator._resumable_attempt
        if attempt is None:
            raise AssertionError("called outside the job protocol")
        return attempt

    def capabilities(self, of_class: Capabilities) -> Capabilities:
        """Return what the operator can do at this cluster.

        Args:
            of_class: What its class can.
        """
        from dataclasses import replace

        return replace(
            of_class,
            submit_window=self.submit_window,
            token_memory=self.token_memory,
            missing_is_failure=self.missing_is_failure,
            find_by_family=self.finds_by_family,
            snapshots=self.snapshots,
        )

    # --- submit ---

    @abstractmethod
    def conf(self, token: str, family: str) -> dict[str, Any]:
        """Return the Spark properties that mark the job."""

    def told(self, line: str) -> str | None:
        """Return the job's id from a line of spark-submit's output in which the cluster takes the job."""
        return None

    @abstractmethod
    def after_client(self, code: int | None) -> JsonValue:
        """Return the id of the job once spark-submit has ended without `told` naming one, else None.

        Args:
            code: Its exit code.

        Raises:
            ResumableJobError: It can't be said, or there are several; names them.
            ConnectionError: Submitting again with the same token may help.
        """

    def snapshot(self) -> JsonValue:
        """Return what the cluster holds before the submit, see `JobAdapter.snapshot_before_submit`."""
        return None

    def was_created(self) -> bool | None:
        """Say whether the last submit made a new job; None when that can't be told."""
        return None

    # --- look ---

    @abstractmethod
    def status(self, external_id: str) -> str:
        """Return the cluster's word for the job's state.

        Raises:
            JobNotFound: The cluster answers that it has no such job.
        """

    def is_active(self, status: str) -> bool:
        """Say whether the job may still run."""
        return status in self.active

    def is_succeeded(self, status: str) -> bool:
        """Say whether it has succeeded."""
        return status in self.succeeded

    def is_failed(self, status: str) -> bool:
        """Say whether it has ended without success."""
        return status in self.failed

    def is_stopping(self, status: str) -> bool:
        """Say whether it was told to end and has not ended yet."""
        return False

    @abstractmethod
    def find_token(self, token: str, since: datetime) -> Sequence[FoundJob]:
        """Return the jobs that carry a token."""

    def find_family(self, family: str, since: datetime) -> Sequence[FoundJob]:
        """Return the jobs of all generations of the task instance; where `finds_by_family`."""
        raise NotImplementedError

    # --- the job on record ---

    @abstractmethod
    def location(self, external_id: str) -> JsonValue:
        """Return where the job runs."""

    def uid(self, external_id: str) -> str | None:
        """Return what tells the job from a later one of the same id."""
        return None

    def restore(  # noqa: B027 - most have nothing to take over
        self, external_id: str, location: JsonValue, uid: str | None
    ) -> None:
        """Take over a job that another attempt has started."""

    def url(self, external_id: str) -> str | None:
        """Return the job's page."""
        return None

    # --- end ---

    @abstractmethod
    def cancel(self, external_id: str) -> None:
        """Ask the cluster to end the job, within 1.5 s and without a JVM."""

    def clean_up(  # noqa: B027 - most have nothing to tidy up
        self, external_id: str, observation: Observation
    ) -> None:
        """Tidy up once the outcome is on record."""


def target_for(operator: ResumableSparkSubmitOperator, hook: SparkSubmitHook) -> SparkTarget | None:
    """Return the target that a hook's connection names, None for one that only the parent's way serves."""
    if hook._connection["deploy_mode"] == "cluster" and hook._is_kubernetes:
        from airflow_resumable.operators._spark_kubernetes import KubernetesTarget

        return KubernetesTarget(operator, hook)
    if hook._should_track_driver_status:
        from airflow_resumable.operators._spark_standalone import StandaloneTarget

        return StandaloneTarget(operator, hook)
    if hook._is_yarn_cluster_mode and hook._yarn_track_via_rm_api:
        from airflow_resumable.operators._spark_yarn import YarnTarget

        return YarnTarget(operator, hook)
    return None


def followed(hook: SparkSubmitHook) -> None:
    """Have the parent's hook treat an application as one that is followed by requests, not by its client."""
    if hook._connection["deploy_mode"] == "cluster" and hook._is_kubernetes:
        hook._track_driver_via_k8s_api = True
        hook._connection["namespace"] = hook._connection["namespace"] or "default"
    if hook._is_yarn_cluster_mode:
        from airflow_resumable.operators._spark_yarn import follow

        follow(hook)
