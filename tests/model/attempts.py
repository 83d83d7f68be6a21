# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Attempts that move one step at a time: each in a thread that waits for the baton at every call."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_resumable.integration.listener import on_task_instance_success
from airflow_resumable.jobs.host import Host
from tests.model.airflow import CommsDecoder, Store
from tests.model.clock import EPOCH

if TYPE_CHECKING:
    from tests.model.world import World


class Crashed(BaseException):
    """The process is gone: whatever its frames still try has no effect."""


class Attempt:
    """One process that runs the task once.

    Attributes:
        place: What it is about to do, for the reader of a failed example.
        ended: How it ended, None while it runs.
    """

    def __init__(self, world: World, number: int) -> None:
        server = world.server
        self.world, self.number = world, number
        self.ti_id, self.try_number, self.max_tries = server.ti_id, server.try_number, server.max_tries
        self.place, self.started = "start", world.tick
        self.ended: str | None = None
        self.error: BaseException | None = None
        self.dead = False
        self.wake_at = 0.0
        self.signals: list[float] = []
        self.stopped = False
        service = world.service
        self.faulted = bool(service.faults) or max(service.down_until, server.store_down_until) > world.now
        """Whether something failed while it ran, so that not all can be asked of it."""
        self.told: str | None = None
        """The server's last answer about the task's state."""
        self.comms = CommsDecoder()
        self.looked_up = 0
        self.first_read: int | None = None
        self.last_read = self.last_store = 0
        self.read_ids: set[tuple[str, Any]] = set()
        self.owned_by_other: int | None = None
        self.stopping_looks = 0
        self.first_submit: tuple[str, float] | None = None
        self.host: Host | None = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"attempt-{number}")
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the process is still there."""
        return self.ended is None

    @property
    def is_last_try(self) -> bool:
        """Whether no other try follows by itself."""
        return self.try_number > self.max_tries

    def superseded_at(self) -> int | None:
        """The tick since which it is another attempt's turn, or None."""
        refused = self.world.server.refused.get(self.ti_id)
        ticks = [tick for tick in (refused, self.owned_by_other) if tick is not None]
        return min(ticks, default=None)

    def step(self) -> None:
        """Hand over the baton and wait until it comes back."""
        self.world.running = self
        self._go.release()
        self._back.acquire()
        self.world.running = None  # type: ignore[assignment]

    def crash(self) -> None:
        """Kill the process."""
        self.dead = True
        self.step()
        self._thread.join()

    def pause(self, place: str) -> None:
        """Give the baton back; called from the attempt's own thread."""
        if self.dead:
            raise Crashed
        self.place = place
        self._back.release()
        self._go.acquire()
        if self.dead:
            raise Crashed
        self.world.clock.now += 0.02
        due = [at for at in self.signals if at <= self.world.clock.now]
        if due:
            self.signals.remove(due[0])
            self.world.on_term(15, None)

    def sleep(self, seconds: float) -> None:
        """Sleep: the clock moves on when the baton comes back."""
        self.wake_at = self.world.clock.now + seconds
        self.pause(f"sleep {seconds:.1f}")
        self.world.clock.now = max(self.world.clock.now, self.wake_at)

    def _run(self) -> None:
        self._go.acquire()
        try:
            if self.dead:
                raise Crashed
            result = self._execute()
        except Crashed:
            self.ended = "crashed"
        except BaseException as error:
            self.ended, self.error = type(error).__name__, error
            if not self.dead:
                self.world.laws.raised(self, error)
                fatal = isinstance(error, AirflowFailException)
                self.world.server.ended(self, "failed" if fatal else "retry")
                self.world.laws.ended(self)
        else:
            self.ended = f"returned {result}"
            self.world.laws.ended(self)
        finally:
            self._back.release()

    def _execute(self) -> Any:
        world = self.world
        job = world.adapter(world.service)
        task = SimpleNamespace(task_id="task", retries=world.server.retries, _resumable_attempts=[])
        ti = SimpleNamespace(
            id=self.ti_id,
            dag_id="dag",
            run_id="run",
            task_id="task",
            map_index=-1,
            try_number=self.try_number,
            max_tries=self.max_tries,
            stats_tags={},
            get_task_states=self._states,
            task=task,
        )
        context: Any = {
            "ti": ti,
            "task": task,
            "dag_run": SimpleNamespace(start_date=EPOCH),
            "task_state_store": Store(world.server, self),
        }
        self.host = job._host = Host(job, job.get_capabilities(), world.policy)
        result = self.host.run(context, unrecorded=lambda: world.laws.break_("ran without a record"))
        world.laws.returned(self, result)
        self.pause("report success")
        if world.server.ended(self, "success"):
            task._resumable_attempts.append(self.host.attempt)
            on_task_instance_success(previous_state=None, task_instance=ti)
        return result

    def _states(self, **_: Any) -> dict[str, dict[str, str | None]]:
        def ask() -> Any:
            self.pause("ask for the state")
            state = self.world.server.state
            self.told = state
            return {"run": {"task": None if state == "scheduled" else state}}

        states: dict[str, dict[str, str | None]] = self.comms.send(ask)
        return states
