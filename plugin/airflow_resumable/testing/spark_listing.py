# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a Spark standalone master lists on its JSON page: drivers and applications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Driver:
    """A driver as the master lists it.

    Attributes:
        id: The submission id.
        state: SUBMITTED, RUNNING, RELAUNCHING, FINISHED, FAILED, KILLED, ERROR, UNKNOWN.
        main_class: What it runs.
        active: Whether the master counts it among the active ones.
    """

    id: str
    state: str
    main_class: str
    active: bool


@dataclass(frozen=True)
class App:
    """An application as the master lists it, once its driver has a Spark context.

    Attributes:
        id: The application id.
        name: ``spark.app.name``.
        state: WAITING, RUNNING, FINISHED, FAILED, KILLED, UNKNOWN.
        active: Whether the master counts it among the active ones.
    """

    id: str
    name: str
    state: str
    active: bool


def drivers_of(page: Mapping[str, Any]) -> list[Driver]:
    """Return the drivers of a master's page, active ones first."""
    return [
        Driver(one["id"], one["state"], one["mainclass"], key == "activedrivers")
        for key in ("activedrivers", "completeddrivers")
        for one in page[key]
    ]


def apps_of(page: Mapping[str, Any]) -> list[App]:
    """Return the applications of a master's page, active ones first."""
    return [
        App(one["id"], one["name"], one["state"], key == "activeapps")
        for key in ("activeapps", "completedapps")
        for one in page[key]
    ]
