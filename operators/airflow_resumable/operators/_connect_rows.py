# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""From Spark's Arrow batches to rows that JSON can hold."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any

pa: Any = import_module("pyarrow")


def rows_of(batches: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the rows of Arrow streams, each as a dict by column.

    Decimals become text, so that no digit is lost, and so do dates, times and what is not a number;
    binary becomes base64, a map a list of pairs, an interval seconds. Of columns with the same name the
    later ones get a number: ``id``, ``id_2``.
    """
    rows: list[dict[str, Any]] = []
    for batch in batches:
        with pa.ipc.open_stream(batch) as reader:
            table = reader.read_all()
        names = _distinct(table.column_names)
        columns = [column.to_pylist() for column in table.columns]
        rows += [
            {name: _plain(value) for name, value in zip(names, values, strict=True)}
            for values in zip(*columns, strict=True)
        ]
    return rows


def _distinct(names: Iterable[str]) -> list[str]:
    taken: list[str] = []
    for name in names:
        number, chosen = 1, name
        while chosen in taken:
            number += 1
            chosen = f"{name}_{number}"
        taken.append(chosen)
    return taken


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
    return str(value)
