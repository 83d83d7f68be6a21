# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What an operation runs, as one plan: of SQL text, or of what a function builds.

`SparkSession.sql` sends a request of its own for each statement, and a second one for the rows; a
`DataFrameWriter` sends one when it is told to save. Here nothing is sent while a plan is made: a statement
becomes a relation, which the server runs once, a command among them too, and the one write that a function
makes is caught and becomes the plan.
"""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    import pyspark.sql.connect.proto as pb
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql.connect.client.core import DefaultChannelBuilder, SparkConnectClient
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.session import SparkSession

from airflow_resumable.operators._connect_statements import Statements

Message: Any = import_module("google.protobuf.message").Message

Build = Callable[..., Any]

_log = logging.getLogger(__name__)


def of_sql(sql: str, rows: int) -> pb.Plan:
    """Return the plan of one statement.

    Args:
        sql: The statement.
        rows: How many rows it may give, at most.
    """
    relation = pb.Relation()
    relation.sql.query = sql
    return _of_relation(relation, rows)


def of_build(build: Build, arguments: Mapping[str, Any], url: str, user_id: str, rows: int) -> pb.Plan:
    """Return the plan of what a function builds: the DataFrame it returns, or the one write it makes.

    Args:
        build: Gets a Spark session and `arguments`.
        arguments: Keyword arguments.
        url: The server, which is asked where a plan needs it (the columns of a table).
        user_id: The user.
        rows: As for `of_sql`.

    Raises:
        ValueError, TypeError: The function runs more than one thing, or nothing; says what to return.
    """
    session = _Session(url, user_id)
    client = session.client
    try:
        with _remote(session):
            built = build(session, **arguments)
            if client.writes and built is not None:
                raise ValueError(
                    "build wrote a DataFrame and returned another value; an operation is one thing: return "
                    "None after the write, or don't write"
                )
            if len(client.writes) > 1:
                raise ValueError(
                    f"build made {len(client.writes)} writes; an operation is one: make a task of each"
                )
            if client.writes:
                plan = pb.Plan(command=client.writes[0])
            elif isinstance(built, DataFrame):
                plan = _of_relation(built._plan.plan(client), rows)
            else:
                raise TypeError(
                    f"build returned {built!r}; return a DataFrame of the session it was given, or write one"
                )
        client.statements.check(plan, client.is_query)
        return plan
    finally:
        client.leave()


def digest(plan: pb.Plan) -> str:
    """Return a hash of a plan that is the same in each process that makes the same plan.

    pyspark numbers the parts of plans through a process's life and notes the lines of code they come from.
    """
    copy = pb.Plan()
    copy.CopyFrom(plan)
    _settle(copy, {})
    return hashlib.sha256(copy.SerializeToString(deterministic=True)).hexdigest()


def _settle(message: Any, numbers: dict[int, int]) -> None:
    for field, value in message.ListFields():
        if field.name in ("origin", "source_info") and field.message_type is not None:
            message.ClearField(field.name)
        elif field.name == "plan_id":
            setattr(message, field.name, numbers.setdefault(value, len(numbers) + 1))
        elif field.message_type is None:
            continue
        elif field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in sorted(value):
                    _settle(value[key], numbers)
        elif isinstance(value, Message):
            _settle(value, numbers)
        else:
            for one in value:
                _settle(one, numbers)


def _of_relation(relation: pb.Relation, rows: int) -> pb.Plan:
    plan = pb.Plan()
    # One more than wanted, to know whether there was more.
    plan.root.limit.limit = rows + 1
    plan.root.limit.input.CopyFrom(relation)
    return plan


@contextmanager
def _remote(session: SparkSession) -> Iterator[None]:
    # By the first pyspark's functions know that they belong to Connect, in a package that has both kinds; by
    # the second functions of the user's own find the session that they are made for. Not as the active one,
    # which pyspark would ask the server with each column whether to note the line of code.
    with (
        mock.patch.dict(os.environ, {"SPARK_CONNECT_MODE_ENABLED": "1"}),
        mock.patch.object(SparkSession, "_default_session", session),
    ):
        yield


class _Client(SparkConnectClient):
    """Makes plans, asks the server for their schemas, and runs nothing."""

    def __init__(self, url: str, user_id: str) -> None:
        super().__init__(DefaultChannelBuilder(url), user_id=user_id)
        self.writes: list[pb.Command] = []
        self.statements = Statements()

    def leave(self) -> None:
        """Hang up, and let the server forget the session if it was asked anything."""
        if self._server_session_id is not None:
            request = pb.ReleaseSessionRequest(session_id=self._session_id)
            request.user_context.user_id = self._user_id or ""
            try:
                self._stub.ReleaseSession(request, timeout=5.0, metadata=self._builder.metadata())
            except Exception as error:
                _log.warning("session %s is left to the server: %s", self._session_id, error)
        self.close()

    def execute_command(self, command: pb.Command, observations: Any = None) -> Any:
        """Catch a write; let a statement be a relation, as pyspark does where the server ran nothing."""
        if command.HasField("sql_command"):
            self.statements.add(command.sql_command.input)
        elif command.WhichOneof("command_type") in ("write_operation", "write_operation_v2"):
            self.writes.append(command)
        else:
            self._refuse(command.WhichOneof("command_type") or "a command")
        return None, {}, None

    def _execute_and_fetch_as_iterator(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse("an action (collect, show, count, toPandas)")

    def _execute(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse("a registration")

    def _set_relation_in_plan(self, plan: pb.Plan, relation: pb.Relation) -> None:
        # Not the parent's: that asks the server whether to compress it.
        plan.root.CopyFrom(relation)

    def add_artifacts(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse; they would be another session's."""
        self._refuse("an upload")

    def cache_artifact(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse; see `add_artifacts`."""
        self._refuse("a DataFrame of so much local data")

    cache_artifacts = cache_artifact

    def _refuse(self, what: str) -> None:
        raise ValueError(
            f"build asked for {what}, which would run apart from the task's one operation: build may only "
            "describe a DataFrame and return it, or write it once"
        )

    def is_query(self, relation: pb.Relation) -> bool:
        """Ask the server whether a statement is a query: what Spark's grammar lets stand in parentheses."""
        plan = pb.Plan()
        plan.root.CopyFrom(relation)
        sql = relation.sql.query.strip().rstrip("; ")
        plan.root.sql.query = f"SELECT * FROM (\n{sql}\n)"
        try:
            self._analyze(method="schema", plan=plan)
        except ParseException as error:
            _log.info("%s is taken for no query: %s", sql, error)
            return False
        except AnalysisException as error:
            # It could be parsed. What is wrong with it, its operation says.
            _log.debug("%s is a query: %s", sql, error)
        return True


class _Session(SparkSession):
    """A session around a `_Client`."""

    def __init__(self, url: str, user_id: str) -> None:
        # Not the parent's: that makes a client of its own, which runs things.
        self._client: _Client = _Client(url, user_id)
        self._session_id = self._client._session_id
        self.release_session_on_close = False

    @property
    def client(self) -> _Client:
        """The client that catches writes."""
        return self._client
