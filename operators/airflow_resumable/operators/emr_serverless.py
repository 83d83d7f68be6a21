# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableEmrServerlessStartJobOperator`: a job run of EMR Serverless, started once, watched to its end."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow.providers.amazon.aws.hooks.emr import EmrServerlessHook
from airflow.providers.amazon.aws.links.emr import EmrServerlessCloudWatchLogsLink, EmrServerlessS3LogsLink
from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator

from airflow_resumable.jobs.errors import TokenConflict
from airflow_resumable.jobs.link import JobLink
from airflow_resumable.operators import _aws_errors, _aws_parent
from airflow_resumable.operators import _emr_serverless_application as application
from airflow_resumable.operators._emr_job_run import JobRunAdapter
from airflow_resumable.operators._emr_run_names import name_with, token_at_the_end, token_refused
from airflow_resumable.operators._emr_run_search import RunStates
from airflow_resumable.operators._emr_serverless_facts import FACTS
from airflow_resumable.operators._facts import ServiceFacts

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

_aws_parent.check(
    EmrServerlessStartJobOperator, (*_aws_parent.BASE_OPERATOR, "execute_complete", "persist_links")
)
_aws_parent.check(EmrServerlessHook, ("conn_partition", "conn_region_name", "get_waiter"))

_LONGEST_NAME = 256
_UNNAMED = "emr_serverless_job_airflow"
_PAGE = 50
# The others cost a call that answers with a link for one use, so they are left to the end of the task.
_LINKS_OF_TEXT = (EmrServerlessS3LogsLink, EmrServerlessCloudWatchLogsLink)


