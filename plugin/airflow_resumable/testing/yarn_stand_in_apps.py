# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The applications of the ResourceManager stand-in: how they come along, and what outlives a restart.

Nothing runs here. An application's state follows from a *plan*, the clock and a gate file, whenever somebody
looks. States and final statuses are those of the ResourceManager's REST API:
https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/ResourceManagerRest.html
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

STATES = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING", "FINISHED", "FAILED", "KILLED")
ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
MAX_TAGS = 10
MAX_TAG_LENGTH = 100


class BadRequest(Exception):
    """What the ResourceManager answers with 400."""


@dataclass
class App:
    """One application.

    Attributes:
        started, finished: Milliseconds since the epoch, 0 for not yet.
        plan: ``queued`` and ``seconds`` (how long it is ACCEPTED and RUNNING), ``gate`` (a file that has to
            be there before it ends), ``state`` and ``final`` (how it ends).
        kill_at: When a kill takes effect, in milliseconds since the epoch; 0 without one.
        shown: A state that is shown in place of the real one, for states nobody has heard of.
    """

    id: str
    name: str
    user: str
    queue: str
    tags: list[str]
    started: int
    plan: dict[str, Any] = field(default_factory=dict)
    state: str = "ACCEPTED"
    final: str = "UNDEFINED"
    finished: int = 0
    diagnostics: str = ""
    kill_at: int = 0
    shown: str = ""

    def advance(self, now: int) -> bool:
        """Bring the application to where it is at `now`; say whether that changed it."""
        before = self.state
        if self.state in ENDED:
            return False
        queued = int(1000 * self.plan.get("queued", 0))
        if self.kill_at and now >= self.kill_at:
            self._end("KILLED", "KILLED", now, "Application killed by a client of the stand-in.")
        elif now < self.started + queued:
            self.state = "ACCEPTED"
        elif self._may_end(now, queued):
            final = self.plan.get("final", "SUCCEEDED")
            why = "" if final == "SUCCEEDED" else f"the stand-in was told to end it as {final}"
            self._end(self.plan.get("state", "FINISHED"), final, now, why)
        else:
            self.state = "RUNNING"
        return self.state != before

    def _may_end(self, now: int, queued: int) -> bool:
        gate = self.plan.get("gate")
        if gate and not os.path.exists(gate):
            return False
        return now >= self.started + queued + int(1000 * self.plan.get("seconds", 0))

    def _end(self, state: str, final: str, now: int, diagnostics: str) -> None:
        self.state, self.final, self.finished, self.diagnostics = state, final, now, diagnostics
        self.shown = ""

    def public(self, url: str) -> dict[str, Any]:
        """Return what the REST API tells of it; `url` is the ResourceManager's."""
        tracking = "UNASSIGNED" if self.state not in ENDED | {"RUNNING"} else "ApplicationMaster"
        return {
            "id": self.id,
            "user": self.user,
            "name": self.name,
            "queue": self.queue,
            "state": self.shown or self.state,
            "finalStatus": self.final,
            "progress": 100.0 if self.state in ENDED else 10.0,
            "trackingUI": tracking,
            "trackingUrl": f"{url}/proxy/{self.id}/",
            "diagnostics": self.diagnostics,
            "clusterId": int(self.id.split("_")[1]),
            "applicationType": "SPARK",
            "applicationTags": ",".join(self.tags),
            "startedTime": self.started,
            "finishedTime": self.finished,
            "elapsedTime": (self.finished or now_ms()) - self.started,
        }


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return int(time.time() * 1000)


