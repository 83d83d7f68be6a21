# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableSparkSubmitOperator`: a Spark standalone driver, started once and watched to its end."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.adapter import FoundJob, Observation, SubmitWindow
from airflow_resumable.jobs.mixin import ResumableJobMixin
from airflow_resumable.operators import _spark_parent

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.operators._driver_search import DriverSearch
    from airflow_resumable.operators._spark_master import Masters

_spark_parent.check(SparkSubmitOperator, _spark_parent.OPERATOR_CLASS)
_spark_parent.check(SparkSubmitHook, _spark_parent.HOOK_CLASS)

_DRIVER_ID = re.compile(r"driver-\d{14}-\d{4,}")
# OpenLineage names the task instance's try in the parent run's id.
_PER_TRY_CONF = "spark.openlineage."


class ResumableSparkSubmitOperator(ResumableJobMixin, SparkSubmitOperator):
    """`SparkSubmitOperator` whose driver survives its worker: started once, found again, watched to its end.

    Takes the place of the provider's operator: the same arguments, template fields and result, and the
    driver's id under the same key, so that a run can change from one to the other in mid-flight. The job
    protocol is kept for a ``spark://`` master in cluster deploy mode; which master that is, is known once
    the connection is read, in `execute`. With any other master and in client mode the operator behaves
    as its parent and says so in the log.

    The id is on record as soon as spark-submit prints it, before that process ends. spark-submit is killed
    when its task dies (on Linux; a ``spark-binary`` that is a script must ``exec``). Status and kill are
    requests to the master's REST gateway, no JVM; where that is off, the status is read from the JSON page
    of the master's web UI, and a cancel is refused.

    Extras of the Spark connection: the parent's ``rest-scheme`` (http) and ``rest-port`` (6066), and
    ``webui-port`` (8080), where the master's web UI listens. The port in the master's URL doesn't matter
    for any of these.

    What remains open:
        Spark standalone takes no token and no id of ours: it starts a driver for every request. So the
        intent keeps the ids that the master listed before the submit, the driver carries the token as the
        property ``spark.airflow.resumable.mark``, and a try that finds an intent without an id looks at
        the drivers that are new on the master's list: a worker writes the command that it launches, the
        mark in it, at the top of the driver's stderr, and serves it on its web UI as long as it keeps the
        driver's directory. A crash between "accepted" and "on record" then starts no second driver, but

        - when the master forgot the driver in between: restarted without recovery (which kills the driver),
          restarted with recovery after the driver had ended, or ``spark.deploy.retainedDrivers`` others
          have ended since;
        - when the master's web UI could be reached neither before the submit nor afterwards: nothing can
          be looked up, which is warned about at every submit;
        - when two attempts overlap (a worker that was only taken for dead) and both are in their submit.

        A driver that was taken in that window just before a user stopped the task, or before the last try
        was killed, runs on: nobody is left to look for it.

        It can't be told of a driver that no worker has launched yet, or whose worker's web UI is out of
        reach. Such a driver is waited for, for `adoption_patience` seconds; then the attempt fails with
        `JobNotSettled`, which Airflow retries, rather than adopt or repeat it. Of a driver that failed or
        was killed it need not be told: a new one is due either way.

    Args:
        status_poll_interval: Seconds between two looks at the driver, more than 0.
        deploy_mode: ``cluster``, ``client``, or None for the connection's.
        durable: False, or the parent's deprecated `reconnect_on_retry` False, is the parent's own
            behaviour.
        resume_policy: See `airflow_resumable.sdk.ResumableJobMixin`.

    Raises:
        TypeError, ValueError: At parse time, naming the argument, the value and what is allowed.
        ImportError: The installed provider lacks something that is needed of it; names it.
    """

    submit_window: SubmitWindow = SubmitWindow.OPEN
    adoption_patience: float = 60.0
    """Seconds to wait until it can be told of every new driver whether it is this task's."""

    _masters: Masters | None = None
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
        """Carry a driver of a standalone cluster through the protocol; anything else is the parent's."""
        from airflow_resumable.integration import settings

        hook = self._hook
        if hook is None or not self.durable or not settings.enabled() or not hook._should_track_driver_status:
            return self._execute_stock(context)
        from airflow_resumable.operators._spark_master import Masters

        self._masters = Masters.of(hook)
        return super().execute_resumable(context)

    def looking(self, context: Context) -> AbstractContextManager[Any]:
        """Find the masters, as `execute` does.

        Raises:
            ValueError: The connection names no cluster whose drivers this operator follows.
        """
        from airflow_resumable.operators._spark_master import Masters

        self._hook = self._get_hook()
        if not self._hook._should_track_driver_status:
            raise ValueError(
                f"master {self._hook._connection['master']!r} has no drivers that can be followed"
            )
        self._masters = Masters.of(self._hook)
        return nullcontext()

    def _execute_stock(self, context: Context) -> Any:
        self._masters = None
        return super()._execute_stock(context)

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        _spark_parent.check(hook, _spark_parent.HOOK_SELF)
        self._resumable_stock = not hook._should_track_driver_status
        if self.durable and self._resumable_stock:
            self.log.info(
                "Master %s, deploy mode %s: run as by SparkSubmitOperator. This operator carries Spark "
                "standalone in cluster mode through crashes, nothing else yet",
                hook._connection["master"],
                hook._connection["deploy_mode"],
            )
        return hook

    @property
    def _protocol(self) -> tuple[Masters, SparkSubmitHook, JobAttempt]:
        if self._masters is None or self._hook is None or self._resumable_attempt is None:
            raise AssertionError("called outside the job protocol")
        return self._masters, self._hook, self._resumable_attempt

    def submit_job(self, context: Context) -> Any:
        """Run spark-submit and return the driver's id as soon as it is printed.

        Raises:
            AirflowException: spark-submit ended without an id, and the master has no driver of this task.
            JobAmbiguous: It ended so, and the master has more than one.
        """
        if self._masters is None:
            return super().submit_job(context)
        from airflow_resumable.operators._driver_search import MARK
        from airflow_resumable.operators._submit_client import SubmitClient

        _, hook, attempt = self._protocol
        hook._validate_yarn_track_via_rm_api_config()
        # A new dict: the operator's own `conf` is part of what makes two jobs the same.
        hook._conf = {**hook._conf, MARK: attempt.token}
        command = hook._build_spark_submit_command(self.application)
        client = SubmitClient(command, lambda line: hook._process_spark_submit_log(iter([line])))
        try:
            driver_id = client.wait_for_id()
        except BaseException:
            client.kill()
            raise
        if driver_id is None and client.returncode == 0 and _DRIVER_ID.fullmatch(hook._driver_id or ""):
            driver_id = hook._driver_id
        hook._driver_id = driver_id or self._accepted_without_a_word()
        if hook._driver_id is None:
            raise AirflowException(self._why_no_id(hook, command, client.returncode))
        self.log.info("Spark driver submitted: %s", hook._driver_id)
        return hook._driver_id

    def _why_no_id(self, hook: SparkSubmitHook, command: list[str], code: int | None) -> str:
        if code:
            return f"Cannot execute: {hook._mask_cmd(command)}. Error code is: {code}.{hook._submit_log_tail}"
        return (
            "No driver id is known: spark-submit ended well without telling one; its log level for "
            f"org.apache.spark.deploy must be INFO{hook._submit_log_tail}"
        )

    def _accepted_without_a_word(self) -> str | None:
        from airflow_resumable.jobs.errors import JobAmbiguous

        _, _, attempt = self._protocol
        record = attempt.record
        if record is None or record.before is None:
            return None
        try:
            found = self._search(record.token, record.intent_at).settle(self.adoption_patience)
        except Exception as error:
            self.log.warning("spark-submit told no driver id; looking for the driver: %s", error)
            return None
        live = [one.id for one in found if one.is_live]
        if len(live) > 1:
            raise JobAmbiguous(
                f"spark-submit told no driver id and left drivers {', '.join(live)} with this task's token "
                f"{record.token}: kill all but one, then clear the task",
                external_id=live[0],
            )
        if not found:
            return None
        driver_id = (live or [found[0].id])[0]
        self.log.warning("spark-submit told no driver id, but %s carries this task's token", driver_id)
        return driver_id

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the driver's state by the leading master: over REST, or from its web UI where REST is off.

        Raises:
            JobNotFound: The leading master has no such driver.
            ConnectionError: No leading master answered; names every URL. Retried within
                `status_error_budget`.
        """
        if self._masters is None:
            return super().get_job_status(external_id, context)
        masters, hook, _ = self._protocol
        state = masters.driver_state(str(external_id))
        if state != hook._driver_status:
            self.log.info("Driver %s is %s", external_id, state)
        hook._driver_status = state
        return state

    def is_job_active(self, status: str) -> bool:
        """Say whether the driver is queued or at work."""
        if self._masters is None:
            return super().is_job_active(status)
        from airflow_resumable.operators._spark_master import ACTIVE

        return status in ACTIVE

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether the driver has finished."""
        if self._masters is None:
            return super().is_job_succeeded(status)
        from airflow_resumable.operators._spark_master import SUCCEEDED

        return status in SUCCEEDED

    def is_job_failed(self, status: str) -> bool:
        """Say whether the driver has failed, was killed, or could not be run."""
        from airflow_resumable.operators._spark_master import FAILED

        return status in FAILED

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Look at the driver every `status_poll_interval` seconds until it has ended."""
        if self._masters is None:
            return super().poll_until_complete(external_id, context)
        from airflow_resumable.jobs.watch import poll

        poll(self._attempt_for_polling(context), external_id)
        return None

    def get_poll_interval(self) -> float:
        """Return the parent's `status_poll_interval`, in seconds."""
        return float(self._status_poll_interval)

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Ask the masters over REST to kill the driver, within 1.5 s; one that has ended is none to kill.

        Raises:
            ConnectionError: No master took the request.
        """
        masters, _, _ = self._protocol
        masters.kill(str(external_id))

    def snapshot_before_submit(self, context: Context) -> JsonValue:
        """Return the drivers that the master lists, or None with a warning where its web UI can't be reached.

        Raises:
            AirflowException: The masters answer neither there nor over REST: a driver could not be
                watched.
        """
        from airflow_resumable.operators._driver_search import snapshot

        masters, _, _ = self._protocol
        try:
            return snapshot(masters, self._java_class, self.adoption_patience)
        except ConnectionError as error:
            raise AirflowException(
                f"a driver on {masters.url} could not be watched, so nothing was submitted: {error}"
            ) from error

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> list[FoundJob]:
        """Return the drivers that carry `token`, see "What remains open" in the class's own text.

        Raises:
            JobNotSettled: Of some drivers that can't be told within `adoption_patience`; names them.
            ConnectionError, PermissionError: The master's list can't be read, though it could before the
                submit.
        """
        masters, _, attempt = self._protocol
        record = attempt.record
        if record is not None and record.token == token and record.external_id is not None:
            # Its id is on record already, and looked at by whoever asks.
            return []
        drivers = self._search(token, since).settle(self.adoption_patience)
        return [FoundJob(one.id, one.state, token=token, location=masters.url) for one in drivers]

    def _search(self, token: str, since: datetime) -> DriverSearch:
        from airflow_resumable.operators._driver_search import Before, DriverSearch

        masters, _, attempt = self._protocol
        record = attempt.record
        cleared = record is not None and (record.reported or record.max_tries != attempt.max_tries)
        return DriverSearch(
            masters,
            token,
            before=Before.load(record.before) if record is not None else None,
            since=since,
            # After a clear only what has to be cancelled is sought.
            ended_matter=not (cleared and attempt.policy.on_clear == "resubmit"),
        )

    def get_job_location(self, external_id: JsonValue, context: Context) -> JsonValue:
        """Return the master URL."""
        masters, _, _ = self._protocol
        return masters.url

    def restore_job(
        self, external_id: JsonValue, location: JsonValue, uid: str | None, context: Context
    ) -> None:
        """Take over a driver that another attempt started; it is looked for where it was started."""
        from airflow_resumable.operators._spark_master import Masters

        masters, hook, _ = self._protocol
        hook._driver_id = str(external_id)
        if isinstance(location, str) and not masters.is_same_cluster_as(location):
            self.log.warning(
                "Driver %s was started on %s; connection %r now names %s. It is watched where it is",
                external_id,
                location,
                masters.connection,
                masters.url,
            )
            self._masters = Masters.of(hook, location)

    def get_job_spec(self, context: Context) -> Any:
        """Return the rendered template fields without what OpenLineage adds for each try."""
        spec = super().get_job_spec(context)
        if isinstance(spec.get("conf"), dict):
            spec["conf"] = {
                name: value for name, value in spec["conf"].items() if not str(name).startswith(_PER_TRY_CONF)
            }
        return spec

    def clean_up_job(self, external_id: JsonValue, observation: Observation, context: Context) -> None:
        """Run the `post_submit_commands`, now that the outcome is on record."""
        _, hook, _ = self._protocol
        hook._run_post_submit_commands()
