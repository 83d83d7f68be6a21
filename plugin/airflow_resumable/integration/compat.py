# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Which Airflow this is. No other module of this package asks."""

from __future__ import annotations

from typing import Any

AIRFLOW_VERSION: tuple[int, int]
"""Major and minor version of the Airflow in this process, ``(3, 3)`` for 3.3.2 and for 3.3.0b1."""


def __getattr__(name: str) -> tuple[int, int]:
    if name != "AIRFLOW_VERSION":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import airflow

    major, minor = airflow.__version__.split(".")[:2]
    version = globals()[name] = (int(major), int(minor))
    return version


def count(metric: str, tags: dict[str, str]) -> None:
    """Increase a counter of Airflow's own metrics by one."""
    try:
        from airflow.sdk.observability.stats import incr
    except ImportError:  # before 3.3
        from airflow.stats import Stats

        incr = Stats.incr
    incr(metric, tags=tags)


def serialized(value: Any) -> Any:
    """Return a value as Airflow stores the arguments of a deferral.

    Raises:
        TypeError, AttributeError: Airflow can't store it.
    """
    import importlib

    try:
        serde = importlib.import_module("airflow.sdk.serde")
    except ImportError:  # before 3.2
        serde = importlib.import_module("airflow.serialization.serde")
    return serde.serialize(value)