class Applications:
    """What one ResourceManager knows, backed by a journal that the next one reads.

    Args:
        journal: The file; it stands for the ResourceManager's state store.
        max_completed: How many ended applications are remembered, as
            ``yarn.resourcemanager.max-completed-applications``.
    """

    def __init__(self, journal: Path, *, max_completed: int = 1000) -> None:
        self._journal = journal
        self._max_completed = max_completed
        # Part of every id, as the start of a real ResourceManager is.
        self.cluster_timestamp = now_ms()
        self._last_number = 0
        self._apps: dict[str, App] = {}
        self._live: set[str] = set()
        self._ended: list[str] = []

    def load(self) -> None:
        """Read the journal anew: this ResourceManager has just become the active one."""
        rows: dict[str, dict[str, Any]] = {}
        if self._journal.exists():
            for line in self._journal.read_text().splitlines():
                row = json.loads(line)
                rows.pop(row["id"], None)
                if "gone" not in row:
                    rows[row["id"]] = row
        self._apps = {key: App(**row) for key, row in rows.items()}
        self._live = {key for key, app in self._apps.items() if app.state not in ENDED}
        ended = [app for app in self._apps.values() if app.state in ENDED]
        self._ended = [app.id for app in sorted(ended, key=lambda app: app.finished)]

    def new_id(self) -> str:
        """Return an id for an application to come."""
        self._last_number += 1
        return f"application_{self.cluster_timestamp}_{self._last_number:04d}"

    def submit(self, app: App) -> bool:
        """Take an application; False when its id is one that was taken before.

        Raises:
            BadRequest: Its tags are refused: more than 10, longer than 100, or not printable ASCII.
        """
        if app.id in self._apps:
            return False
        if len(app.tags) > MAX_TAGS:
            raise BadRequest(f"Too many applicationTags, a maximum of only {MAX_TAGS} are allowed!")
        for tag in app.tags:
            if len(tag) > MAX_TAG_LENGTH or not (tag.isascii() and tag.isprintable()):
                raise BadRequest(f"Tag {tag} is too long or not ASCII")
        app.tags = sorted({tag.lower() for tag in app.tags})
        self._apps[app.id] = app
        self._live.add(app.id)
        self._write([app])
        return True

    def settle(self) -> None:
        """Bring every application to where it is now, and forget what is one too many."""
        now = now_ms()
        changed = [app for key in sorted(self._live) if (app := self._apps[key]).advance(now)]
        self._write(changed)
        for app in changed:
            if app.state in ENDED:
                self._live.discard(app.id)
                self._ended.append(app.id)
        while len(self._ended) > self._max_completed:
            self.forget(self._ended[0])

    def get(self, app_id: str) -> App | None:
        """Return an application, or None."""
        return self._apps.get(app_id)

    def select(self, query: Mapping[str, str]) -> list[App]:
        """Return the applications that a query of ``/ws/v1/cluster/apps`` asks for.

        Raises:
            BadRequest: A value that the ResourceManager refuses.
        """
        states = {one.upper() for one in _listed(query, "states")}
        if states - set(STATES):
            raise BadRequest(f"Invalid application-state {', '.join(sorted(states - set(STATES)))}")
        tags = {one.lower() for one in _listed(query, "applicationTags")}
        try:
            since, limit = int(query.get("startedTimeBegin", 0)), int(query.get("limit", len(self._apps)))
        except ValueError as error:
            raise BadRequest(str(error)) from error
        found = [
            app
            for app in self._apps.values()
            if (not states or app.state in states)
            and (not tags or tags & set(app.tags))
            and ("user" not in query or app.user == query["user"])
            and app.started >= since
        ]
        return found[:limit]

    def kill(self, app_id: str, *, after: float = 0.0) -> App:
        """Kill an application; one that has ended stays as it is.

        Args:
            app_id: Its id.
            after: Seconds until it is dead.
        """
        app = self._apps[app_id]
        if app.state not in ENDED:
            app.kill_at = now_ms() + int(1000 * after)
            self._write([app])
            self.settle()
        return app

    def show(self, app_id: str, state: str) -> None:
        """Show a state in place of the real one; an empty one ends that."""
        self._apps[app_id].shown = state
        self._write([self._apps[app_id]])

    def forget(self, app_id: str) -> None:
        """Know nothing of an application any more."""
        self._apps.pop(app_id, None)
        self._live.discard(app_id)
        if app_id in self._ended:
            self._ended.remove(app_id)
        self._append([{"id": app_id, "gone": True}])

    def _write(self, apps: Iterable[App]) -> None:
        self._append([asdict(app) for app in apps])

    def _append(self, rows: list[dict[str, Any]]) -> None:
        if rows:
            with self._journal.open("a") as journal:
                journal.writelines(json.dumps(row) + "\n" for row in rows)


def _listed(query: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in query.get(name, "").split(",") if part.strip()]
