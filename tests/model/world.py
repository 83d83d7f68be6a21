# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that one run of the machine holds: server, service, attempts, clock and laws."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from airflow_resumable.jobs.policies import ResumePolicy, configured
from tests.model.airflow import Server
from tests.model.attempts import Attempt
from tests.model.clock import Clock
from tests.model.laws import Laws
from tests.model.service import ModelJob, Service, adapter


@dataclass(frozen=True)
class Setup:
    """What differs between runs.

    Args:
        kind: One of `tests.model.service.KINDS`.
        forgetful: Whether the service forgets tokens.
        discards: Whether a clear drops the task's state (3.4).
        retries: The task's.
        on_missing: The policy.
        installation: ``[resumable] installation_id``.
    """

    kind: str = "closed"
    forgetful: bool = False
    discards: bool = False
    retries: int = 2
    on_missing: str = "fail"
    installation: str = ""


class World:
    """One task instance and all that happens to it."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.tick = 0
        self._ids = 0
        self.running: Attempt = None  # type: ignore[assignment]
        self.attempts: list[Attempt] = []
        self.clock = Clock(lambda seconds: self.running.sleep(seconds), self._signal_after)
        self.server = Server(self, setup.retries, setup.discards)
        self.service = Service(self)
        self.laws = Laws(self)
        self.adapter: type[ModelJob] = adapter(setup.kind, setup.forgetful)
        self.policy = ResumePolicy(
            on_missing=setup.on_missing,
            status_error_budget=200,
            unknown_status_timeout=40,
            stopping_timeout=40,
            cancel_timeout=40,
        ).filled(_defaults())

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self.clock.now

    def next_id(self) -> int:
        """Return a number that was not used before."""
        self._ids += 1
        return self._ids

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be the world that the protocol runs in: its clock, its signal handler, its configuration."""
        before = signal.getsignal(signal.SIGTERM)

        # Airflow's own handler has this name; on_kill looks for the registered one on the stack.
        def _on_term(signum: int, frame: object) -> None:
            self.running.stopped = True
            host = self.running.host
            if host is not None:
                host.on_kill(lambda: None)

        self.on_term = _on_term
        variables = {"AIRFLOW__RESUMABLE__INSTALLATION_ID": self.setup.installation}
        signal.signal(signal.SIGTERM, _on_term)
        try:
            with mock.patch.dict(os.environ, variables), self.clock.installed():
                yield
                for attempt in self.attempts:
                    if attempt.alive:
                        attempt.crash()
        finally:
            signal.signal(signal.SIGTERM, before)

    def pause(self, place: str) -> None:
        """Give the baton back from inside a call."""
        self.running.pause(place)

    def _signal_after(self, seconds: float) -> None:
        self.running.signals.append(self.now + seconds)

    def start(self) -> Attempt:
        """Start an attempt of the task instance as the server has it now."""
        attempt = Attempt(self, len(self.attempts) + 1)
        self.attempts.append(attempt)
        return attempt


_filled: list[Any] = []


def _defaults() -> ResumePolicy:
    if not _filled:
        _filled.append(configured())
    policy: ResumePolicy = _filled[0]
    return policy
