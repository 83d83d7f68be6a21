# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableEmrContainerOperator`: a job run of EMR on EKS, started once and watched to its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow.providers.amazon.aws.links.base_aws import BaseAwsLink
from airflow.providers.amazon.aws.operators.emr import EmrContainerOperator

from airflow_resumable.jobs.errors import TokenConflict
from airflow_resumable.jobs.link import JobLink
from airflow_resumable.operators import _aws_errors, _aws_parent
from airflow_resumable.operators._arguments import check_seconds, check_whole
from airflow_resumable.operators._emr_containers_facts import FACTS
from airflow_resumable.operators._emr_job_run import INVALID, JobRunAdapter
from airflow_resumable.operators._emr_run_names import is_token, name_with, token_at_the_end, token_refused
from airflow_resumable.operators._emr_run_search import RunStates
from airflow_resumable.operators._facts import ServiceFacts

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

_aws_parent.check(EmrContainerOperator, (*_aws_parent.BASE_OPERATOR, "execute_complete"))

_LONGEST_NAME = 64


class ResumableEmrContainerOperator(JobRunAdapter, EmrContainerOperator):  # type: ignore[misc]
    """`EmrContainerOperator` whose run survives its worker: started once, found again, watched to its end.

    Takes the place of the provider's operator: the same arguments, template fields and return value. The
    task's idempotency token is the run's client token and the end of its name, of which 30 characters are
    left for yours.

    `max_polling_attempts`, if it is given, is how often one try looks, `poll_interval` seconds apart. A try
    that has looked that often fails; the run goes on, and the next try watches it. After the last one
    `on_final_failure` decides.

    As in the parent, ``deferrable=True`` waits for the run's end, also with ``wait_for_completion=False``.

    Args:
        client_request_token: Refused. One fixed token makes the service answer every later try and every
            later run of the Dag with the first run, failed or not. The parent's with ``durable=False``.
        cancel_on_kill: As in the parent: False keeps the run of a deferred task that a user stops. It is the
            policy `on_user_stop`, which has the last word.
        durable: False is the parent's own behaviour.
        resume_policy: See `airflow_resumable.sdk.ResumableJobMixin`.

    Raises:
        TypeError, ValueError: At parse time, naming the argument, the value and what is allowed.
        ImportError: The installed provider lacks something that is needed of it; names it.
    """

    external_id_key: str = "emr_containers_job_run_id"
    service_facts: ClassVar[tuple[ServiceFacts, ...]] = FACTS
    states = RunStates(
        active=frozenset({"PENDING", "SUBMITTED", "RUNNING"}),
        succeeded="COMPLETED",
        failed=frozenset({"FAILED", "CANCELLED"}),
        stopping="CANCEL_PENDING",
    )
    place_argument = "virtual_cluster_id"
    place_name = "virtual cluster"
    operator_extra_links: Any = (JobLink(),)

    def __init__(
        self,
        *,
        client_request_token: str | None = None,
        poll_interval: int = 30,
        max_polling_attempts: int | None = None,
        durable: bool = True,
        **kwargs: Any,
    ) -> None:
        if durable and client_request_token:
            raise ValueError(token_refused(f"client_request_token={client_request_token!r}"))
        if durable:
            check_seconds("poll_interval", poll_interval)
            check_whole("max_polling_attempts", max_polling_attempts, 1)
        super().__init__(
            client_request_token=client_request_token,
            poll_interval=poll_interval,
            max_polling_attempts=max_polling_attempts,
            durable=durable,
            **kwargs,
        )

    # --- run ---

    def execute(self, context: Context) -> str | None:
        """Carry the run through the protocol; with ``durable=False`` as the parent does.

        Returns:
            The run's id.
        """
        with self.looking(context):
            return self.execute_resumable(context)  # type: ignore[no-any-return]

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> Any:
        """Take over the run of a task that the provider's operator has deferred.

        Returns:
            The run's id.
        """
        from airflow_resumable.integration import settings

        run = (event or {}).get("job_id")
        if not self.durable or not settings.enabled() or not run:
            return super().execute_complete(context, event)
        return self.resume_job(context, {}, external_id=run, generation=1)

    def _execute_stock(self, context: Context) -> Any:
        self._go_unrecorded()
        return EmrContainerOperator.execute(self, context)

    @property
    def _waits(self) -> bool:
        return bool(self.wait_for_completion or self.deferrable)

    @property
    def _most_looks(self) -> int | None:
        return self.max_polling_attempts

    def _start(self, token: str | None, context: Context) -> str:
        request = {
            "virtualClusterId": self._place,
            "executionRoleArn": self.execution_role_arn,
            "releaseLabel": self.release_label,
            "jobDriver": self.job_driver,
            "configurationOverrides": self._overrides(context) or {},
            "tags": self.tags or {},
            "name": self.name if token is None else name_with(self.name, token, _LONGEST_NAME),
        }
        # Without a token boto3 makes one up.
        if token is not None:
            request["clientToken"] = token
        if self.job_retry_max_attempts:
            request["retryPolicyConfiguration"] = {"maxAttempts": self.job_retry_max_attempts}
        try:
            answer = self._sent(lambda: self.aws.sending.start_job_run(**request))
        except Exception as error:
            said = _aws_errors.message_of(error)
            # The service's model has no error of its own for it.
            conflicts = _aws_errors.code_of(error) == INVALID and "token" in said.lower()
            if token is None or not (conflicts or _aws_errors.code_of(error) == "ConflictException"):
                raise
            raise TokenConflict(said) from error
        run = str(_aws_errors.part_of(answer, "id"))
        self.log.info("Start Job Run success - Job Id %s and virtual cluster id %s", run, self._place)
        return run

    # --- the service ---

    def _describe(self, client: Any, run: str) -> Mapping[str, Any]:
        answer = client.describe_job_run(virtualClusterId=self._place, id=run)
        return _aws_errors.part_of(answer, "jobRun")  # type: ignore[no-any-return]

    def _pages(self, client: Any, since: datetime) -> Iterator[Sequence[Mapping[str, Any]]]:
        pages = client.get_paginator("list_job_runs").paginate(
            virtualClusterId=self._place, createdAfter=since
        )
        for page in pages:
            yield _aws_errors.part_of(page, "jobRuns")

    def _token_of(self, run: Mapping[str, Any]) -> str | None:
        token = run.get("clientToken")
        return str(token) if is_token(token) else token_at_the_end(run.get("name"))

    def _failure_of(self, run: Mapping[str, Any]) -> str:
        return " - ".join(str(run[name]) for name in ("failureReason", "stateDetails") if run.get(name))

    def _stop(self, client: Any, run: str) -> None:
        client.cancel_job_run(virtualClusterId=self._place, id=run)

    # --- the job on record ---

    def publish_job(self, external_id: JsonValue, context: Context) -> None:
        """Know the run's id, as the parent does."""
        self.job_id = str(external_id)

    def get_job_url(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the virtual cluster's page in the console, which lists its runs."""
        meta = self.aws.reading.meta
        domain = BaseAwsLink.get_aws_domain(meta.partition)
        home = f"https://console.{domain}/emr/home?region={meta.region_name}"
        return f"{home}#/eks/clusters/{self._place}" if domain else None

    # --- the triggerer ---

    @classmethod
    def _watcher(cls, known: Mapping[str, Any], interval: float, looks: int | None) -> Self:
        watcher = cls(
            task_id="watched",
            retries=1,
            name="watched",
            execution_role_arn="",
            release_label="",
            job_driver={},
            **known,
        )
        vars(watcher).update(poll_interval=interval, max_polling_attempts=looks)
        return watcher
