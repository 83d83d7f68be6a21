# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""As much of Airflow as a task instance meets: its server, its store, its tries and its clears."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.model.attempts import Attempt
    from tests.model.world import World


class Refused(Exception):
    """The server's answer to a store call, with its HTTP status where the supervisor puts it."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.error = type("ErrorResponse", (), {"detail": {"status_code": status}})()


class CommsDecoder:
    """The channel to the supervisor: one call at a time; its name is what a stop looks for on the stack."""

    def __init__(self) -> None:
        self._busy = False

    def send(self, call: Any) -> Any:
        """Make a call."""
        if self._busy:
            raise AssertionError("a call to the supervisor inside another one: that deadlocks")
        self._busy = True
        try:
            return call()
        finally:
            self._busy = False


class Store:
    """The task state store as one attempt sees it: a replaced one reads nothing and may not write."""

    def __init__(self, server: Server, attempt: Attempt) -> None:
        self._server = server
        self._attempt = attempt

    def get(self, key: str, default: Any = None) -> Any:
        """Read."""

        def read() -> Any:
            self._server.world.laws.store_asked(self._attempt)
            if self._attempt.ti_id in self._server.refused:
                return default
            text = self._server.values.get(key)
            value = default if text is None else json.loads(text)
            if key.startswith("resumable."):
                self._server.world.laws.record_read(self._attempt, value)
            return value

        return self._call(f"get {key}", read)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        """Write."""
        text = json.dumps(value, allow_nan=False)

        def write() -> None:
            self._server.world.laws.store_asked(self._attempt)
            if self._attempt.ti_id in self._server.refused:
                raise Refused(404)
            if key.startswith("resumable."):
                self._server.world.laws.before_write(self._attempt, value)
            self._server.values[key] = text

        self._call(f"set {key}", write)

    def delete(self, key: str) -> None:
        """Remove."""

        def delete() -> None:
            self._server.world.laws.store_asked(self._attempt)
            if self._attempt.ti_id in self._server.refused:
                raise Refused(404)
            self._server.values.pop(key, None)

        self._call(f"delete {key}", delete)

    def _call(self, what: str, effect: Any) -> Any:
        world = self._server.world

        def call() -> Any:
            world.pause(f"{what} sent")
            if world.clock.now < self._server.store_down_until:
                raise Refused(503)
            world.tick += 1
            answer = effect()
            world.pause(f"{what} answered")
            return answer

        return self._attempt.comms.send(call)


class Server:
    """One task instance on the API server.

    Args:
        world: The world it is in.
        retries: The task's retries.
        discards: Whether a clear drops the task's state, as 3.4's does.
    """

    def __init__(self, world: World, retries: int, discards: bool) -> None:
        self.world = world
        self.retries = self.max_tries = retries
        self.discards = discards
        self.state = "scheduled"
        self.try_number = 0
        self.ti_id = str(uuid.UUID(int=world.next_id()))
        self.refused: dict[str, int] = {}
        self.values: dict[str, str] = {}
        self.store_down_until = 0.0
        self.clears: list[int] = []
        self.by_user = False
        """Whether a user's word, not an attempt's, is the task's end."""

    @property
    def record(self) -> Any:
        """The job record on file."""
        text = self.values.get("resumable.model_job")
        return None if text is None else json.loads(text)

    def replace(self) -> None:
        """Give the task instance a new id: from here on the old one is refused."""
        self.world.tick += 1
        for old in (self.ti_id, *(attempt.ti_id for attempt in self.world.attempts)):
            self.refused.setdefault(old, self.world.tick)
        self.ti_id = str(uuid.UUID(int=self.world.next_id()))

    def clear(self) -> None:
        """A user clears the task."""
        running = self.state == "running"
        self.max_tries = self.try_number + self.retries
        # 3.4 keeps the id of a running one until its restart is complete.
        if running and self.discards:
            self.world.tick += 1
        else:
            self.replace()
        self.state, self.by_user = "restarting" if running else "scheduled", False
        self.clears.append(self.world.tick)
        if self.discards:
            self.values.clear()

    def ended(self, attempt: Attempt, state: str) -> bool:
        """Take an attempt's report, unless it isn't the one the server knows; say whether it was taken."""
        if attempt.ti_id != self.ti_id or self.state != "running":
            if self.state == "restarting":
                if attempt.ti_id == self.ti_id:
                    self.replace()
                self.state = "scheduled"
            return False
        if state == "retry":
            state = "up_for_retry" if self.try_number <= self.max_tries else "failed"
        self.state = state
        if state == "up_for_retry":
            self.replace()
        return True
