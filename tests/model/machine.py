# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The state machine: what happens to a task instance, in any order, one step at a time."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.model.attempts import Attempt
from tests.model.service import FAILED, Job
from tests.model.world import Setup, World

SETUPS = st.builds(
    Setup,
    kind=st.sampled_from(["closed", "closed", "narrowed", "token", "open"]),
    forgetful=st.booleans(),
    discards=st.booleans(),
    retries=st.sampled_from([2, 1, 0]),
    on_missing=st.sampled_from(["fail", "fail", "resubmit"]),
    installation=st.sampled_from(["", "here"]),
)
WHICH = st.integers(0, 2)
ATTEMPTS, CLEARS = 9, 3
"""Of each as many in one run, so that there is time for something to happen in between."""
STARTABLE = ("scheduled", "up_for_retry")


class TaskInstanceMachine(RuleBasedStateMachine):
    """Attempts that run, crash, overlap, are stopped and replaced; users who clear; a service with moods."""

    setups = SETUPS
    """Which worlds there are; a subclass may have fewer."""
    twice = False
    """Whether the first try is started twice to begin with."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        self.world: World

    @initialize(data=st.data(), steps=st.sampled_from([0, 4, 8, 10, 12, 14, 16, 20, 24, 30]))
    def begin(self, data: Any, steps: int) -> None:
        """Make the world, and let the first attempt get somewhere: most of what matters comes after that."""
        self.world = World(data.draw(self.setups, label="setup"))
        self._stack.enter_context(self.world.entered())
        self.airflow_starts_the_next_try()
        self._move(0, steps)
        if self.twice:
            self.the_same_try_is_started_twice()
            self._move(1, steps)

    def _alive(self, which: int) -> Attempt | None:
        alive = [attempt for attempt in self.world.attempts if attempt.alive]
        return alive[which % len(alive)] if alive else None

    def _live(self) -> list[Job]:
        return [job for job in self.world.service.jobs if job.live]

    # --- attempts ---

    @precondition(lambda self: self.world.server.state in STARTABLE and len(self.world.attempts) < ATTEMPTS)
    @rule()
    def airflow_starts_the_next_try(self) -> None:
        server = self.world.server
        server.try_number += 1
        server.state = "running"
        self.world.start()

    @precondition(lambda self: any(a.alive for a in self.world.attempts))
    @rule(which=WHICH, steps=st.sampled_from([1, 2, 3, 5, 8]))
    def attempt_moves(self, which: int, steps: int) -> None:
        self._move(which, steps)

    @precondition(lambda self: any(a.alive for a in self.world.attempts))
    @rule(which=WHICH, steps=st.sampled_from([10, 16, 24, 60]))
    def attempt_moves_far(self, which: int, steps: int) -> None:
        self._move(which, steps)

    def _move(self, which: int, steps: int) -> None:
        attempt = self._alive(which)
        for _ in range(steps):
            if attempt is not None and attempt.alive and not self.world.laws.broken:
                attempt.step()

    @precondition(lambda self: any(a.alive for a in self.world.attempts))
    @rule(which=WHICH, noticed=st.booleans())
    def attempt_crashes(self, which: int, noticed: bool) -> None:
        attempt = self._alive(which)
        if attempt is None:
            return
        attempt.crash()
        if noticed:
            self._noticed(attempt)

    @precondition(lambda self: self.world.server.state in ("running", "restarting"))
    @rule()
    def heartbeat_is_missed(self) -> None:
        """The process may live on: paused, or cut off."""
        server = self.world.server
        for attempt in self.world.attempts:
            if attempt.ti_id == server.ti_id or server.state == "restarting":
                self._noticed(attempt)
                return

    def _noticed(self, attempt: Attempt) -> None:
        server = self.world.server
        if server.state == "restarting":
            if attempt.ti_id == server.ti_id:
                server.replace()
            server.state = "scheduled"
        elif attempt.ti_id == server.ti_id:
            server.ended(attempt, "retry")

    @precondition(
        lambda self: (
            self.world.server.state == "running" and sum(a.alive for a in self.world.attempts) in (1, 2)
        )
    )
    @rule()
    def the_same_try_is_started_twice(self) -> None:
        """The broker delivers again, or the scheduler resets: the server refuses neither."""
        self.world.server.ti_id = self.world.start().ti_id = f"again-{self.world.next_id()}"

    @precondition(lambda self: any(a.alive for a in self.world.attempts))
    @rule(which=WHICH)
    def attempt_gets_sigterm(self, which: int) -> None:
        attempt = self._alive(which)
        if attempt is not None:
            attempt.signals.append(0.0)

    # --- users ---

    @precondition(lambda self: self.world.server.try_number > 0 and len(self.world.server.clears) < CLEARS)
    @rule()
    def user_clears(self) -> None:
        if self.world.server.state not in ("restarting", "scheduled"):
            self.world.server.clear()

    @precondition(lambda self: self.world.server.state == "running")
    @rule(state=st.sampled_from(["failed", "success"]))
    def user_marks(self, state: str) -> None:
        server = self.world.server
        server.state, server.by_user = state, True

    # --- the service ---

    @precondition(lambda self: bool(self._live()))
    @rule(which=WHICH, how=st.sampled_from(["SUCCEEDED", "FAILED", "CANCELLED"]))
    def job_ends(self, which: int, how: str) -> None:
        live = self._live()
        self.world.tick += 1
        self.world.service.end(live[which % len(live)], how)

    @precondition(lambda self: bool(self._live()))
    @rule(which=WHICH, stops=st.booleans())
    def job_is_slow_to_stop(self, which: int, stops: bool) -> None:
        live = self._live()
        job = live[which % len(live)]
        job.slow = True
        if stops:
            job.status = "STOPPING"

    @precondition(lambda self: bool(self._live()))
    @rule(which=WHICH, status=st.sampled_from(["QUEUED", "RUNNING", "PAUSED BY QUOTA", "??"]))
    def job_is_called(self, which: int, status: str) -> None:
        live = self._live()
        live[which % len(live)].status = status

    @precondition(lambda self: bool(self.world.service.jobs))
    @rule(which=WHICH)
    def job_vanishes(self, which: int) -> None:
        """It is deleted, and the service knows nothing of it any more."""
        jobs = self.world.service.jobs
        job = jobs[-1 - which % len(jobs)]
        job.known = False
        if job.live:
            self.world.tick += 1
            self.world.service.end(job, "DELETED")

    @precondition(
        lambda self: (
            self.world.setup.kind == "narrowed"
            and "model_job" not in self.world.server.values
            and any(job.recorded is None and not job.copy for job in self.world.service.jobs[-1:])
        )
    )
    @rule()
    def a_node_is_lost_and_its_job_runs_again(self) -> None:
        """As a Kubernetes Job's second pod: the same mark, another id; the workers were on the node too."""
        world = self.world
        for attempt in world.attempts:
            if attempt.alive:
                attempt.crash()
        last = world.service.jobs[-1]
        if last.live:
            world.service.end(last, "FAILED")
        if last.status in FAILED and last.known:
            world.tick += 1
            number = len(world.service.jobs) + 1
            again = Job(number, last.token, last.creator, world.tick, world.now, copy=True)
            world.service.jobs.append(again)

    @rule(
        verb=st.sampled_from(["submit", "status", "find", "cancel", "result"]),
        kind=st.sampled_from(["lost", "lost", "refused", "denied"]),
    )
    def service_fails_once(self, verb: str, kind: str) -> None:
        self.world.service.faults[verb] = kind
        self._fault()

    @rule(seconds=st.sampled_from([5.0, 100.0, 500.0]), store=st.booleans())
    def something_is_down(self, seconds: float, store: bool) -> None:
        until = self.world.now + seconds
        if store:
            self.world.server.store_down_until = until
        else:
            self.world.service.down_until = until
        self._fault()

    def _fault(self) -> None:
        for attempt in self.world.attempts:
            attempt.faulted = True

    @rule(seconds=st.sampled_from([1.0, 60.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.now += seconds

    # --- the laws ---

    @invariant()
    def the_laws_hold(self) -> None:
        if hasattr(self, "world"):
            assert not self.world.laws.broken, self.world.laws.broken[0]

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if not self.world.laws.broken:
                self._run_out()
        finally:
            self._stack.close()
        self.the_laws_hold()

    def _run_out(self) -> None:
        """Let everybody go on undisturbed: the task comes to its end, and nothing lives on."""
        world = self.world
        world.service.faults.clear()
        for attempt in world.attempts:
            # Its next heartbeat tells the supervisor what a user has said.
            if attempt.alive and world.server.by_user and attempt.ti_id == world.server.ti_id:
                attempt.signals.append(0.0)
        steps = 0
        for _ in range(20):
            for attempt in world.attempts:
                while attempt.alive and not world.laws.broken:
                    steps += 1
                    if steps % 40 == 0:
                        for job in self._live():
                            if job.status != "STOPPING" and self._is_watched(job) and not world.laws.broken:
                                world.tick += 1
                                world.service.end(job, "SUCCEEDED")
                    assert steps < 20_000, f"attempt {attempt.number} does not end: {attempt.place}"
                    attempt.step()
            if world.laws.broken:
                return
            if world.server.state in ("running", "restarting"):
                self.heartbeat_is_missed()
            if world.server.state not in STARTABLE:
                world.laws.ran_out()
                return
            self.airflow_starts_the_next_try()

    def _is_watched(self, job: Job) -> bool:
        # A job that nobody knows of goes on: that is what law 3 is about.
        current = [
            a.host.attempt.external_id for a in self.world.attempts if a.alive and a.host and a.host.attempt
        ]
        return job.number in (*current, (self.world.server.record or {}).get("external_id"))
