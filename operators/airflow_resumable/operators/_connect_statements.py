# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The statements that a function gives to `spark.sql`, each to be found in the plan, and run once.

A statement becomes a relation of the plan. A server (seen with 4.2.0) runs one that does something, such as
an INSERT, as often as it stands there: twice in ``frame.union(frame)``. Below a write it runs it once and
fails the operation thereafter, so that the next try would run it again. So one that does something is the
whole plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyspark.sql.connect.proto as pb

_SHOWN = 80
"""Characters of a statement in an error."""

_FIRST = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*([a-z]+\b|\()", re.IGNORECASE | re.DOTALL)
"""The first word, behind comments."""
_READS = frozenset(["(", "SELECT", "VALUES", "TABLE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN"])
_MAY_READ = frozenset(("WITH", "FROM", "MAP", "REDUCE"))
# Others that do something may tell how many rows they changed (MERGE of some sources).
_GIVES_NONE = frozenset(("INSERT", "CREATE", "REPLACE", "DROP", "ALTER", "TRUNCATE"))


def _first_word(sql: str) -> str:
    found = _FIRST.match(sql)
    return found[1].upper() if found else ""


def gives_no_rows(sql: str) -> bool:
    """Say whether it is told by its first word that a statement gives no rows."""
    return _first_word(sql) in _GIVES_NONE


class Statements:
    """What `spark.sql` was given, in its order.

    Told apart by the number that pyspark gives each relation, as two may have the same text.
    """

    def __init__(self) -> None:
        self._made: list[pb.Relation] = []

    def add(self, relation: pb.Relation) -> None:
        """Take note of what a statement became."""
        self._made.append(_sql_of(relation))

    def check(self, plan: pb.Plan, is_query: Callable[[pb.Relation], bool]) -> None:
        """Make sure that nothing is left out of a plan, and that what does something is all of it.

        Args:
            plan: With the relations that were made, or without.
            is_query: Asks the server about a statement that may be either.

        Raises:
            ValueError: Names the statement and says what to do.
        """
        found: set[int] = set()
        _count(plan, found)
        whole = _sql_of(plan.root.limit.input).common.plan_id
        for number, relation in enumerate(self._made, 1):
            sql = f"{relation.sql.query[:_SHOWN]!r} (the {number}. call)"
            if relation.common.plan_id not in found:
                raise ValueError(
                    f"build called spark.sql with {sql} and does not return what it gives, so it would "
                    "never run: return it, or make a task of it"
                )
            if relation.common.plan_id != whole and not self._reads(relation, is_query):
                raise ValueError(
                    f"build called spark.sql with {sql} and made more of what it gives. The statement does "
                    "something, which Spark would do as often as it stands in the plan, or do and then fail: "
                    "return what spark.sql gives as it is, or make a task of the statement"
                )

    @staticmethod
    def _reads(relation: pb.Relation, is_query: Callable[[pb.Relation], bool]) -> bool:
        word = _first_word(relation.sql.query)
        return word in _READS or (word in _MAY_READ | {""} and is_query(relation))


def _sql_of(relation: pb.Relation) -> pb.Relation:
    # What a statement names in braces, `FROM {frame}`, is put around it.
    return relation.with_relations.root if relation.HasField("with_relations") else relation


def _count(message: Any, found: set[int]) -> None:
    for field, value in message.ListFields():
        if field.name == "sql" and field.containing_type.name == "Relation":
            found.add(message.common.plan_id)
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is None:
                continue
            value = value.values()
        elif hasattr(value, "ListFields"):
            value = (value,)
        for one in value:
            _count(one, found)
