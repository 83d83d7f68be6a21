# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the leading master of a Spark standalone cluster lists on its JSON page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# https://github.com/apache/spark/blob/v4.0.0/core/src/main/scala/org/apache/spark/deploy/master/DriverState.scala
ACTIVE = frozenset({"SUBMITTED", "RUNNING", "RELAUNCHING"})
SUCCEEDED = frozenset({"FINISHED"})
FAILED = frozenset({"FAILED", "KILLED", "ERROR"})
UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver as the master's page lists it.

    Args:
        id: The submission id.
        state: The master's word for its state.
        started: When the master took it, in milliseconds since the epoch by the master's clock; 0 when not
            told.
        main_class: The class that it runs.
        worker: The worker that it was given to, None while it is queued.
    """

    id: str
    state: str
    started: int
    main_class: str
    worker: str | None

    @property
    def is_live(self) -> bool:
        """Whether it may still do work."""
        return self.state not in SUCCEEDED | FAILED


@dataclass(frozen=True, slots=True)
class Listing:
    """What the leading master lists.

    Args:
        page: Base URL of the master's web UI.
        drivers: Every driver that it knows: the active ones, and the last ``spark.deploy.retainedDrivers``
            others.
        workers: Base URL of each worker's web UI, by the worker's id.
    """

    page: str
    drivers: tuple[Driver, ...]
    workers: dict[str, str]

    def driver(self, driver_id: str) -> Driver | None:
        """Return the driver with this id, or None."""
        return next((one for one in self.drivers if one.id == driver_id), None)


def listing_of(base: str, page: dict[str, Any]) -> Listing:
    """Return what a master's JSON page lists.

    Args:
        base: Base URL of the master's web UI.
        page: The page.

    Raises:
        KeyError, TypeError, ValueError: It is no master's page.
    """
    drivers = tuple(
        Driver(
            id=str(one["id"]),
            state=str(one.get("state") or UNKNOWN),
            started=int(one.get("starttime") or 0),
            main_class=str(one.get("mainclass") or ""),
            worker=None if one.get("worker") in (None, "", "None") else str(one["worker"]),
        )
        for one in (*page["activedrivers"], *page["completeddrivers"])
    )
    return Listing(base, drivers, {str(one["id"]): str(one["webuiaddress"]) for one in page["workers"]})
