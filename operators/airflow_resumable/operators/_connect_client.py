# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Single requests to a Spark Connect server about one operation at a time.

An operation is started under an id of ours and goes on when its client is gone, for as long as the server
cares for a detached one (``spark.connect.execute.manager.detachedTimeout``, 5 minutes unless set). No
stream is kept open here and no thread runs: each look is a request of its own, and every now and then one
of them attaches to the operation, which starts the server's count anew.
See https://spark.apache.org/docs/latest/spark-connect-overview.html and ``spark/connect/base.proto``
"""

from __future__ import annotations

import logging
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from airflow_resumable.jobs.errors import JobNotFound
from airflow_resumable.operators import _connect_errors as errors
from airflow_resumable.operators._connect_errors import grpc

with warnings.catch_warnings():
    # pyspark says so of each pandas that is newer than itself; nothing here goes through pandas.
    warnings.simplefilter("ignore", FutureWarning)
    import pyspark.sql.connect.proto as pb
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

_log = logging.getLogger(__name__)

RUNNING = "RUNNING"
FINISHED = "FINISHED"
FAILED = "FAILED"
CANCELED = "CANCELED"

ASK_LIMIT = 10.0
"""Seconds for one request and its answer."""
CANCEL_LIMIT = 1.5
"""Seconds for an interrupt: a dying task has no more."""
ACCEPT_LIMIT = 5.0
"""Seconds for which the first word on a new operation is waited for before its status is asked for."""
GLANCE = 1.0
"""Seconds of an attached look at an operation that is at work."""
READ_LIMIT = 120.0
"""Seconds for the whole result of an operation that has ended."""
ATTACH_AFTER = 2.0
"""Seconds until a look attaches to an operation that was seen at work for the first time.

A server (4.2.0) takes an operation for an orphan, and ends it, that is attached to in the moment in which
another request starts it.
"""

# By number: the names are not in the messages of pyspark 4.0 and 4.1, whose servers don't answer it either.
_TOLD = {2: RUNNING, 4: FINISHED, 5: FAILED, 6: CANCELED}
_OF_SPARK = grpc.StatusCode.INTERNAL
"""What a Spark Connect server gives its own errors, a failed operation's too."""
_ENDING = 3
"""Ended, and not let go of yet; how it ended is told by its stream."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an operation ended.

    Args:
        state: FINISHED, FAILED or CANCELED.
        message: The server's own words for a failure.
        batches: The result, as Arrow streams.
    """

    state: str
    message: str = ""
    batches: tuple[bytes, ...] = ()


