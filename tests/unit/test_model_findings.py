# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the state machine found, each as the shortest run that shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.machine import TaskInstanceMachine
from tests.model.service import MEMORY
from tests.model.world import Setup, World


@pytest.fixture
def machine() -> Iterator[TaskInstanceMachine]:
    """A machine at a service that takes tokens and lists, which the test itself moves."""
    machine = TaskInstanceMachine()
    machine.world = World(Setup())
    machine._stack.enter_context(machine.world.entered())
    yield machine
    machine.teardown()


def _move_to_the_end(machine: TaskInstanceMachine, number: int) -> str:
    attempt = machine.world.attempts[number - 1]
    while attempt.alive:
        attempt.step()
        for job in machine._live():
            machine.world.service.end(job, "SUCCEEDED")
    return str(attempt.ended)


def test_a_try_that_was_started_twice_takes_no_reported_success_for_a_clear(
    machine: TaskInstanceMachine,
) -> None:
    """The second process reads the record when the first has reported: the same try, so nobody cleared."""
    machine.airflow_starts_the_next_try()
    machine.the_same_try_is_started_twice()
    first, second = machine.world.attempts
    machine.world.server.ti_id = first.ti_id
    assert _move_to_the_end(machine, 1) == "returned {'job': 1}"
    assert machine.world.server.record["reported"] is True
    _move_to_the_end(machine, second.number)
    assert len(machine.world.service.jobs) == 1


def test_a_submit_is_not_repeated_once_its_token_may_be_forgotten() -> None:
    """The answer was lost, and the service away for longer than it remembers a token: no second job."""
    machine = TaskInstanceMachine()
    machine.world = world = World(Setup(kind="token", forgetful=True))
    with world.entered():
        machine.airflow_starts_the_next_try()
        while not world.attempts[0].place.startswith("submit sent"):
            world.attempts[0].step()
        world.service.faults["submit"] = "lost"
        world.attempts[0].step()
        world.service.down_until = world.now + MEMORY + 30
        while world.attempts[0].alive and not world.laws.broken:
            world.attempts[0].step()
    assert [job.number for job in world.service.jobs] == [1]
    assert world.laws.broken == []
