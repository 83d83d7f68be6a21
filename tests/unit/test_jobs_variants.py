# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The tests of the protocol fail on each variant that is broken on purpose, so they can fail at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from airflow_resumable.testing.soak.graded_jobs import NarrowedJobOperator
from airflow_resumable.testing.variants import VARIANTS, broken
from tests.attempts import (
    FAIL,
    SUCCEED,
    TaskInstance,
    TokenOnlyJobOperator,
    requests,
    started,
    until_released,
)

Scenario = Callable[[JobService, TaskInstance, Path], None]


def crash_after_accept(service: JobService, instance: TaskInstance, place: Path) -> None:
    """A job whose id was not stored is found by submitting again with the same token, and only so."""
    instance.operator_class = TokenOnlyJobOperator
    _crash_after_accept(service, instance)


def _crash_after_accept(service: JobService, instance: TaskInstance) -> None:
    instance.attempt_killed("after_accept")
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1


def crash_after_accept_unmarked(service: JobService, instance: TaskInstance, place: Path) -> None:
    """The same with a service that takes none, so that only the lookup helps."""
    instance.operator_class = NarrowedJobOperator
    _crash_after_accept(service, instance)


def failed_job(service: JobService, instance: TaskInstance, place: Path) -> None:
    """The next try starts another job, not the failed one for ever."""
    instance.command = FAIL
    with pytest.raises(Exception, match="FAILED"):
        instance.attempt()
    instance.command = SUCCEED
    assert instance.attempt(try_number=2) == {"rows": 7}


def older_failed_and_newer_running(service: JobService, instance: TaskInstance, place: Path) -> None:
    """Case 4: two jobs carry the mark, in either order; the running one is watched."""
    gate = place / "gate"

    class BothOrders(NarrowedJobOperator):
        def find_job_by_token(self, token: Any, since: Any, context: Any) -> Any:
            return sorted(
                super().find_job_by_token(token, since, context), key=lambda job: str(job.external_id)
            )

    instance.operator_class = NarrowedJobOperator
    instance.attempt_killed("after_intent")
    record, client = instance.record, service.client()
    family = record["token"][1:17]
    old = client.submit(FAIL, family=family, name=record["token"])["id"]
    client.wait(old)
    new = client.submit(until_released(gate), family=family, name=record["token"])["id"]
    gate.touch()
    instance.operator_class = BothOrders
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert instance.record["external_id"] == new


def endless_stop(service: JobService, instance: TaskInstance, place: Path) -> None:
    """The wait on a stopping job ends by `stopping_timeout`; here a time-out stands in for "for ever"."""
    from airflow.sdk.execution_time.timeout import timeout

    instance.command, instance.policy = until_released(place / "never"), {"stopping_timeout": 0.2}
    instance.attempt_killed("mid_poll")
    service.client().add_fault("cancel", "slow_stop", seconds=60)
    service.client().cancel(instance.record["external_id"])
    with timeout(3), pytest.raises(Exception, match="STOPPING"):  # type: ignore[no-untyped-call]
        instance.attempt(try_number=2)


def overtaken(service: JobService, instance: TaskInstance, place: Path) -> None:
    """An attempt that a newer one has overtaken in mid-submit does not write."""

    class Overtaken(LocalJobOperator):
        def submit_job(self, context: Any) -> Any:
            if context["ti"].try_number == 1:
                instance.attempt(try_number=2)
            return super().submit_job(context)

    instance.operator_class = Overtaken
    with pytest.raises(Exception, match="taken over"):
        instance.attempt(try_number=1)
    assert instance.record["owner"]["try_number"] == 2


def evicted(service: JobService, instance: TaskInstance, place: Path) -> None:
    """SIGTERM keeps the job."""
    instance.command = until_released(place / "never")
    instance.attempt_stopped("mid_poll")
    assert requests(service, "cancel") == []


def forgotten(service: JobService, instance: TaskInstance, place: Path) -> None:
    """A job that the service lost is not started again by itself."""
    instance.command = until_released(place / "gate")
    instance.attempt_killed("mid_poll")
    service.client().forget(instance.record["external_id"])
    (place / "gate").touch()
    with pytest.raises(Exception, match="no longer knows"):
        instance.attempt(try_number=2)
    assert len(started(service)) == 1


def tidied(service: JobService, instance: TaskInstance, place: Path) -> None:
    """The adapter tidies up when the outcome is on record, not before."""
    phases: list[str] = []

    class Tidies(LocalJobOperator):
        def clean_up_job(self, external_id: Any, observation: Any, context: Any) -> None:
            phases.append(instance.record["phase"])

    instance.operator_class = Tidies
    instance.attempt()
    assert phases == ["succeeded"]


def unheard_of(service: JobService, instance: TaskInstance, place: Path) -> None:
    """A word nobody knows is no failure, so no reason to submit."""
    instance.command, instance.policy = until_released(place / "gate"), {"unknown_status_timeout": 0.1}
    instance.attempt_killed("mid_poll")
    service.client().add_fault("status", "unknown_status", status="HIBERNATING", times=0)
    with pytest.raises(Exception, match="HIBERNATING"):
        instance.attempt(try_number=2)
    assert len(started(service)) == 1


def crash_in_mid_poll(service: JobService, instance: TaskInstance, place: Path) -> None:
    """A job on record is watched on."""
    gate = place / "gate"
    instance.command = until_released(gate)
    instance.attempt_killed("mid_poll")
    gate.touch()
    instance.attempt(try_number=2)
    assert len(started(service)) == 1


CAUGHT_BY: dict[str, Scenario] = {
    "no intent": crash_after_accept_unmarked,
    "a token per attempt": crash_after_accept,
    "a token that never rotates": failed_job,
    "no lookup before a second submit": crash_after_accept_unmarked,
    "lookup that takes the first match": older_failed_and_newer_running,
    "unbounded wait on stopping": endless_stop,
    "blind write without reading the owner": overtaken,
    "cancel on SIGTERM": evicted,
    "not found read as resubmit": forgotten,
    "clean-up before the outcome": tidied,
    "unknown status read as failed": unheard_of,
    "generation + 1 on every attempt": crash_in_mid_poll,
}


def test_every_variant_has_its_scenario() -> None:
    """Section 10 names twelve."""
    assert CAUGHT_BY.keys() == VARIANTS.keys()
    assert len(VARIANTS) == 12


@pytest.mark.parametrize(
    "scenario", dict.fromkeys(CAUGHT_BY.values()), ids=lambda scenario: scenario.__name__
)
def test_the_protocol_passes_the_scenario(
    service: JobService, instance: TaskInstance, tmp_path: Path, scenario: Scenario
) -> None:
    """Unbroken, each scenario holds."""
    scenario(service, instance, tmp_path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_broken_protocol_fails_the_scenario(
    service: JobService, instance: TaskInstance, tmp_path: Path, variant: str
) -> None:
    """Broken in one place, the scenario that watches that place does not hold."""
    instance.variant = variant
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - any way of not holding will do
        CAUGHT_BY[variant](service, instance, tmp_path)
    assert not isinstance(caught.value, KeyboardInterrupt | NotImplementedError | AttributeError | NameError)
    # A test that was cut off has shown nothing.
    assert "pytest-timeout" not in str(caught.value)


def test_an_unknown_variant_is_refused() -> None:
    """The error lists the known ones."""
    with (
        pytest.raises(ValueError, match="variant='no such' is not known; use one of no intent"),
        broken("no such"),
    ):
        pass
