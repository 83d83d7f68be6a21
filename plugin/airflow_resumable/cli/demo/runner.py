# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the lanes of the demo side by side on one Airflow: kills, watches, lets the jobs end, counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from airflow_resumable.cli.demo.cases import SIDES, Case, Outcome, Side
from airflow_resumable.cli.demo.lanes import Lane, System, killed
from airflow_resumable.cli.demo.progress import Progress
from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.crash_rules import Action, Event
from airflow_resumable.testing.errors import StackError
from airflow_resumable.testing.stack import AirflowStack

_LOOK_EVERY = 0.3
_ASK_AGAIN = 20
_WOKEN_ENDS_WITHIN = 12.0
"""Seconds that a woken worker has to show what it does before its job is told to end."""
# A worker whose supervisor was killed may see its job's end last; what it does then counts too.
_ORPHANS_END_WITHIN = 10.0


class DemoRunner:
    """Runs cases on a running Airflow.

    Args:
        stack: The Airflow, with the system's Dag in its Dags folder.
        crash: What its tasks report their crash points to.
        system: Where the jobs run.
        progress: Is told what happens.
    """

    def __init__(
        self, stack: AirflowStack, crash: CrashController, system: System, progress: Progress
    ) -> None:
        self._stack = stack
        self._crash = crash
        self._system = system
        self._progress = progress
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._seen = 0

    def run(self, cases: Sequence[Case]) -> dict[tuple[str, Side], Outcome]:
        """Run the cases, both sides of each, and return what they came to.

        Raises:
            StackError: A part of Airflow died or refused a request.
            CrashError: A kill could not be carried out.
        """
        lanes = [Lane(case, side) for case in cases for side in SIDES]
        self._lanes = {lane.key: lane for lane in lanes}
        self._progress.watch(lanes)
        waiting = list(cases)
        while waiting or any(self._is_running(lane) for lane in lanes):
            running = {lane.case.name for lane in lanes if self._is_running(lane)}
            for case in waiting[: max(0, self._system.at_once - len(running))]:
                waiting.remove(case)
                self._start(case)
            self._look()
            self._progress.refresh()
            time.sleep(_LOOK_EVERY)
        self._await_orphans()
        return {lane.key: self._outcome(lane) for lane in lanes}

    def _start(self, case: Case) -> None:
        lanes = [self._lanes[case.name, side] for side in SIDES]
        conf: dict[str, Any] = {lane.side: self._system.prepare(lane) for lane in lanes}
        for lane in lanes:
            self._arm(lane)
            lane.began = time.monotonic()
        self._ask(lambda: self._stack.trigger(self._system.dag_id(case), case.name, conf))

    def _is_running(self, lane: Lane) -> bool:
        return (
            lane.began is not None
            and not lane.ended
            and time.monotonic() < lane.began + 2 * self._system.patience
        )

    def _outcome(self, lane: Lane) -> Outcome:
        jobs, submits, cancels = self._system.counts(lane)
        return Outcome(jobs, submits, cancels, lane.state or "none", befell=lane.trouble_at is not None)

    def _arm(self, lane: Lane) -> None:
        if lane.case.point is None:
            return
        action: Action = lane.case.action or self._spoiler(lane)
        self._crash.on(lane.case.point, action, run_id=lane.case.name, task_id=lane.side)

    def _spoiler(self, lane: Lane) -> Callable[[Event], None]:
        def spoil(event: Event) -> None:
            self._system.spoil(lane)

        return spoil

    def _look(self) -> None:
        for name, component in self._stack.components.items():
            if not component.alive:
                raise StackError(
                    f"the {name} died with exit code {component.returncode}:\n{component.tail()}"
                )
        events = self._crash.events[self._seen :]
        self._seen += len(events)
        for lane in self._lanes.values():
            spoiled = not lane.case.action and not lane.case.deed
            if lane.began is not None and spoiled and lane.trouble_at is None:
                lane.trouble_at = self._system.spoiled_at(lane)
                if lane.trouble_at is not None:
                    self._progress.say(lane, "killed", lane.case.fault)
        for event in events:
            lane_of_event = self._lanes.get((event.run_id or "", event.task_id or ""))
            if lane_of_event is not None:
                self._take(lane_of_event, event)
        self._take_states()
        self._clear_the_done()
        self._go_on_after_waking()
        self._lose_patience()

    def _take(self, lane: Lane, event: Event) -> None:
        what = killed(event)
        if event.action == "hold":
            self._do(lane)
            self._crash.release(event)
        elif what is not None:
            lane.trouble_at = event.at
            lane.stopped = event if event.action.startswith("stop_") else None
            self._progress.say(lane, "killed", what)
        elif lane.case.deed == "clear_done" and event.point == "mid_poll":
            self._tell(lane)
        elif lane.case.deed == "time_out" and (event.try_number or 0) > 1 and lane.trouble_at is None:
            self._befalls(lane, event.at)
        if lane.is_past_trouble(event) and not lane.told:
            if lane.stopped and lane.woken_at is None:
                lane.woken_at = time.monotonic()
                self._crash.resume(lane.stopped)
            elif not lane.stopped:
                self._say_decision(lane, event.try_number or 0)
                self._tell(lane)

    def _do(self, lane: Lane) -> None:
        dag, run, task = self._system.dag_id(lane.case), *lane.key
        self._befalls(lane, time.time())
        match lane.case.deed:
            case "clear":
                self._ask(lambda: self._stack.clear(dag, run, task))
            case "mark_failed":
                self._ask(lambda: self._stack.mark(dag, run, task, "failed"))
            case _:
                self._system.spoil(lane)

    def _befalls(self, lane: Lane, at: float) -> None:
        lane.trouble_at = at
        self._progress.say(lane, "killed", lane.case.fault)

    def _ask(self, call: Callable[[], Any]) -> Any:
        for _ in range(_ASK_AGAIN):
            try:
                return call()
            except StackError as error:
                # SQLite's "database is locked" comes as a 500, with nothing done.
                if ": 500 " not in str(error):
                    raise
                time.sleep(_LOOK_EVERY)
        return call()

    def _take_states(self) -> None:
        params = {"limit": 100}
        found = self._ask(
            lambda: self._stack.request("GET", "/dags/~/dagRuns/~/taskInstances", params=params)
        )
        for one in found["task_instances"]:
            lane = self._lanes.get((one["dag_run_id"], one["task_id"]))
            if lane is not None and not lane.ended:
                lane.state = one["state"]
                self._take_end(lane, int(one["try_number"]))

    def _clear_the_done(self) -> None:
        both = [lane for lane in self._lanes.values() if lane.case.deed == "clear_done"]
        if both and all(lane.state in ("success", "failed") and lane.trouble_at is None for lane in both):
            case = both[0].case
            self._ask(lambda: self._stack.clear(self._system.dag_id(case), case.name))
            for lane in both:
                lane.state = None
                self._befalls(lane, time.time())

    def _go_on_after_waking(self) -> None:
        for lane in self._lanes.values():
            event = lane.stopped
            if event is None or lane.woken_at is None:
                continue
            late = time.monotonic() > lane.woken_at + _WOKEN_ENDS_WITHIN
            if late or not _runs(event.pid, event.started[event.pid]):
                lane.stopped = None

    def _take_end(self, lane: Lane, try_number: int) -> None:
        if not lane.ended:
            return
        if lane.trouble_at is not None and not lane.decided:
            # No worker of this try has polled: it found the job ended, or gave up.
            self._say_decision(lane, try_number)
        if lane.case.state != "failed":
            self._tell(lane)
        self._progress.say(lane, "end", str(lane.state))

    def _say_decision(self, lane: Lane, try_number: int) -> None:
        lane.decided = True
        self._progress.say(lane, "then", f"try {try_number}: {self._system.decision(lane, try_number)}")

    def _tell(self, lane: Lane) -> None:
        lane.told = True
        self._system.tell(lane)

    def _lose_patience(self) -> None:
        latest = time.monotonic() - self._system.patience
        for lane in self._lanes.values():
            if lane.began is not None and lane.began < latest and not lane.told and not lane.ended:
                self._progress.say(lane, "then", f"nothing for {self._system.patience:.0f} s")
                self._tell(lane)

    def _await_orphans(self) -> None:
        self._progress.step("Waiting for the last workers to end")
        until = time.monotonic() + _ORPHANS_END_WITHIN
        workers = {event.pid: event.started[event.pid] for event in self._crash.events}
        while any(_runs(pid, started) for pid, started in workers.items()) and time.monotonic() < until:
            time.sleep(_LOOK_EVERY)


def _runs(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        return process.create_time() == started and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
