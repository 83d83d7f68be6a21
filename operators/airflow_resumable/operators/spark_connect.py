# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableSparkConnectOperator`: one operation of a Spark Connect server, started once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.adapter import FoundJob, Observation, SubmitWindow
from airflow_resumable.jobs.errors import JobNotFound
from airflow_resumable.jobs.link import JobLink
from airflow_resumable.jobs.mixin import ResumableJobMixin
from airflow_resumable.jobs.outcome import RESULT_LIMIT
from airflow_resumable.jobs.token import as_uuid
from airflow_resumable.operators import _connect_arguments
from airflow_resumable.operators._connect_facts import FACTS
from airflow_resumable.operators._connect_statements import gives_no_rows
from airflow_resumable.operators._facts import ServiceFacts

if TYPE_CHECKING:
    import pyspark.sql.connect.proto as pb
    from airflow.sdk import Context
    from pydantic import JsonValue

    from airflow_resumable.operators._connect_client import ConnectClient

_WATCHED = "-- watched by the triggerer"
_USER = "airflow"


@contextmanager
def _needing_pyspark() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"ResumableSparkConnectOperator needs pyspark 4.0 or newer with all that Spark Connect needs "
            f"({error}): pip install 'airflow-resumable[spark]'"
        ) from error


class ResumableSparkConnectOperator(ResumableJobMixin, BaseOperator):
    """Runs one SQL statement, or what a function builds, on a Spark Connect server, and survives its worker.

    The operation's id and its session's are the task's token, spelled as a UUID, so that a crash anywhere
    starts one operation, as long as the server keeps it: an operation that nobody attaches to is cancelled
    by the server after ``spark.connect.execute.manager.detachedTimeout``, 5 minutes unless set otherwise, and
    a server that is restarted has lost all of them. Give such a task a `retry_delay` below that time.

    A statement that does something, ``INSERT`` or ``CREATE TABLE ... AS``, is run once like a query, in the
    same single operation, which `SparkSession.sql` doesn't promise.

    Needs pyspark 4.0 or newer (``pip install 'airflow-resumable[spark]'``) and a server of Spark 4.0 or
    newer; 4.2 tells the status of an operation without a stream, which makes looks cheaper.

    Args:
        sql: A statement, or a template file that ends in ``.sql``. Either this or `build`.
        build: A function that gets a Spark session and `op_kwargs` and returns a DataFrame, or writes one
            (``df.write.saveAsTable(...)``) and returns None. It describes the operation and must run nothing:
            ``collect``, ``show`` and a second write are refused. It is called in each try.
        op_kwargs: Keyword arguments of `build`.
        conn_id: A connection of type ``spark_connect``. Its extra ``ui-url`` names the server's web UI
            (``http://host:4040``), for the link to the operation.
        conf: Settings of the operation's session.
        result_rows_limit: Rows that are asked for and returned, at most, as a list of dicts; 1 or more. A
            statement that does something gives none.
        status_poll_interval: Seconds between two looks, from 0.1 to 60.
        detached_timeout: How long the server keeps an operation that nobody attaches to; more than twice
            `status_poll_interval`.
        deferrable: Let the triggerer watch.
        durable, resume_policy: See `airflow_resumable.sdk.ResumableJobMixin`.

    Raises:
        TypeError, ValueError: At parse time, naming the argument, the value and what is allowed.
    """

    external_id_key: str = "spark_connect_operation"
    submit_window: SubmitWindow = SubmitWindow.CLOSED
    # spark.connect.session.manager.defaultSessionTimeout
    token_memory: timedelta | None = timedelta(minutes=60)

    service_facts: ClassVar[tuple[ServiceFacts, ...]] = FACTS

    template_fields: Sequence[str] = ("sql", "op_kwargs", "conf", "conn_id")
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers: ClassVar[dict[str, str]] = {"sql": "sql", "op_kwargs": "py", "conf": "json"}
    operator_extra_links = (JobLink(),)
    ui_color = "#FF9933"

    _client: ConnectClient | None = None
    _plan: pb.Plan | None = None
    _created: bool | None = None
    _operation: str | None = None
    _result_size: int = 0

    def __init__(
        self,
        *,
        sql: str | None = None,
        build: Callable[..., Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        conn_id: str = "spark_connect_default",
        conf: Mapping[str, str] | None = None,
        result_rows_limit: int = 1000,
        status_poll_interval: float = 5.0,
        detached_timeout: timedelta = timedelta(minutes=5),
        deferrable: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sql = sql
        self.build = build
        self.op_kwargs = _connect_arguments.copied(op_kwargs)
        self.conn_id = conn_id
        self.conf = _connect_arguments.copied(conf)
        self.result_rows_limit = result_rows_limit
        self.poll_interval = status_poll_interval
        self.detached_timeout = detached_timeout
        self.deferrable = deferrable
        _connect_arguments.check(self, detached_timeout)
        _connect_arguments.warn_of_late_retries(self, detached_timeout)

    def execute(self, context: Context) -> Any:
        """Run the operation to its end.

        Returns:
            Its rows, at most `result_rows_limit`, each a dict by column.

        Raises:
            TypeError, ValueError: A template was rendered to what isn't allowed.
        """
        _connect_arguments.check_template_fields(self)
        with self.looking(context):
            return self.execute_resumable(context)

    @contextmanager
    def looking(self, context: Context) -> Iterator[None]:
        """Hold one connection to the server for as long as the block lasts."""
        try:
            yield
        finally:
            client, self._client = self._client, None
            if client is not None:
                client.close()

    def _connected(self) -> ConnectClient:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _connect(self, location: Mapping[str, Any] | None = None) -> ConnectClient:
        with _needing_pyspark():
            from airflow_resumable.operators._connect_client import ConnectClient
        url, user = self._server(location)
        attach_every = min(20.0, self.detached_timeout.total_seconds() / 4)
        return ConnectClient(url, user, f"login and password of connection {self.conn_id!r}", attach_every)

    def _server(self, location: Mapping[str, Any] | None = None) -> tuple[str, str]:
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

        hook = SparkConnectHook(self.conn_id)
        url = hook.get_connection_url()
        # Without one, pyspark takes the worker's own user, of which another worker may have another.
        user = hook.get_connection(self.conn_id).login or _USER
        if location is not None:
            _, _, rest = url.removeprefix("sc://").partition("/")
            url, user = f"sc://{location['endpoint']}/{rest}", str(location["user_id"])
        return url, user

    def _planned(self) -> pb.Plan:
        if self._plan is None:
            with _needing_pyspark():
                from airflow_resumable.operators import _connect_plan
            if self.build is None:
                self._plan = _connect_plan.of_sql(str(self.sql), self.result_rows_limit)
            else:
                url, user = self._server()
                self._plan = _connect_plan.of_build(
                    self.build, self.op_kwargs, url, user, self.result_rows_limit
                )
        return self._plan

    def get_job_spec(self, context: Context) -> Any:
        """Return the statement, or a hash of the plan that was built, with what else makes the operation."""
        spec: dict[str, Any] = {"sql": self.sql, "conf": self.conf, "rows": self.result_rows_limit}
        if self.build is not None:
            plan = self._planned()
            from airflow_resumable.operators import _connect_plan

            spec["plan"] = _connect_plan.digest(plan)
        return spec

    def submit_job(self, context: Context) -> str:
        """Start the operation under the token's id and return that, as soon as the server has it.

        Raises:
            PermissionError: The server refused the connection's user.
        """
        plan = self._planned()
        token = self.idempotency_token
        operation = as_uuid(token) if token else str(uuid.uuid4())
        # Before it is started: a stop may come in the middle.
        self._operation = operation
        self._created = self._connected().start(operation, plan, _connect_arguments.settings(self.conf))
        return operation

    def was_job_created(self) -> bool | None:
        """Say whether the last `submit_job` started the operation; False where the server had it already."""
        return self._created

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return RUNNING, FINISHED, FAILED or CANCELED; a look also keeps the operation from being dropped.

        Raises:
            JobNotFound: The server dropped the operation, or was restarted.
            PermissionError: It refused the connection's user.
        """
        return self._connected().state(str(external_id))

    def is_job_active(self, status: str) -> bool:
        """Say whether the operation is at work."""
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether the operation has done all its work."""
        return status == "FINISHED"

    def is_job_failed(self, status: str) -> bool:
        """Say whether the operation has failed or was cancelled."""
        return status in ("FAILED", "CANCELED")

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Look at the operation every `status_poll_interval` seconds until it has ended.

        Raises:
            AirflowException: It failed; with Spark's own message.
        """
        from airflow_resumable.jobs.watch import poll

        status = poll(self._attempt_for_polling(context), external_id)
        if status == "FAILED" and (message := self._why(external_id)):
            raise AirflowException(f"Spark Connect operation {external_id} failed: {message}")
        return None

    def _why(self, external_id: JsonValue) -> str:
        try:
            return self._connected().ending(str(external_id)).message
        except JobNotFound:
            return ""

    def get_job_result(self, external_id: JsonValue, context: Context) -> Any:
        """Return the operation's rows, see `execute`.

        Raises:
            JobNotFound: The server has let go of them.
        """
        from airflow_resumable.operators._connect_rows import rows_of

        try:
            rows = rows_of(self._connected().ending(str(external_id)).batches)
        except JobNotFound:
            # What isn't pushed isn't on record either, and isn't missed.
            if self._gives_no_rows():
                self.log.info("Operation %s had done its work before the server dropped it", external_id)
                return []
            if self.do_xcom_push:
                raise
            return None
        if len(rows) > self.result_rows_limit:
            self.log.warning(
                "Operation %s gives more than %d rows (result_rows_limit); the others are not returned",
                external_id,
                self.result_rows_limit,
            )
        del rows[self.result_rows_limit :]
        self._result_size = len(json.dumps(rows))
        return rows

    def _gives_no_rows(self) -> bool:
        sql = str(self.sql)
        if self.build is not None:
            plan = self._planned()
            if plan.HasField("command"):
                return True
            sql = plan.root.limit.input.sql.query
        return gives_no_rows(sql)

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> list[FoundJob]:
        """Return the operation that has the token for its id, or nothing."""
        operation = as_uuid(token)
        try:
            status = self.get_job_status(operation, context)
        except JobNotFound:
            return []
        return [FoundJob(operation, status, token=token, location=self.get_job_location(operation, context))]

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Interrupt the operation, within 1.5 s; one that has ended is none to cancel.

        Raises:
            JobNotFound: The server has no such operation.
        """
        # The one at hand may have been stopped in the middle of a request, with a lock taken.
        client = self._connected().again()
        try:
            client.interrupt(str(external_id))
        finally:
            client.close()

    def on_kill(self) -> None:
        """Interrupt the operation of a task that is not durable; else the protocol decides."""
        if self._operation is None or self._client is None:
            return
        # The one at hand may have been stopped in the middle of a request, with a lock taken.
        client = self._client.again()
        try:
            with suppress(JobNotFound):
                client.interrupt(self._operation)
        finally:
            client.close()

    def get_job_location(self, external_id: JsonValue, context: Context) -> JsonValue:
        """Return the server and the user whose operation it is."""
        client = self._connected()
        return {"endpoint": client.endpoint, "user_id": client.user_id}

    def restore_job(
        self, external_id: JsonValue, location: JsonValue, uid: str | None, context: Context
    ) -> None:
        """Take over an operation that another attempt started; it is looked for where it was started."""
        here = self.get_job_location(external_id, context)
        if not isinstance(location, dict) or location == here:
            return
        self.log.warning(
            "Operation %s was started on %s; connection %r now names %s. It is watched where it is",
            external_id,
            location,
            self.conn_id,
            here,
        )
        with self.looking(context):
            pass
        self._client = self._connect(location)

    def get_job_url(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the session's page in the server's web UI, if the connection's extra ``ui-url`` names it."""
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

        ui = SparkConnectHook.get_connection(self.conn_id).extra_dejson.get("ui-url")
        return f"{str(ui).rstrip('/')}/connect/session/?id={external_id}" if ui else None

    def clean_up_job(self, external_id: JsonValue, observation: Observation, context: Context) -> None:
        """Let the server forget the operation and its session, now that the outcome is on record."""
        # A result that is not on record must be found in the server by a try that follows.
        if observation is Observation.SUCCEEDED and self._result_size > RESULT_LIMIT:
            self.log.info(
                "Operation %s: its result is left to the server, too large for the record", external_id
            )
            return
        self._connected().release(str(external_id))

    def is_transient_error(self, error: BaseException) -> bool:
        """Say whether asking again may help: no connection, a deadline, too many requests."""
        from airflow_resumable.operators import _connect_errors

        return _connect_errors.is_transient(error) or super().is_transient_error(error)

    def get_watch_arguments(self, context: Context) -> Mapping[str, JsonValue]:
        """Return what the triggerer needs: the connection, and how often to look."""
        return {
            "conn_id": self.conn_id,
            "status_poll_interval": self.poll_interval,
            "detached_timeout": self.detached_timeout.total_seconds(),
        }

    @classmethod
    def for_watching(cls, arguments: Mapping[str, Any]) -> Self:
        """Return an operator that looks at an operation and can't start one."""
        # With a delay of its own, so that nothing is said of retries that there are none of.
        return cls(
            task_id="watched",
            retries=1,
            retry_delay=timedelta(seconds=1),
            sql=_WATCHED,
            conn_id=arguments["conn_id"],
            status_poll_interval=arguments["status_poll_interval"],
            detached_timeout=timedelta(seconds=arguments["detached_timeout"]),
        )
