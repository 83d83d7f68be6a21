# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `build` gives to `spark.sql` of Spark Connect: each statement is in the plan, and run once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_resumable.operators import _connect_plan

INSERT = "INSERT INTO t VALUES (1)"


def plan_of(build: Callable[..., Any], url: str = "sc://127.0.0.1:1") -> Any:
    """Return the plan of a function, made without a server."""
    return _connect_plan.of_build(build, {}, url, "airflow", 10)


def _same_text(spark: Any) -> Any:
    spark.sql(INSERT)
    return spark.sql(INSERT)


def _part_of_another(spark: Any) -> Any:
    spark.sql(INSERT)
    return spark.sql(f"{INSERT}, (2)")


def _named_by_an_alias(spark: Any) -> Any:
    spark.sql(INSERT)
    return spark.range(1).alias(INSERT)


def _before_a_write(spark: Any) -> None:
    spark.sql(INSERT)
    spark.range(1).write.saveAsTable(INSERT)


def _with_a_frame(spark: Any) -> Any:
    spark.sql("INSERT INTO t SELECT * FROM {frame}", frame=spark.range(1))
    return spark.range(2)


@pytest.mark.parametrize(
    "build", [_same_text, _part_of_another, _named_by_an_alias, _before_a_write, _with_a_frame]
)
def test_a_statement_that_is_left_out_is_refused(build: Callable[..., Any]) -> None:
    """Whatever its text is equal to, or a part of."""
    with pytest.raises(ValueError, match=r"'INSERT INTO t .*\(the 1. call\) and does not return what it"):
        plan_of(build)


def test_the_one_that_is_left_out_is_told_apart_by_its_place() -> None:
    """Of two with the same text the first is returned."""

    def build(spark: Any) -> Any:
        first = spark.sql(INSERT)
        spark.sql(INSERT)
        return first

    with pytest.raises(ValueError, match=r"the 2\. call"):
        plan_of(build)


def _twice(spark: Any) -> Any:
    frame = spark.sql(INSERT)
    return frame.union(frame)


def _once_and_more(spark: Any) -> Any:
    return spark.sql(INSERT).limit(1)


def _beside_a_frame(spark: Any) -> Any:
    return spark.range(1).crossJoin(spark.sql(f"/* why */ {INSERT}"))


def _written(spark: Any) -> None:
    spark.sql(INSERT).write.saveAsTable("u")


def _in_a_query(spark: Any) -> Any:
    return spark.sql("SELECT * FROM {frame} AS a, {frame} AS b", frame=spark.sql(INSERT))


def _in_a_subquery(spark: Any) -> Any:
    return spark.range(1).select(spark.sql(INSERT).exists())


@pytest.mark.parametrize(
    "build", [_twice, _once_and_more, _beside_a_frame, _written, _in_a_query, _in_a_subquery]
)
def test_one_that_does_something_may_only_be_returned_as_it_is(build: Callable[..., Any]) -> None:
    """Spark would do it twice, or do it and fail; the error says what to return."""
    with pytest.raises(ValueError, match=r"INSERT INTO t VALUES .*return what spark.sql gives as it is"):
        plan_of(build)


@pytest.mark.parametrize("sql", [INSERT, "CREATE TABLE u AS SELECT 1", "SELECT 1", "SHOW TABLES"])
def test_any_statement_may_be_all_that_is_built(sql: str) -> None:
    """It is run once, as one that is given by `sql`."""
    assert plan_of(lambda spark: spark.sql(sql)).root.limit.input.sql.query == sql


def test_one_that_does_something_may_name_a_frame() -> None:
    """pyspark puts the frame around the statement, which is all of the plan still."""
    plan = plan_of(lambda spark: spark.sql("INSERT INTO t SELECT * FROM {f}", f=spark.sql("SELECT 1")))
    assert plan.root.limit.input.with_relations.root.sql.query.startswith("INSERT INTO t SELECT")


@pytest.mark.parametrize(
    "sql", ["SELECT 1", " -- why\n/* and */ values (1)", "(SELECT 1)", "TABLE t", "SHOW TABLES", "DESC t"]
)
def test_one_that_reads_may_be_used_as_often_as_wanted(sql: str) -> None:
    """No server is asked about it."""

    def build(spark: Any) -> Any:
        frame = spark.sql(sql)
        return frame.union(frame).limit(1)

    assert plan_of(build).root.limit.input.HasField("limit")
