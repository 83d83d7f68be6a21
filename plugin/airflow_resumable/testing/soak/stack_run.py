# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Carries a schedule out on a real Airflow: crash rules, and what a user does over its REST API."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from airflow_resumable.testing.crash import CrashController, Event
from airflow_resumable.testing.errors import StackError
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.soak.history import RECORD_KEY, Attempt, History
from airflow_resumable.testing.soak.job_ends import JobEnds
from airflow_resumable.testing.soak.schedule import BEFORE_THE_END, NEEDS_A_TRY, Schedule, Step
from airflow_resumable.testing.soak.supervisor import now
from airflow_resumable.testing.stack import AirflowStack

DAGS = Path(__file__).with_name("stack_dags.py")
_TASK = "job"
_ACTIONS = {
    "kill": ("kill_task", "kill_both"),
    "term": ("term_supervisor", "term_task"),
    "stop": ("stop_both",),
    "clear_stopped": ("stop_both",),
    "orphan": ("kill_supervisor",),
    "clear": ("hold",),
    "mark_failed": ("hold",),
    "mark_success": ("hold",),
}
_LOOK_EVERY = 0.2
_ASK_AGAIN = 20
_ENDS_WITHIN = 240.0
_SETTLES_WITHIN = 20.0


class StackRun:
    """Runs one schedule as a Dag run with a job service of its own.

    Args:
        schedule: The schedule.
        folder: For the service and the jobs' ends.
        stack: A running Airflow with the Dags of `stack_dags`.
        crash: What its tasks report to; other runs may share both.
    """

    def __init__(self, schedule: Schedule, folder: Path, stack: AirflowStack, crash: CrashController) -> None:
        self.schedule = schedule
        self.history = History(schedule, log=stack.home / "logs")
        self._folder = folder
        self._stack = stack
        self._crash = crash
        self._dag, self._run = f"soak_{schedule.grade}", f"seed-{schedule.seed}"
        self._ends = JobEnds(folder / "ends")
        self._closing = ExitStack()
        self._steps: dict[int, Step] = {}
        self._fired: set[int] = set()
        self._unseen: set[int] = set()
        self._stopped: dict[Event, str | None] = {}
        self._workers: dict[int, float] = {}
        self._seen = 0
        self._max_tries = schedule.retries

    def __enter__(self) -> Self:
        """Start the service."""
        self._service = self._closing.enter_context(JobService(self._folder / "service"))
        self._client = self._service.client()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the service and its jobs."""
        self._closing.close()

    def run(self) -> History:
        """Run the schedule to the task's final end and return what it came to."""
        history, clears = self.history, self.schedule.clears
        self._arm(1)
        conf = {"service_url": self._service.url, "script": self._ends.command[-1]}
        self._seen = len(self._crash.events)
        self._ask(lambda: self._stack.trigger(self._dag, self._run, conf))
        deadline = time.monotonic() + _ENDS_WITHIN
        while True:
            task = self._ask(lambda: self._stack.task_instance(self._dag, self._run, _TASK))
            self._max_tries = max(self._max_tries, int(task["max_tries"]))
            self._look()
            state, number = str(task["state"]), int(task["try_number"])
            if state == "up_for_retry":
                self._between(number)
            if state in ("success", "failed") and self._is_settled(number):
                if not clears:
                    break
                clears -= 1
                self._resume(None)
                self._clear(number)
            if time.monotonic() > deadline:
                history.hung.append(
                    f"the task is {state!r}, try {number}, {_ENDS_WITHIN:.0f} s after its start"
                )
                break
            time.sleep(_LOOK_EVERY)
        history.state = state
        history.by_user = bool(history.marks) and history.marks[-1][0] > max(history.clears, default=0.0)
        self._finish(number)
        return history

    def _is_settled(self, number: int) -> bool:
        # What a user's clear or mark did to the try before may still be on its way.
        return number not in self._fired or number not in {
            one for one, step in self._steps.items() if step.what == "clear"
        }

    def _finish(self, number: int) -> None:
        history = self.history
        self._resume(None, all_of_them=True)
        until = time.monotonic() + _SETTLES_WITHIN
        while time.monotonic() < until:
            self._look()
            history.read(self._service)
            live = [job for job in history.jobs if job.finished_at is None and not job.forgotten]
            if not live and not any(map(_runs, self._workers.items())):
                break
            time.sleep(_LOOK_EVERY)
        history.record = self._record()
        history.read(self._service)
        for one in history.attempts:
            history.read_log(self._log(one), one)
        if history.state == "success" and not history.by_user and number in history.attempts:
            told = history.attempts[number]
            told.how, told.value = "returned", self._stack.xcom(self._dag, self._run, _TASK)

    def _log(self, number: int) -> str:
        return str(self._ask(lambda: self._stack.task_log(self._dag, self._run, _TASK, number)) or "")

    def _record(self) -> dict[str, Any] | None:
        found = self._ask(lambda: self._stack.task_state(self._dag, self._run, _TASK, RECORD_KEY))
        return found["value"] if found else None

    def _arm(self, number: int) -> None:
        if number in self._steps:
            return
        steps = self.schedule.steps
        step = steps[number - 1] if number <= len(steps) else Step()
        if number > self._max_tries and step.what in NEEDS_A_TRY:
            step = Step(fails=step.fails, faults=step.faults)
        self._steps[number] = step
        for fault in step.faults:
            self._client.add_fault(**fault)
        if step.what != "nothing" and step.point:
            actions = _ACTIONS[step.what]
            action = actions[self.schedule.seed % len(actions)]
            self._crash.on(step.point, action, run_id=self._run, task_id=_TASK, try_number=number)

    def _between(self, number: int) -> None:
        if number in self._unseen:
            return
        self._unseen.add(number)
        step = self._steps.get(number, Step())
        if step.ends_unseen:
            self._end_recorded(step)
        if step.what == "clear_stopped" and number in self._fired:
            self._max_tries = number + self.schedule.retries
            self._clear(number)
        self._arm(number + 1)

    def _look(self) -> None:
        events = self._crash.events[self._seen :]
        self._seen += len(events)
        for event in events:
            if event.run_id == self._run and event.task_id == _TASK:
                self._take(event)

    def _take(self, event: Event) -> None:
        number = event.try_number or 0
        self._arm(number)
        step = self._steps[number]
        if number not in self.history.attempts:
            for told in self.history.attempts.values():
                told.replaced_at = told.replaced_at or event.at
            self.history.attempts[number] = Attempt(number, number > self._max_tries, event.at)
        told = self.history.attempts[number]
        told.passed.append((event.at, event.point))
        self._workers[event.pid] = event.started[event.pid]
        if event.point == "after_id":
            record = self._record()
            if record and record["external_id"] is not None:
                self.history.ids.append((event.at, record["token"], record["external_id"]))
        self._resume(event.point, below=number)
        if event.action != "go":
            told.hit = step.what
            self._fired.add(number)
            self._fire(event, told, step)
        elif event.point == "mid_poll":
            self._at_mid_poll(number, step)

    def _fire(self, event: Event, told: Attempt, step: Step) -> None:
        if step.sleeps:
            self._stopped[event] = step.wake
        if step.what == "clear":
            told.replaced_at = now()
            self._clear(told.try_number)
        elif step.what.startswith("mark_"):
            state = step.what.removeprefix("mark_")
            self.history.marks.append((now(), state))
            self._ask(lambda: self._stack.mark(self._dag, self._run, _TASK, state))
        self._crash.release(event)

    def _clear(self, number: int) -> None:
        self._arm(number + 1)
        self.history.clears.append(now())
        self._ask(lambda: self._stack.clear(self._dag, self._run, _TASK))

    def _ask(self, call: Callable[[], Any]) -> Any:
        for _ in range(_ASK_AGAIN):
            try:
                return call()
            except StackError as error:
                # SQLite's "database is locked" comes as a 500 with nothing done; a lost answer may have been.
                if ": 409 " in str(error):
                    return None
                if ": 500 " not in str(error):
                    raise
                time.sleep(_LOOK_EVERY)
        return call()

    def _at_mid_poll(self, number: int, step: Step) -> None:
        # Whoever was hit leaves its job at work for the next attempt.
        if number in self._fired:
            return
        after_the_end = step.point is not None and step.point not in BEFORE_THE_END
        is_over = step.what == "nothing" or step.point in BEFORE_THE_END[:-1]
        if not (is_over or after_the_end):
            return
        if step.forgotten and is_over:
            record = self._record()
            if record:
                with suppress(httpx.HTTPStatusError):
                    self._client.forget(record["external_id"])
                    self.history.forgets.append((now(), record["external_id"]))
        self._end_recorded(step, succeeds=after_the_end)

    def _end_recorded(self, step: Step, *, succeeds: bool = False) -> None:
        record = self._record()
        if record and record["external_id"] is not None:
            self._ends.end(record["external_id"], fails=step.fails and not succeeds)

    def _resume(self, point: str | None, *, below: int = 1 << 30, all_of_them: bool = False) -> None:
        for event, wakes_at in list(self._stopped.items()):
            if all_of_them or (wakes_at == point and (event.try_number or 0) < below):
                del self._stopped[event]
                self._crash.resume(event)


def _runs(worker: tuple[int, float]) -> bool:
    pid, started = worker
    try:
        process = psutil.Process(pid)
        return process.create_time() == started and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