class ConnectClient:
    """One user's requests to one server.

    Args:
        url: ``sc://host:port/;user_id=...;token=...``, as `SparkConnectHook` makes it.
        user_id: The user whose sessions these are. A session is known by user and id.
        who: What to check when the server refuses this user, for the error's text.
        attach_every: Seconds after which a look attaches again, well below the server's detachedTimeout.
    """

    def __init__(self, url: str, user_id: str, who: str, attach_every: float = 20.0) -> None:
        builder = DefaultChannelBuilder(url)
        self.endpoint: str = builder.endpoint
        self.user_id = user_id
        self._url = url
        self._who = who
        self._attach_every = attach_every
        self._agent = builder.userAgent
        self._channel: grpc.Channel = builder.toChannel()
        self._stub: Any = SparkConnectServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = list(builder.metadata())
        self._attach_at: dict[str, float] = {}
        self._endings: dict[str, Ending] = {}

    def again(self) -> ConnectClient:
        """Return another client of the same server and user."""
        return ConnectClient(self._url, self.user_id, self._who, self._attach_every)

    def close(self) -> None:
        """Hang up; operations go on."""
        self._channel.close()

    def start(self, operation: str, plan: pb.Plan, conf: Mapping[str, str]) -> bool:
        """Start an operation in a session of its own, both under the same id.

        Args:
            operation: A UUID.
            plan: What to run.
            conf: Settings of the session.

        Returns:
            Whether this call has started it; False where the server had it already.
        """
        # Only asked, not attached to: another worker may be starting it right now.
        if self._told_or_gone(operation):
            return False
        try:
            if conf:
                self._configure(operation, conf)
            return self._execute(operation, plan)
        except grpc.RpcError as error:
            # Of a dropped operation and a closed session the server remembers the ids, and no more.
            if errors.error_class(error) in errors.TAKEN:
                _log.info("operation %s was started before: %s", operation, errors.text(error))
                return False
            raise

    def _execute(self, operation: str, plan: pb.Plan) -> bool:
        request = pb.ExecutePlanRequest(
            **self._session(operation), operation_id=operation, plan=_unlike(plan)
        )
        request.request_options.add().reattach_options.reattachable = True
        with self._refusals():
            call = self._stub.ExecutePlan(request, timeout=ACCEPT_LIMIT, metadata=self._metadata)
            try:
                next(call, None)
            except grpc.RpcError as error:
                if errors.error_class(error) in errors.TAKEN or errors.is_refusal(error):
                    raise
                # Servers before 4.2 say nothing until there is something to say; a statement that can't be
                # parsed is a failed operation. Either is there, where a lost request left nothing.
                if not self._is_known(operation):
                    raise
            finally:
                call.cancel()
        return True

    def _told_or_gone(self, operation: str) -> str | None:
        try:
            return self._told(operation)
        except JobNotFound:
            return None

    def _is_known(self, operation: str) -> bool:
        if self._told_or_gone(operation):
            return True
        try:
            # Long sent by now.
            self.state(operation)
        except JobNotFound:
            return False
        return True

    def _configure(self, operation: str, conf: Mapping[str, str]) -> None:
        request = pb.ConfigRequest(**self._session(operation))
        request.operation.set.pairs.extend(pb.KeyValue(key=key, value=value) for key, value in conf.items())
        with self._refusals():
            self._stub.Config(request, timeout=ASK_LIMIT, metadata=self._metadata)

    def state(self, operation: str) -> str:
        """Return what an operation is doing: RUNNING, FINISHED, FAILED or CANCELED.

        Raises:
            JobNotFound: The server has no such operation, or none any more.
            PermissionError: It refused this user.
        """
        if operation in self._endings:
            return self._endings[operation].state
        told = self._told(operation)
        if told == CANCELED:
            self._await_cancel(operation)
        if told in (FINISHED, FAILED, CANCELED):
            return told
        if told == RUNNING:
            now = time.monotonic()
            if now > self._attach_at.setdefault(operation, now + min(ATTACH_AFTER, self._attach_every)):
                self._attach(operation)
            return RUNNING
        # Ended, which only its stream tells the end of; or a server that knows no other way to tell.
        ending = self._read(operation, READ_LIMIT if told else GLANCE, has_ended=bool(told))
        return ending.state if ending is not None else RUNNING

    def _await_cancel(self, operation: str) -> None:
        # The server says so when it has taken the interrupt; the stream ends when the operation has.
        with suppress(JobNotFound):
            self._read(operation, ASK_LIMIT, has_ended=True)

    def ending(self, operation: str) -> Ending:
        """Return how an operation that has ended did so, with its result.

        Raises:
            JobNotFound: The server has let go of it.
        """
        if operation not in self._endings and self._read(operation, READ_LIMIT, has_ended=True) is None:
            raise TimeoutError(f"{self.endpoint} did not send the end of operation {operation}")
        return self._endings[operation]

    def _told(self, operation: str) -> str | None:
        """Return what the server says of an operation; None where it can't tell without a stream."""
        if not hasattr(pb, "GetStatusRequest"):
            return None
        request = pb.GetStatusRequest(**self._session(operation))
        request.operation_status.operation_ids.append(operation)
        try:
            with self._refusals(operation):
                answer = self._stub.GetStatus(request, timeout=ASK_LIMIT, metadata=self._metadata)
        except grpc.RpcError as error:
            if errors.code(error) is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise
        numbers = [one.state for one in answer.operation_statuses if one.operation_id == operation]
        if numbers == [_ENDING]:
            return "ENDING"
        if not numbers or numbers[0] not in _TOLD:
            raise JobNotFound(f"{self.endpoint} knows nothing of operation {operation}")
        return _TOLD[numbers[0]]

    def _attach(self, operation: str) -> None:
        with self._refusals(operation):
            call = self._reattach(operation, GLANCE)
            try:
                next(call, None)
            except grpc.RpcError as error:
                # No word is an answer too; what else there is to say, the next look says.
                passing = errors.is_transient(error) or errors.code(error) is _OF_SPARK
                if not passing or errors.error_class(error) in errors.GONE:
                    raise
            finally:
                call.cancel()
        self._attach_at[operation] = time.monotonic() + self._attach_every

    def _read(self, operation: str, patience: float, *, has_ended: bool) -> Ending | None:
        """Read an operation's stream from its beginning; None when it has no end yet."""
        batches: list[bytes] = []
        with self._refusals(operation):
            call = self._reattach(operation, patience)
            try:
                for response in call:
                    if response.HasField("arrow_batch"):
                        batches.append(response.arrow_batch.data)
                    if response.HasField("result_complete"):
                        return self._note(operation, Ending(FINISHED, batches=tuple(batches)))
            except grpc.RpcError as error:
                status, kind = errors.code(error), errors.error_class(error)
                if status is grpc.StatusCode.DEADLINE_EXCEEDED and not has_ended:
                    return None
                if errors.is_transient(error) or kind in errors.GONE or not errors.is_sparks_own(error):
                    raise
                if kind in (errors.BUFFER_EXCEEDED, errors.NOT_REATTACHABLE):
                    raise RuntimeError(_REMEDIES[kind].format(operation=operation)) from error
                state = CANCELED if kind == errors.CANCELED else FAILED
                return self._note(operation, Ending(state, errors.text(error)))
            finally:
                call.cancel()
        return None

    def _note(self, operation: str, ending: Ending) -> Ending:
        if ending.state == FAILED:
            _log.error("operation %s failed: %s", operation, ending.message)
        self._endings[operation] = ending
        return ending

    def _reattach(self, operation: str, patience: float) -> Any:
        request = pb.ReattachExecuteRequest(**self._session(operation), operation_id=operation)
        return self._stub.ReattachExecute(request, timeout=patience, metadata=self._metadata)

    def interrupt(self, operation: str) -> None:
        """Ask the server to cancel an operation; one that has ended is none to cancel.

        Raises:
            JobNotFound: There is no such operation.
        """
        request = pb.InterruptRequest(
            **self._session(operation),
            interrupt_type=pb.InterruptRequest.INTERRUPT_TYPE_OPERATION_ID,
            operation_id=operation,
        )
        with self._refusals(operation):
            answer = self._stub.Interrupt(request, timeout=CANCEL_LIMIT, metadata=self._metadata)
        if not answer.interrupted_ids:
            _log.info("operation %s: nothing to cancel, it has ended", operation)

    def release(self, operation: str) -> None:
        """Let the server forget an operation, its result and its session."""
        session = self._session(operation)
        release = pb.ReleaseExecuteRequest(**session, operation_id=operation)
        release.release_all.SetInParent()
        calls: tuple[tuple[Callable[..., Any], Any], ...] = (
            (self._stub.ReleaseExecute, release),
            (self._stub.ReleaseSession, pb.ReleaseSessionRequest(**session)),
        )
        for call, request in calls:
            try:
                with self._refusals(operation):
                    call(request, timeout=ASK_LIMIT, metadata=self._metadata)
            except JobNotFound:
                return

    def _session(self, operation: str) -> dict[str, Any]:
        return {
            "session_id": operation,
            "user_context": pb.UserContext(user_id=self.user_id),
            "client_type": self._agent,
        }

    @contextmanager
    def _refusals(self, operation: str | None = None) -> Iterator[None]:
        """Put into words what the caller has to know apart; with an operation, that it is gone."""
        try:
            yield
        except grpc.RpcError as error:
            if errors.is_refusal(error):
                raise PermissionError(
                    f"{self.endpoint} refused user {self.user_id!r} ({errors.text(error)}): check {self._who}"
                ) from error
            if operation is not None and errors.error_class(error) in errors.GONE:
                raise JobNotFound(f"{self.endpoint}: {errors.text(error)}") from error
            raise


