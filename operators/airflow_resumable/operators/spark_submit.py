# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableSparkSubmitOperator`: a Spark application, started once on its cluster and watched to its end."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.adapter import Capabilities, FoundJob, Observation, SubmitWindow
from airflow_resumable.jobs.link import JobLink
from airflow_resumable.jobs.mixin import ResumableJobMixin
from airflow_resumable.operators import _spark_parent
from airflow_resumable.operators._facts import ServiceFacts
from airflow_resumable.operators._spark_facts import FACTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context
    from pydantic import JsonValue

    from airflow_resumable.operators._spark_target import SparkTarget
    from airflow_resumable.operators._submit_client import SubmitClient

_spark_parent.check(SparkSubmitOperator, _spark_parent.OPERATOR_CLASS)
_spark_parent.check(SparkSubmitHook, _spark_parent.HOOK_CLASS)

# OpenLineage names the task instance's try in the parent run's id.
_PER_TRY_CONF = "spark.openlineage."
_CLIENT_GONE_WITHIN = 0.5
"""Seconds for a killed spark-submit to be gone."""


class ResumableSparkSubmitOperator(ResumableJobMixin, SparkSubmitOperator):
    """`SparkSubmitOperator` whose application survives its worker: started once, found again, watched.

    Takes the place of the provider's operator: the same arguments, template fields and result, and the
    application's id under the same key, so that a run can change from one to the other in mid-flight. The
    job protocol is kept in cluster deploy mode for a ``spark://`` master, for Kubernetes and for YARN whose
    ResourceManager's address is known; which cluster that is, is known once the connection is read, in
    `execute`. With any other master and in client mode the operator behaves as its parent and says so in the
    log. What each cluster closes and what it leaves open is on the operator's page in the docs, and in the
    texts of `_spark_standalone`, `_spark_kubernetes` and `_spark_yarn`.

    spark-submit is killed when its task dies (on Linux; a ``spark-binary`` that is a script must ``exec``).
    Status and kill are requests to the cluster, no JVM.

    Args:
        status_poll_interval: Seconds between two looks at the application, more than 0; as by the parent, 20
            at least on Kubernetes and 10 on YARN.
        deploy_mode: ``cluster``, ``client``, or None for the connection's.
        durable: False, or the parent's deprecated `reconnect_on_retry` False, is the parent's own
            behaviour.
        resume_policy: See `airflow_resumable.sdk.ResumableJobMixin`.

    Raises:
        TypeError, ValueError: At parse time, naming the argument, the value and what is allowed.
        ImportError: The installed provider lacks something that is needed of it; names it.
    """

    service_facts: ClassVar[tuple[ServiceFacts, ...]] = FACTS
    submit_window: SubmitWindow = SubmitWindow.OPEN
    parent_cache_keys: tuple[str, ...] = ("k8s_driver_status",)
    operator_extra_links: Any = (JobLink(),)
    adoption_patience: float = 60.0
    """Seconds to wait until it can be told of every new driver of a standalone cluster whose it is."""

    _client: SubmitClient | None = None
    """The spark-submit that runs."""
    _target: SparkTarget | None = None
    """Set while the job protocol is in charge; else the operator is its parent."""

    def __init__(
        self,
        *,
        durable: bool | None = None,
        reconnect_on_retry: bool | None = None,
        deploy_mode: str | None = None,
        status_poll_interval: int = 1,
        **kwargs: Any,
    ) -> None:
        if durable is None:
            durable = True if reconnect_on_retry is None else reconnect_on_retry
        if deploy_mode not in (None, "client", "cluster"):
            raise ValueError(f"deploy_mode={deploy_mode!r} is not allowed; use 'cluster', 'client' or None")
        allowed = f"status_poll_interval={status_poll_interval!r} is not allowed; use seconds, more than 0"
        if isinstance(status_poll_interval, bool) or not isinstance(status_poll_interval, int | float):
            raise TypeError(allowed)
        if not 0 < status_poll_interval < float("inf"):
            raise ValueError(allowed)
        super().__init__(
            durable=durable,
            reconnect_on_retry=reconnect_on_retry,
            deploy_mode=deploy_mode,
            status_poll_interval=status_poll_interval,
            **kwargs,
        )
        _spark_parent.check(self, _spark_parent.OPERATOR_SELF)

    def execute_resumable(self, context: Context) -> Any:
        """Carry an application of a cluster through the protocol; anything else is the parent's."""
        from airflow_resumable.integration import settings
        from airflow_resumable.operators._spark_target import target_for

        hook = self._hook
        if hook is None or not self.durable or not settings.enabled():
            return self._execute_stock(context)
        self._target = target_for(self, hook)
        if self._target is None:
            return self._execute_stock(context)
        return super().execute_resumable(context)

    def looking(self, context: Context) -> AbstractContextManager[Any]:
        """Find the cluster, as `execute` does.

        Raises:
            ValueError: The connection names no cluster whose applications this operator follows.
        """
        from airflow_resumable.operators._spark_target import target_for

        self._hook = self._get_hook()
        self._target = target_for(self, self._hook)
        if self._target is None:
            raise ValueError(
                f"master {self._hook._connection['master']!r} has no drivers that can be followed"
            )
        return nullcontext()

    def _execute_stock(self, context: Context) -> Any:
        self._target = None
        return super()._execute_stock(context)

    def _get_hook(self) -> SparkSubmitHook:
        from airflow_resumable.operators._spark_target import followed, target_for

        hook = super()._get_hook()
        _spark_parent.check(hook, _spark_parent.HOOK_SELF)
        if self.durable:
            # By these the parent calls `execute_resumable`, and it leaves the waiting to us.
            followed(hook)
        self._resumable_stock = target_for(self, hook) is None
        if self.durable and self._resumable_stock:
            self.log.info(
                "Master %s, deploy mode %s: run as by SparkSubmitOperator. This operator carries Spark "
                "standalone, Kubernetes and YARN in cluster mode through crashes, nothing else yet",
                hook._connection["master"],
                hook._connection["deploy_mode"],
            )
        return hook

    def get_capabilities(self) -> Capabilities:
        """Return what the operator can do at its cluster; at none, or an unknown one, the least."""
        own = super().get_capabilities()
        return own if self._target is None else self._target.capabilities(own)

    @property
    def _cluster(self) -> SparkTarget:
        if self._target is None:
            # A stop came before this try's `execute` did: the job of the try before is on record.
            self.looking({})
        assert self._target is not None
        return self._target

    # --- submit ---

    def submit_job(self, context: Context) -> Any:
        """Run spark-submit and return the application's id as soon as it is known.

        Raises:
            AirflowException: spark-submit ended without an id, and the cluster has no application of this
                task.
            JobAmbiguous: It ended so, and the cluster has more than one.
        """
        if self._target is None:
            return super().submit_job(context)
        from airflow_resumable.operators._submit_client import SubmitClient

        target, hook, attempt = self._target, self._target.hook, self._target.attempt
        # A new dict: the operator's own `conf` is part of what makes two jobs the same.
        hook._conf = {**hook._conf, **target.conf(attempt.token or "", attempt.mint.family)}
        command = hook._build_spark_submit_command(self.application)
        client = SubmitClient(
            command,
            lambda line: hook._process_spark_submit_log(iter([line])),
            target.told,
            getattr(hook, "_env", None),
        )
        self._client = client
        try:
            external_id: Any = client.wait_for_id()
        except BaseException:
            client.kill()
            raise
        finally:
            self._client = None
        if external_id is None:
            external_id = target.after_client(client.returncode)
        if external_id is None:
            raise AirflowException(self._why_no_id(hook, command, client.returncode))
        self.log.info("Spark application submitted: %s", external_id)
        return external_id

    def _why_no_id(self, hook: SparkSubmitHook, command: list[str], code: int | None) -> str:
        if code:
            return f"Cannot execute: {hook._mask_cmd(command)}. Error code is: {code}.{hook._submit_log_tail}"
        return (
            "No driver id is known: spark-submit ended well without telling one; its log level for "
            f"org.apache.spark.deploy must be INFO{hook._submit_log_tail}"
        )

    def was_job_created(self) -> bool | None:
        """Say whether the last submit made a new application; None where the cluster doesn't tell."""
        return self._cluster.was_created()

    def snapshot_before_submit(self, context: Context) -> JsonValue:
        """Return what the cluster holds before the submit, where that helps to find what it starts.

        Raises:
            AirflowException: The cluster can't be reached: an application could not be watched.
        """
        return self._cluster.snapshot()

    # --- look ---

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the cluster's word for the application's state.

        Raises:
            JobNotFound: The cluster has no such application.
            ConnectionError: It didn't answer; names every URL. Retried within `status_error_budget`.
        """
        if self._target is None:
            return super().get_job_status(external_id, context)
        return self._target.status(str(external_id))

    def is_job_active(self, status: str) -> bool:
        """Say whether the application is queued or at work."""
        return super().is_job_active(status) if self._target is None else self._target.is_active(status)

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether the application has succeeded."""
        return super().is_job_succeeded(status) if self._target is None else self._target.is_succeeded(status)

    def is_job_failed(self, status: str) -> bool:
        """Say whether the application has failed, was killed, or could not be run."""
        return self._cluster.is_failed(status)

    def is_job_stopping(self, status: str) -> bool:
        """Say whether the application was told to end and has not ended yet."""
        return self._target is not None and self._target.is_stopping(status)

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Look at the application every `status_poll_interval` seconds until it has ended."""
        if self._target is None:
            return super().poll_until_complete(external_id, context)
        from airflow_resumable.jobs.watch import poll

        poll(self._attempt_for_polling(context), external_id)
        return None

    def get_poll_interval(self) -> float:
        """Return the parent's `status_poll_interval`, in seconds, or what the parent waits at least."""
        least = self._target.least_poll_interval if self._target else 0.0
        return max(least, float(self._status_poll_interval))

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return the applications that carry `token`, as far as the cluster shows it.

        Raises:
            JobNotSettled: It can't be told of some drivers; names them.
            ConnectionError, PermissionError: The cluster can't be searched.
        """
        if self._client is not None:
            # Only a stop asks while spark-submit runs, and what that starts later nobody would look for.
            self._client.kill()
            self._client.join(_CLIENT_GONE_WITHIN)
        return self._cluster.find_token(token, since)

    def find_jobs_by_family(self, family: str, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return the applications of every generation, where the cluster shows them."""
        return self._cluster.find_family(family, since)

    # --- the job on record ---

    def get_job_location(self, external_id: JsonValue, context: Context) -> JsonValue:
        """Return the cluster."""
        return self._cluster.location(str(external_id))

    def get_job_uid(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the driver pod's uid on Kubernetes; elsewhere ids aren't used twice."""
        return self._cluster.uid(str(external_id))

    def restore_job(
        self, external_id: JsonValue, location: JsonValue, uid: str | None, context: Context
    ) -> None:
        """Take over an application that another attempt started."""
        self._cluster.restore(str(external_id), location, uid)

    def get_job_url(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the application's page in the cluster's own UI."""
        return self._target.url(str(external_id)) if self._target else None

    def get_job_spec(self, context: Context) -> Any:
        """Return the rendered template fields without what OpenLineage adds for each try."""
        spec = super().get_job_spec(context)
        if isinstance(spec.get("conf"), dict):
            spec["conf"] = {
                name: value for name, value in spec["conf"].items() if not str(name).startswith(_PER_TRY_CONF)
            }
        return spec

    # --- end ---

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Ask the cluster to end the application, within 1.5 s; one that has ended is none to end.

        Raises:
            ConnectionError: The cluster didn't take the request.
        """
        self._cluster.cancel(str(external_id))

    def clean_up_job(self, external_id: JsonValue, observation: Observation, context: Context) -> None:
        """Run the `post_submit_commands`, now that the outcome is on record."""
        try:
            self._cluster.clean_up(str(external_id), observation)
        finally:
            self._cluster.hook._run_post_submit_commands()
