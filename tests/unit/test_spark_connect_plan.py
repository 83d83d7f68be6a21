# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What an operation of Spark Connect runs: one plan, made without running anything."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from airflow_resumable.operators import _connect_plan
from airflow_resumable.operators._connect_client import _unlike
from airflow_resumable.operators._connect_rows import pa, rows_of

NOWHERE = "sc://127.0.0.1:1"
"""No server: whatever a plan needs none for is made all the same."""


def plan_of(build: Callable[..., Any], **arguments: Any) -> Any:
    """Return the plan of a function."""
    return _connect_plan.of_build(build, arguments, NOWHERE, "airflow", 10)


def frame(spark: Any, size: int = 3) -> Any:
    """Build a DataFrame."""
    from pyspark.sql import functions

    return spark.range(size).withColumn("k", functions.col("id") % 2).groupBy("k").count()


def test_a_statement_is_one_relation_with_one_row_more_than_wanted() -> None:
    """So that it can be said whether there was more."""
    plan = _connect_plan.of_sql("SELECT 1", 10)
    assert plan.root.limit.limit == 11
    assert plan.root.limit.input.sql.query == "SELECT 1"


def test_a_dataframe_is_one_relation() -> None:
    """As a statement is."""
    plan = plan_of(frame)
    assert plan.root.limit.limit == 11
    assert plan.root.limit.input.HasField("aggregate")


def test_a_write_is_the_command() -> None:
    """Whatever the writer: nothing is sent, and the command is the plan."""
    first = plan_of(lambda spark: frame(spark).write.mode("append").saveAsTable("t"))
    assert first.command.write_operation.table.table_name == "t"
    second = plan_of(lambda spark: frame(spark).writeTo("t").append())
    assert second.command.write_operation_v2.table_name == "t"


def test_a_statement_in_a_function_is_not_run() -> None:
    """`spark.sql` gives a DataFrame of it, to be returned or to be built upon, with its arguments."""
    plan = plan_of(lambda spark: spark.sql("SELECT :x AS x", args={"x": 1}).limit(2))
    assert plan.root.limit.input.limit.input.sql.query == "SELECT :x AS x"
    assert set(plan.root.limit.input.limit.input.sql.named_arguments) == {"x"}


def _collects(spark: Any) -> Any:
    return frame(spark).collect()


def _counts(spark: Any) -> Any:
    return frame(spark).count()


def _writes_twice(spark: Any) -> None:
    frame(spark).write.saveAsTable("a")
    frame(spark).write.saveAsTable("b")


def _writes_and_returns(spark: Any) -> Any:
    frame(spark).write.saveAsTable("a")
    return frame(spark)


def _drops_a_statement(spark: Any) -> Any:
    spark.sql("DROP TABLE t")
    return frame(spark)


def _makes_a_view(spark: Any) -> Any:
    frame(spark).createOrReplaceTempView("v")
    return spark.table("v")


def _uploads(spark: Any) -> None:
    spark.addArtifacts("/dev/null", file=True)


def _returns_nothing(spark: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (_collects, "an action"),
        (_counts, "an action"),
        (_writes_twice, "made 2 writes"),
        (_writes_and_returns, "wrote a DataFrame and returned another value"),
        (_drops_a_statement, "'DROP TABLE t' .* and does not return"),
        (_makes_a_view, "create_dataframe_view"),
        (_uploads, "an upload"),
        (_returns_nothing, "build returned None"),
    ],
)
def test_what_would_run_apart_from_the_operation_is_refused(build: Callable[..., Any], said: str) -> None:
    """Nothing is sent, and the error says what to do."""
    with pytest.raises((ValueError, TypeError), match=said):
        plan_of(build)


def test_the_hash_is_of_what_is_run() -> None:
    """pyspark numbers plans on and on; the same function gives the same hash, another size another one."""
    first, again = plan_of(frame), plan_of(frame)
    assert first != again
    assert _connect_plan.digest(first) == _connect_plan.digest(again)
    assert _connect_plan.digest(first) != _connect_plan.digest(plan_of(frame, size=4))


@pytest.mark.parametrize("build", [frame, lambda spark: frame(spark).write.saveAsTable("t")])
def test_no_two_requests_have_an_equal_plan(build: Callable[..., Any]) -> None:
    """A server attaches a request with an equal plan to the operation of the first, and may end it."""
    plan = plan_of(build)
    before = plan.SerializeToString(deterministic=True)
    one, other = _unlike(plan), _unlike(plan)
    assert one != other
    assert plan.SerializeToString(deterministic=True) == before


def test_values_are_what_json_can_hold() -> None:
    """Without the loss of a digit; each kind of value that a table may have."""
    moment = datetime(2026, 11, 29, 12, tzinfo=UTC)
    columns = {
        "decimal": decimal.Decimal("1.10"),
        "day": date(2026, 11, 29),
        "moment": moment,
        "interval": timedelta(seconds=1.5),
        "binary": b"\x00\xff",
        "struct": {"a": [1, None]},
        "infinite": float("inf"),
        "none": None,
    }
    table = pa.table({name: [value] for name, value in columns.items()})
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    assert rows_of([_stream(table)]) == [
        {
            "decimal": "1.10",
            "day": "2026-11-29",
            "moment": "2026-11-29T12:00:00+00:00",
            "interval": 1.5,
            "binary": "AP8=",
            "struct": {"a": [1, None]},
            "infinite": "inf",
            "none": None,
        }
    ]
    assert rows_of([_stream(twice), _stream(twice)]) == [{"id": 1, "id_2": 2}] * 2


def _stream(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