def _unlike(plan: pb.Plan) -> pb.Plan:
    """Return a plan that does the same and equals no other.

    A server attaches a second request with an equal plan to the operation of the first, and so ends one
    that is being started (see `ATTACH_AFTER`); one with another plan it answers that the id is taken.
    """
    copy = pb.Plan()
    copy.CopyFrom(plan)
    # Above those that pyspark counts from 0.
    number = secrets.randbelow(2**62) + 2**40
    if copy.HasField("root"):
        copy.root.common.plan_id = number
        return copy
    write = getattr(copy.command, copy.command.WhichOneof("command_type") or "")
    inner = pb.Relation()
    inner.CopyFrom(write.input)
    # Skips no row; Spark's optimizer drops it.
    write.input.Clear()
    write.input.common.plan_id = number
    write.input.offset.offset = 0
    write.input.offset.input.CopyFrom(inner)
    return copy


_REMEDIES = {
    errors.BUFFER_EXCEEDED: (
        "operation {operation} has a result that is larger than what the server keeps for a second reader: "
        "lower result_rows_limit, or raise spark.connect.execute.reattachable.observerRetryBufferSize"
    ),
    errors.NOT_REATTACHABLE: (
        "operation {operation} can't be attached to, so it ends with its client: set "
        "spark.connect.execute.reattachable.enabled=true on the server"
    ),
}
