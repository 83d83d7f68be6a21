# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Which of the drivers that a master lists is ours: told by the command that its worker launched."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow_resumable.jobs.errors import JobNotSettled
from airflow_resumable.jobs.transient import patiently
from airflow_resumable.operators._spark_listing import FAILED, Driver, Listing
from airflow_resumable.operators._spark_master import MasterRefused, Masters, MastersUnreachable

if TYPE_CHECKING:
    from pydantic import JsonValue

_log = logging.getLogger(__name__)

MARK = "spark.airflow.resumable.mark"
"""The Spark property that carries our token.

Not called token: Spark blanks out, in pages and logs, the values of properties whose names match
``spark.redaction.regex``, by default ``(?i)secret|password|token|access[.]?key``.
"""

_LOOK_EVERY = 1.0
_KEPT_BEFORE = 500
_LOG_BYTES = 262_144
_LAUNCHED = re.compile(r"\A==== Bytes .*\n(Launch Command: .*)\n")
_MARK_IN_COMMAND = re.compile(rf"-D{re.escape(MARK)}=([^\s\"]*)")
_REDACTED = "redacted"


@dataclass(frozen=True, slots=True)
class Before:
    """What the master listed before a submit: a driver that is not on it may be the submitted one.

    Args:
        drivers: The ids.
        main_class: The class that was going to be submitted; None when the jar's manifest names it.
        oldest: Where the list was cut short: when its oldest driver was started, by the master's clock.
    """

    drivers: frozenset[str]
    main_class: str | None = None
    oldest: int = 0

    @classmethod
    def of(cls, listing: Listing, main_class: str | None) -> Before:
        """Take the newest drivers of a listing."""
        newest = sorted(listing.drivers, key=lambda one: one.started, reverse=True)
        kept = newest[:_KEPT_BEFORE]
        oldest = kept[-1].started if len(newest) > len(kept) else 0
        return cls(frozenset(one.id for one in kept), main_class, oldest)

    def dump(self) -> dict[str, Any]:
        """Return the JSON value that goes into the intent."""
        return {"drivers": sorted(self.drivers), "main_class": self.main_class, "oldest": self.oldest}

    @classmethod
    def load(cls, value: JsonValue) -> Before | None:
        """Return what `dump` made, or None for anything else."""
        if not isinstance(value, dict) or not isinstance(value.get("drivers"), list):
            return None
        drivers, main_class, oldest = value["drivers"], value.get("main_class"), value.get("oldest")
        return cls(
            frozenset(map(str, drivers)) if isinstance(drivers, list) else frozenset(),
            main_class if isinstance(main_class, str) else None,
            oldest if isinstance(oldest, int) else 0,
        )

    def lists(self, driver: Driver) -> bool:
        """Say whether a driver was there before the submit, or can't be what was submitted."""
        if driver.id in self.drivers or driver.started < self.oldest:
            return True
        return bool(self.main_class and driver.main_class and driver.main_class != self.main_class)


def snapshot(masters: Masters, main_class: str | None, patience: float) -> JsonValue:
    """Return what goes into the intent before a submit: the listed drivers, or None where they can't be.

    Args:
        masters: The cluster.
        main_class: The class that is going to be submitted, when it is known.
        patience: Seconds to wait for masters of which none answers.

    Raises:
        MastersUnreachable: Neither the list nor a state can be had: a driver could not be watched.
    """
    try:
        return Before.of(masters.listing(), main_class).dump()
    except (MasterRefused, MastersUnreachable) as error:
        patiently(f"asking {masters.url}", masters.check_answering, budget=patience)
        _log.warning(
            "the drivers of %s can't be listed: %s. If this worker dies between the submit and the record of "
            "the driver's id, the next try can't look for that driver and starts a second one. Set "
            "webui-port in the extra of connection %r",
            masters.url,
            error,
            masters.connection,
        )
        return None


class _CannotTell(Exception):
    """Whether a driver is ours can't be told, for the reason given."""