class ResumableEmrServerlessStartJobOperator(JobRunAdapter, EmrServerlessStartJobOperator):
    """`EmrServerlessStartJobOperator` whose run survives its worker: started once, found again, watched.

    Takes the place of the provider's operator: the same arguments, template fields, links, XComs and return
    value. The task's idempotency token is the run's client token and the end of its name.

    `waiter_max_attempts` and `waiter_delay` are, as in the parent, how often one try looks, and every how
    many seconds. A try that has looked that often fails, but where the parent cancels the run, it goes on,
    and the next try watches it; after the last one `on_final_failure` decides.

    The application is started and waited for as by the parent, but only before a run is started: a run that
    is on record needs none. With ``deferrable=True`` that wait is the worker's; the run is watched by this
    package's own trigger.

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

    external_id_key: str = "emr_serverless_job_run_id"
    service_facts: ClassVar[tuple[ServiceFacts, ...]] = FACTS
    states = RunStates(
        active=frozenset({"SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "QUEUED"}),
        succeeded="SUCCESS",
        failed=frozenset({"FAILED", "CANCELLED"}),
        stopping="CANCELLING",
    )
    place_argument = "application_id"
    place_name = "application"
    operator_extra_links: Any = (*EmrServerlessStartJobOperator.operator_extra_links, JobLink())

    def __init__(
        self,
        *,
        client_request_token: str = "",
        config: dict[str, Any] | None = None,
        durable: bool = True,
        **kwargs: Any,
    ) -> None:
        if durable and client_request_token:
            raise ValueError(token_refused(f"client_request_token={client_request_token!r}"))
        if durable and isinstance(config, Mapping):
            _check(config)
        super().__init__(client_request_token=client_request_token, config=config, durable=durable, **kwargs)
        if self.durable:
            for name in ("waiter_max_attempts", "waiter_delay"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name}={getattr(self, name)!r} is not allowed; use 1 or more")

    # --- run ---

    def execute(self, context: Context, event: dict[str, Any] | None = None) -> str | None:
        """Carry the run through the protocol; with ``durable=False`` as the parent does.

        Args:
            context: The task's context.
            event: Of the provider's trigger, for a task that was deferred by the provider's operator until
                its application had started.

        Returns:
            The run's id.
        """
        if self.durable and not self.wait_for_completion:
            self.deferrable = False
        with self.looking(context):
            return self.execute_resumable(context)  # type: ignore[no-any-return]

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> Any:
        """Take over the run of a task that the provider's operator has deferred.

        Returns:
            The run's id.
        """
        from airflow_resumable.integration import settings

        told = (event or {}).get("job_details") or {}
        if not self.durable or not settings.enabled() or not told.get("job_id"):
            return super().execute_complete(context, event)
        self._job_place = told.get("application_id")
        return self.resume_job(context, {}, external_id=told["job_id"], generation=1)

    def _execute_stock(self, context: Context) -> Any:
        self._go_unrecorded()
        return EmrServerlessStartJobOperator.execute(self, context)

    def _start(self, token: str | None, context: Context) -> str:
        client, place = self.aws.sending, self._place
        application.make_ready(
            self.aws.hook,
            self.aws.reading,
            place,
            delay=self.get_poll_interval(),
            looks=self.waiter_max_attempts,
        )
        try:
            request = self._request(token, context)
            answer = self._sent(lambda: client.start_job_run(**request))
        except client.exceptions.ConflictException as error:
            # It is told of an application that is stopping too.
            if token is None or application.state_of(self.aws.reading, place) not in application.READY:
                raise
            raise TokenConflict(_aws_errors.message_of(error)) from error
        run = str(_aws_errors.part_of(answer, "jobRunId"))
        self.log.info("EMR serverless job started: %s", run)
        return run

    def _request(self, token: str | None, context: Context) -> dict[str, Any]:
        config = dict(self.config)
        base = config.pop("name", None) or self.name or _UNNAMED
        request = {
            "applicationId": self._place,
            "executionRoleArn": self.execution_role_arn,
            "jobDriver": self.job_driver,
            **config,
        }
        overrides = self._overrides(context)
        if overrides is not None:
            request["configurationOverrides"] = overrides
        if token is None:
            return {"clientToken": self.client_request_token, "name": base, **request}
        _check(config)
        return {**request, "clientToken": token, "name": name_with(str(base), token, _LONGEST_NAME)}

    def get_poll_interval(self) -> float:
        """Return the parent's `waiter_delay`, in seconds."""
        return float(self.waiter_delay)

    @property
    def _most_looks(self) -> int | None:
        return int(self.waiter_max_attempts)

    # --- the service ---

    def _describe(self, client: Any, run: str) -> Mapping[str, Any]:
        answer = client.get_job_run(applicationId=self._place, jobRunId=run)
        return _aws_errors.part_of(answer, "jobRun")  # type: ignore[no-any-return]

    def _pages(self, client: Any, since: datetime) -> Iterator[Sequence[Mapping[str, Any]]]:
        # What is listed without a mode isn't stated.
        mode = self.config.get("mode")
        pages = client.get_paginator("list_job_runs").paginate(
            applicationId=self._place,
            createdAtAfter=since,
            **({"mode": mode} if mode else {}),
            PaginationConfig={"PageSize": _PAGE},
        )
        for page in pages:
            yield _aws_errors.part_of(page, "jobRuns")

    def _token_of(self, run: Mapping[str, Any]) -> str | None:
        return token_at_the_end(run.get("name"))

    def _stop(self, client: Any, run: str) -> None:
        client.cancel_job_run(applicationId=self._place, jobRunId=run)

    # --- links ---

    def publish_job(self, external_id: JsonValue, context: Context) -> None:
        """Push what the parent's links are made of, and those links that are plain text."""
        self.job_id = str(external_id)
        pushed: dict[str, Any] = {}
        ti = context["ti"]

        def xcom_push(key: str, value: Any) -> None:
            pushed[key] = value
            ti.xcom_push(key=key, value=value)

        heard: Any = {**context, "ti": SimpleNamespace(xcom_push=xcom_push)}
        self._as_of_the_run().persist_links(heard)
        for link in _LINKS_OF_TEXT:
            if link.key in pushed:
                ti.xcom_push(key=link().xcom_key, value=link().format_link(**pushed[link.key]))

    def _as_of_the_run(self) -> Self:
        """Return the operator as the parent needs it: its application and region those of the run."""
        meta = self.aws.reading.meta
        told = copy.copy(self)
        vars(told)["application_id"] = self._place
        vars(told)["hook"] = SimpleNamespace(
            conn_region_name=meta.region_name, conn_partition=meta.partition, aws_conn_id=self.aws_conn_id
        )
        return told

    def get_job_url(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the run's page, in the EMR Studio of the connection's ``emr-studio-url`` or the console."""
        path = f"serverless-applications/{self._place}"
        studio = self.aws.hook.conn_config.extra_config.get("emr-studio-url")
        if studio:
            return f"{str(studio).rstrip('/')}/#/{path}/{external_id}"
        meta = self.aws.reading.meta
        domain = EmrServerlessS3LogsLink.get_aws_domain(meta.partition)
        home = f"https://console.{domain}/emr/home?region={meta.region_name}"
        return f"{home}#/{path}/job-runs/{external_id}" if domain else None

    # --- the triggerer ---

    @classmethod
    def _watcher(cls, known: Mapping[str, Any], interval: float, looks: int | None) -> Self:
        watcher = cls(task_id="watched", retries=1, execution_role_arn="", job_driver={}, **known)
        vars(watcher).update(waiter_delay=interval, waiter_max_attempts=looks)
        return watcher


def _check(config: Mapping[str, Any]) -> None:
    if "clientToken" in config:
        raise ValueError(token_refused(f"config={{'clientToken': {config['clientToken']!r}}}"))
