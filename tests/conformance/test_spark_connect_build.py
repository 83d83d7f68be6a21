# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a function builds, on a real Spark Connect server: run as one operation, and once."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from airflow_resumable.operators.spark_connect import ResumableSparkConnectOperator
from airflow_resumable.testing.task_tries import TaskTries
from tests.connect_attempts import operator
from tests.connect_service import ConnectService

# What pyspark says of each pandas that is newer than itself, where a function or data of the user's own makes
# it load pandas.
_PANDAS = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


def test_a_written_dataframe_is_written_once(connect: ConnectService) -> None:
    """`build` may save; the save is the task's operation, with its id."""
    table = f"t{uuid.uuid4().hex}"

    def build(spark: Any, rows: int) -> None:
        spark.range(0, rows, 1, 1).write.saveAsTable(table)

    tries = TaskTries()
    subject = operator("", build=build, op_kwargs={"rows": 5})
    assert tries.run(subject) == []
    assert {job.external_id for job in connect.jobs()} == {tries.record(subject)["external_id"]}
    assert TaskTries().run(operator(f"SELECT count(*) AS n FROM {table}")) == [{"n": 5}]


def test_a_built_dataframe_is_what_a_later_try_finds(connect: ConnectService, tries: TaskTries) -> None:
    """The plan is built anew in each try, and is the same job."""

    def build(spark: Any) -> Any:
        from pyspark.sql import functions

        frame = spark.range(0, 9, 1, 1).withColumn("k", functions.col("id") % 2)
        return frame.groupBy("k").count().orderBy("k")

    def make() -> ResumableSparkConnectOperator:
        return operator("", build=build)

    assert tries.crash(make, "after_id")
    spec = tries.record(make())["spec"]
    assert tries.run(make()) == [{"k": 0, "count": 5}, {"k": 1, "count": 4}]
    assert tries.record(make())["spec"] == spec
    assert len({job.external_id for job in connect.jobs()}) == 1


@_PANDAS
def test_functions_of_ones_own_are_part_of_the_plan(connect: ConnectService, tries: TaskTries) -> None:
    """A Python function is sent with the plan and runs where Spark runs."""

    def build(spark: Any) -> Any:
        from pyspark.sql import functions

        twice = functions.udf(lambda number: 2 * number, "long")
        return spark.createDataFrame([(1, "a"), (2, "b")], ["n", "s"]).select(twice("n").alias("m"), "s")

    assert tries.run(operator("", build=build)) == [{"m": 2, "s": "a"}, {"m": 4, "s": "b"}]


@_PANDAS
def test_more_local_data_than_a_plan_holds_is_refused(connect: ConnectService, tries: TaskTries) -> None:
    """It would be uploaded into a session that is not the operation's."""

    def build(spark: Any) -> Any:
        return spark.createDataFrame([(number, "x" * 100) for number in range(20_000)], ["n", "s"])

    with pytest.raises(ValueError, match="so much local data"):
        tries.run(operator("", build=build))
    assert connect.jobs() == []


@pytest.fixture
def table(connect: ConnectService) -> str:
    """An empty table of one number."""
    name = f"t{uuid.uuid4().hex}"
    TaskTries().run(operator(f"CREATE TABLE {name} (id BIGINT) USING parquet"))
    return name


def test_a_statement_that_is_built_is_run_once(connect: ConnectService, tries: TaskTries, table: str) -> None:
    """It names a frame, is one operation with the token's id, and gives no rows."""

    def build(spark: Any) -> Any:
        odd = spark.sql("WITH n AS (SELECT * FROM range(9)) SELECT * FROM n").where("id % 2 = 1")
        return spark.sql(f"WITH o AS (SELECT * FROM {{odd}}) INSERT INTO {table} SELECT id FROM o", odd=odd)

    before = connect.operations
    subject = operator("", build=build)
    assert tries.run(subject) == []
    assert connect.operations[len(before) :] == [tries.record(subject)["external_id"]]
    assert TaskTries().run(operator(f"SELECT count(*) AS n FROM {table}")) == [{"n": 4}]


@pytest.mark.parametrize(
    "statement", ["INSERT INTO {0} VALUES (1)", "FROM range(3) INSERT INTO {0} SELECT id"]
)
def test_a_statement_that_would_be_run_twice_is_refused(
    connect: ConnectService, tries: TaskTries, table: str, statement: str
) -> None:
    """Before anything is started: Spark would insert as often as the statement stands in the plan."""

    def build(spark: Any) -> Any:
        inserted = spark.sql(statement.format(table))
        return inserted.union(inserted)

    before = connect.operations
    with pytest.raises(ValueError, match=r"return what spark.sql gives as it is"):
        tries.run(operator("", build=build))
    assert connect.operations == before
    assert TaskTries().run(operator(f"SELECT count(*) AS n FROM {table}")) == [{"n": 0}]


@pytest.mark.parametrize(
    "sql",
    [
        "WITH n AS (SELECT * FROM range(3)) SELECT * FROM n;",
        "FROM range(3) SELECT id",
        "FROM range(3) |> WHERE id >= 0 -- of all",
    ],
)
def test_a_query_may_be_used_twice(connect: ConnectService, tries: TaskTries, sql: str) -> None:
    """Whether a statement is one that begins like some INSERTs do, the server says."""

    def build(spark: Any) -> Any:
        frame = spark.sql(sql)
        return frame.union(frame).groupBy("id").count().orderBy("id")

    assert tries.run(operator("", build=build)) == [{"id": number, "count": 2} for number in range(3)]