class DriverSearch:
    """Finds the drivers that carry one token.

    Args:
        masters: The cluster.
        token: What the driver was submitted with.
        before: The listing before the submit, None when there is none.
        since: Without `before`: drivers that the master took earlier are not looked at.
        ended_matter: Whether a driver that has finished can be the answer; False when only live ones are
            sought.
    """

    def __init__(
        self,
        masters: Masters,
        token: str,
        *,
        before: Before | None,
        since: datetime,
        ended_matter: bool = True,
    ) -> None:
        self._masters = masters
        self._token = token
        self._before = before
        self._since = since.timestamp() * 1000
        self._ended_matter = ended_matter
        self._told: dict[str, bool] = {}
        self.ours: list[Driver] = []
        """The drivers that were seen to carry the token, as of the last look."""
        self.unsure: dict[str, str] = {}
        """Drivers of which it can't be told (yet), with the reason, as of the last look."""

    def look(self) -> None:
        """Read the master's list and the launch commands of those drivers that may be ours.

        Raises:
            MastersUnreachable, MasterRefused: The list could not be read.
        """
        listing = self._masters.listing()
        self.ours, self.unsure = [], {}
        silent: dict[str, str] = {}
        for driver in listing.drivers:
            if not self._may_be_ours(driver):
                continue
            if driver.id not in self._told:
                try:
                    self._told[driver.id] = self._is_ours(driver, listing, silent)
                except _CannotTell as error:
                    # Ours or not: a driver that failed, or never ran, is no reason not to submit.
                    if driver.is_live or (self._ended_matter and driver.state not in FAILED):
                        self.unsure[driver.id] = f"{driver.state}, {error}"
                    continue
            if self._told[driver.id]:
                self.ours.append(driver)

    def settle(self, patience: float) -> list[Driver]:
        """Look until every driver that may be ours is told, or a live one of ours is found.

        Args:
            patience: Seconds to wait for drivers that can't be told yet: queued, or not launched yet.

        Raises:
            JobNotSettled: Some can't be told within that time, and none is ours; names them and says what
                to do.
            MastersUnreachable, MasterRefused: The list can't be read, though it could before the submit.
        """
        if self._before is None and not self._can_list(patience):
            return []
        deadline = time.monotonic() + patience
        said: dict[str, str] = {}
        while True:
            self.look()
            if not self.unsure or any(one.is_live for one in self.ours):
                return self.ours
            if time.monotonic() >= deadline:
                break
            if said.keys() != self.unsure.keys():
                said = self.unsure
                _log.warning(
                    "can't tell yet whether %s is this task's (token %s); looking again for up to %.0f s",
                    _listed(said),
                    self._token,
                    patience,
                )
            time.sleep(_LOOK_EVERY)
        if self.ours:
            _log.warning("still not told after %.0f s and left aside: %s", patience, _listed(self.unsure))
            return self.ours
        raise JobNotSettled(
            f"this task may have started one of these drivers, and that could not be told within "
            f"{patience:.0f} s: {_listed(self.unsure)}. Nothing was submitted and none was touched. The "
            f"driver that this task started has -D{MARK}={self._token} in the launch command at the top of "
            "its stderr log. The next try looks again; kill a driver that is this task's or that nobody "
            "needs, or raise adoption_patience where drivers are queued for long",
            external_id=next(iter(self.unsure)),
        )

    def _can_list(self, patience: float) -> bool:
        # A wrong webui-port must not stop the task for good: that its window is open was said before
        # the submit, and is said again.
        try:
            patiently("listing the drivers", self._masters.listing, budget=patience)
        except (MasterRefused, MastersUnreachable) as error:
            _log.error(
                "the drivers of %s could be listed neither before the submit nor now (%s): if the last try's "
                "driver was started, the next one is its double. Set webui-port in the extra of "
                "connection %r",
                self._masters.url,
                error,
                self._masters.connection,
            )
            return False
        return True

    def _may_be_ours(self, driver: Driver) -> bool:
        if self._before is not None:
            return not self._before.lists(driver)
        return not driver.started or driver.started >= self._since

    def _is_ours(self, driver: Driver, listing: Listing, silent: dict[str, str]) -> bool:
        if driver.worker is None:
            raise _CannotTell("no worker has it yet" if driver.is_live else "no worker had it")
        if driver.worker in silent:
            raise _CannotTell(silent[driver.worker])
        command = self._launch_command(driver, driver.worker, listing, silent)
        found = _MARK_IN_COMMAND.search(command)
        if found and _REDACTED in found[1]:
            raise _CannotTell(
                f"its worker blanks out {MARK}: let spark.redaction.regex there spare that name"
            )
        return found is not None and found[1] == self._token

    def _launch_command(self, driver: Driver, worker: str, listing: Listing, silent: dict[str, str]) -> str:
        query = urlencode({"driverId": driver.id, "logType": "stderr", "offset": 0, "byteLength": _LOG_BYTES})
        # The second is where spark.ui.reverseProxy puts a worker's pages.
        bases = [listing.workers[worker]] if worker in listing.workers else []
        bases.append(f"{listing.page}/proxy/{worker}")
        troubles = []
        for base in bases:
            try:
                text = self._masters.text(f"{base}/log/?{query}")
            except MastersUnreachable as error:
                troubles.append(str(error))
                continue
            if launched := _LAUNCHED.match(text):
                return launched[1]
            if text.startswith("==== Bytes"):
                raise _CannotTell(f"{base} shows no launch command in its stderr log (yet)")
            troubles.append(f"{base}/log/ is not a worker's log page")
        silent[worker] = f"the log of its worker can't be read: {'; '.join(troubles)}"
        raise _CannotTell(silent[worker])


def _listed(drivers: dict[str, str]) -> str:
    return "; ".join(f"{driver} ({why})" for driver, why in drivers.items())
