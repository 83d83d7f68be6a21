# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Carries a schedule out with attempts that this process starts, on a task state store in files."""

from __future__ import annotations

import queue
import signal
import threading
import time
import uuid
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import httpx

from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.soak.attempt_process import Order
from airflow_resumable.testing.soak.history import RECORD_KEY, Attempt, History
from airflow_resumable.testing.soak.job_ends import JobEnds
from airflow_resumable.testing.soak.schedule import BEFORE_THE_END, NEEDS_A_TRY, Schedule, Step
from airflow_resumable.testing.soak.supervisor import Report, Supervised, now

_GRACE = 5.0
"""Seconds from a supervisor's SIGTERM to its SIGKILL, as Airflow's."""
_ENDS_WITHIN = 30.0
"""Seconds after which an attempt whose job has ended hangs: nothing that befalls it here lasts that long."""
_ENDS_BY_ITSELF = 0.5
"""Seconds after which a job ends that nobody may end."""
_SETTLES_WITHIN = 4.0
"""Seconds that a job which was told to stop may take for it: the service's own SIGKILL comes after 2."""


class FileRun:
    """Runs one schedule in a folder of its own.

    The parts of Airflow that matter are played by this class, as 3.3 has them: a task instance id that a
    clear or a heartbeat time-out replaces at once, a store that reads empty and refuses writes under an id
    that was replaced, `max_tries`, SIGTERM and five seconds later SIGKILL for a task whose state was changed.
    Where the schedule discards, a clear does what 3.4's does.

    Args:
        schedule: The schedule.
        folder: For the service, the store and the log.
        variant: A variant of `airflow_resumable.testing.variants` that every attempt runs under.
    """

    def __init__(self, schedule: Schedule, folder: Path, variant: str | None = None) -> None:
        self.schedule = schedule
        self.history = History(schedule, log=folder / "attempts.log")
        self._folder = folder
        self._variant = variant
        self._store = FileTaskStateStore(folder / "store")
        self._ends = JobEnds(folder / "ends")
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._state = "running"
        self._ti_id = uuid.uuid4()
        self._max_tries = schedule.retries
        self._loose: dict[Supervised, str | None] = {}
        self._closing = ExitStack()
        self._step = Step()
        self._begun = datetime.now(UTC)

    def __enter__(self) -> Self:
        """Start the service."""
        self._service = self._closing.enter_context(JobService(self._folder / "service"))
        self._client = self._service.client()
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        for one in list(self._loose):
            one.close()
        self._closing.close()

    def run(self) -> History:
        """Run the schedule to the task's final end and return what it came to."""
        history, clears = self.history, self.schedule.clears
        for number, step in enumerate(self.schedule.attempts(), start=1):
            state = self._attempt(number, step)
            if state == "retry":
                continue
            if not clears or number > 40:
                break
            clears -= 1
            self._wake(None)
            self._state = "none"
            self._clear(number)
        history.state = state
        history.by_user = bool(history.marks) and self._state == history.marks[-1][1]
        self._wake(None, all_of_them=True)
        self._await_loose()
        self._settle()
        if history.log.exists():
            history.read_log(history.log.read_text("utf-8", "replace"))
        history.record = self._store.get(RECORD_KEY)  # type: ignore[assignment]
        history.read(self._service)
        return history

    def _clear(self, number: int, *, running: bool = False) -> None:
        # As 3.3's clear does: another id at once and, unless the task runs, a fresh count of tries. 3.4's
        # drops the state, and a running task keeps its id until it has ended; its count is fresh then too.
        discards = self.schedule.discards
        self.history.clears.append(now())
        if discards or not running:
            self._max_tries = number + self.schedule.retries
        if not (discards and running):
            self._ti_id = uuid.uuid4()
        if discards:
            self._store.clear()
            if not self.schedule.installation:
                self._end_by_itself()

    def _end_by_itself(self) -> None:
        # With no installation id nothing is cancelled on the strength of a family (section 3), and whoever
        # finds such a job waits for its end longer than a schedule may last.
        self.history.read(self._service)
        live = [job.id for job in self.history.jobs if job.finished_at is None]

        def end() -> None:
            for job in live:
                self._ends.end(job, fails=False)

        timer = threading.Timer(_ENDS_BY_ITSELF, end)
        timer.start()
        self._closing.callback(timer.join)

    def _attempt(self, number: int, planned: Step) -> str:
        step = self._possible(planned, number)
        self._step, self._state, self._ti_id = step, "running", uuid.uuid4()
        for fault in step.faults:
            self._client.add_fault(**fault)
        told = Attempt(number, number > self._max_tries, now())
        self.history.attempts[number] = told
        process = Supervised(self._order(number), self._answer, self._reports)
        try:
            state = self._follow(process, told, step)
        except BaseException:
            process.close()
            raise
        if process not in self._loose:
            process.close()
        if step.ends_unseen and state == "retry":
            self._end_recorded("fail" if step.fails else "succeed")
        return state

    def _possible(self, step: Step, number: int) -> Step:
        last = number > self._max_tries
        loses_its_store = step.store is not None and step.store[0] == "broken"
        if last and (step.what in NEEDS_A_TRY or loses_its_store):
            return Step(fails=step.fails, faults=step.faults)
        return step

    def _order(self, number: int) -> Order:
        return Order(
            grade=self.schedule.grade,
            service_url=self._service.url,
            command=self._ends.command,
            run_id=f"seed-{self.schedule.seed}",
            run_started=self._begun,
            ti_id=self._ti_id,
            try_number=number,
            max_tries=self._max_tries,
            retries=self.schedule.retries,
            poll_interval=0.03,
            variant=self._variant,
            log=str(self.history.log),
            installation=self.schedule.installation,
        )

    def _answer(self, process: Supervised, call: tuple[Any, ...]) -> tuple[str, Any]:
        verb, *words = call
        if verb == "state":
            return "", self._state
        process.calls += 1
        store = self._step.store if process.order.ti_id == self._ti_id else None
        if store and (process.calls == store[1] or (store[0] == "broken" and process.calls > store[1])):
            self._told(process).hit = self._told(process).hit or "store"
            return store[0], None
        if process.order.ti_id != self._ti_id:
            return ("", None) if verb == "get" else ("gone", None)
        value = getattr(self._store, verb)(*words)
        if verb == "set" and words[0] == RECORD_KEY and words[1]["external_id"] is not None:
            self.history.ids.append((now(), words[1]["token"], words[1]["external_id"]))
        return "", value

    def _told(self, process: Supervised) -> Attempt:
        return self.history.attempts[process.order.try_number]

    def _follow(self, process: Supervised, told: Attempt, step: Step) -> str:
        """See an attempt to its end, or to the moment when another takes its place; return what follows."""
        due = float("inf")
        fired, follows = step.what == "nothing", "retry"
        kill_at, hangs_at = float("inf"), time.monotonic() + _ENDS_WITHIN + _GRACE
        while True:
            try:
                report = self._reports.get(timeout=max(0.0, min(due, kill_at, hangs_at) - time.monotonic()))
            except queue.Empty:
                if time.monotonic() >= hangs_at:
                    self.history.hung.append(f"try {told.try_number} did not end within {_ENDS_WITHIN:.0f} s")
                    process.signal(signal.SIGKILL)
                    hangs_at = float("inf")
                elif time.monotonic() >= kill_at:
                    process.signal(signal.SIGKILL)
                    kill_at = float("inf")
                else:
                    due, fired = float("inf"), True
                    if self._fire(process, told, step):
                        return "retry"
                    kill_at = self._kill_at(step)
                continue
            if report.attempt is not process:
                self._take_loose(report)
                continue
            if report.kind == "begun" and not fired and step.point is None:
                due = time.monotonic() + step.after
            elif report.kind == "at":
                told.passed.append((now(), report.word))
                here = not fired and step.point == report.word
                if here:
                    fired = True
                    if self._fire(process, told, step):
                        process.go_on()
                        return "retry"
                    kill_at = self._kill_at(step)
                self._wake(report.word, wait=True)
                if report.word == "mid_poll":
                    self._at_mid_poll(report.value, step, told)
                process.go_on()
            elif report.kind == "end":
                told.how, (fatal, told.value) = report.word, report.value
                told.ended, fired, due = now(), True, float("inf")
                follows = self._after_the_end(told, fatal=fatal)
                if follows in ("success", "failed") and self._state == "running":
                    self._state = follows
                process.go_on(follows)
                process.wait(_ENDS_WITHIN)
            elif report.kind == "dead":
                if told.ended is None:
                    told.ended, told.how = now(), "killed"
                    return self._after_the_end(told, fatal=False)
                return follows

    def _kill_at(self, step: Step) -> float:
        return float("inf") if step.what == "nothing" else time.monotonic() + _GRACE

    def _after_the_end(self, told: Attempt, *, fatal: bool) -> str:
        if self._state in ("success", "failed"):
            return self._state
        if self._state == "restarting":
            return "retry"
        if told.how == "returned":
            return "success"
        return "failed" if fatal or told.last else "retry"

    def _fire(self, process: Supervised, told: Attempt, step: Step) -> bool:
        """Let happen what is planned; say whether another attempt takes this one's place while it lives."""
        told.hit = step.what
        match step.what:
            case "kill":
                process.signal(signal.SIGKILL)
            case "term":
                process.signal(signal.SIGTERM)
            case "stop" | "orphan" | "clear_stopped":
                if step.sleeps:
                    process.signal(signal.SIGSTOP)
                # Its supervisor is stopped or dead too: the heartbeat times out, and then a user may clear.
                if step.what == "clear_stopped":
                    self._clear(told.try_number)
                self._loose[process] = step.wake if step.sleeps else ""
                self._ti_id, told.replaced_at = uuid.uuid4(), now()
                return True
            case "clear":
                self._state = "restarting"
                self._clear(told.try_number, running=True)
                told.replaced_at = None if self.schedule.discards else now()
                process.signal(signal.SIGTERM)
            case "mark_failed" | "mark_success":
                self._state = step.what.removeprefix("mark_")
                self.history.marks.append((now(), self._state))
                process.signal(signal.SIGTERM)
        return False

    def _at_mid_poll(self, job: Any, step: Step, told: Attempt) -> None:
        # Whoever was hit leaves its job at work for the next attempt.
        if told.hit not in ("", "store"):
            return
        waits_for_the_end = step.point is not None and step.point not in BEFORE_THE_END
        is_over = step.what == "nothing" or step.point in BEFORE_THE_END[:-1]
        if step.forgotten and is_over:
            self._forget(job)
        if is_over or waits_for_the_end:
            self._ends.end(job, fails=step.fails and not waits_for_the_end)

    def _forget(self, job: Any) -> None:
        try:
            self._client.forget(job)
            self.history.forgets.append((now(), job))
        except httpx.HTTPStatusError:
            # Forgotten already.
            return

    def _end_recorded(self, how: str) -> None:
        record: Any = self._store.get(RECORD_KEY)
        if record and record["external_id"] is not None:
            self._ends.end(record["external_id"], fails=how == "fail")

    def _take_loose(self, report: Report) -> None:
        told = self._told(report.attempt)
        if report.kind == "at":
            told.passed.append((now(), report.word))
        elif report.kind == "end":
            told.ended, told.how = now(), report.word
        elif report.kind == "dead":
            told.ended = told.ended or now()
            del self._loose[report.attempt]
            report.attempt.close()
            return
        report.attempt.go_on("replaced")

    def _wake(self, point: str | None, *, wait: bool = False, all_of_them: bool = False) -> None:
        for one, wakes_at in list(self._loose.items()):
            if wakes_at == "" or (wakes_at != point and not all_of_them):
                continue
            self._loose[one] = ""
            one.signal(signal.SIGCONT)
            if wait and self._turn_of(one):
                self._await(one, 10.0)

    def _turn_of(self, process: Supervised) -> bool:
        steps = self.schedule.steps
        number = process.order.try_number
        return number <= len(steps) and steps[number - 1].in_turn

    def _await(self, process: Supervised, seconds: float) -> None:
        held: list[Report] = []
        until = time.monotonic() + seconds
        while process in self._loose and time.monotonic() < until:
            try:
                report = self._reports.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if report.attempt in self._loose:
                self._take_loose(report)
            else:
                held.append(report)
        for report in held:
            self._reports.put(report)

    def _await_loose(self) -> None:
        for one in list(self._loose):
            self._await(one, _ENDS_BY_ITSELF if self._watches(one) else _ENDS_WITHIN)
            if one in self._loose and self._watches(one):
                # Its job goes on and nobody ends it; Airflow's supervisor would, when a heartbeat is refused.
                one.signal(signal.SIGTERM)
                self._await(one, _ENDS_WITHIN)
            if one in self._loose:
                self.history.hung.append(f"try {one.order.try_number} went on after the end of everything")

    def _watches(self, process: Supervised) -> bool:
        self.history.read(self._service)
        return any(
            job.by == process.order.try_number and job.finished_at is None for job in self.history.jobs
        )

    def _settle(self) -> None:
        until = time.monotonic() + _SETTLES_WITHIN
        while time.monotonic() < until:
            self.history.read(self._service)
            if not any(job.status == "STOPPING" for job in self.history.jobs):
                return
            time.sleep(0.05)
