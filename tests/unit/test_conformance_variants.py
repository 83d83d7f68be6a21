# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance suite fails on every variant of the protocol that is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from airflow_resumable.jobs import service as service_module
from airflow_resumable.jobs.attempt import JobAttempt
from airflow_resumable.jobs.ending import Ending
from airflow_resumable.jobs.submission import Submission
from airflow_resumable.jobs.trigger import JobTrigger
from airflow_resumable.testing.conformance import JobConformance
from airflow_resumable.testing.conformance_suite import StillWaiting
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from airflow_resumable.testing.task_tries import TaskTries
from airflow_resumable.testing.variants import VARIANTS, broken
from tests.local_conformance import LocalConformance, LocalService, NarrowedConformance

ITS_OWN = (AssertionError, pytest.fail.Exception, StillWaiting)
"""How a behaviour that doesn't hold ends; anything else is a slip of the suite."""

CAUGHT_BY: dict[str, tuple[type[LocalConformance], str, tuple[object, ...]]] = {
    "no intent": (NarrowedConformance, "test_a_crash_starts_no_second_job", ("after_accept",)),
    "a token per attempt": (LocalConformance, "test_an_overtaken_try_writes_nothing", ()),
    "a token that never rotates": (LocalConformance, "test_a_failed_job_is_followed_by_another", ()),
    "no lookup before a second submit": (
        NarrowedConformance,
        "test_a_crash_starts_no_second_job",
        ("after_accept",),
    ),
    "lookup that takes the first match": (
        NarrowedConformance,
        "test_of_several_jobs_the_live_one_is_watched",
        (False,),
    ),
    "unbounded wait on stopping": (
        LocalConformance,
        "test_a_stopping_job_is_waited_for_and_not_for_ever",
        (),
    ),
    "blind write without reading the owner": (LocalConformance, "test_an_overtaken_try_writes_nothing", ()),
    "cancel on SIGTERM": (LocalConformance, "test_an_eviction_keeps_the_job", ()),
    "not found read as resubmit": (
        LocalConformance,
        "test_a_missing_job_is_not_started_again_by_itself",
        (),
    ),
    "clean-up before the outcome": (LocalConformance, "test_tidying_up_comes_after_the_outcome", ()),
    "unknown status read as failed": (LocalConformance, "test_a_status_never_heard_of_starts_nothing", ()),
    "generation + 1 on every attempt": (LocalConformance, "test_a_running_job_is_watched_on", ()),
}


class SlowToStop(LocalConformance):
    """A service whose jobs take half a second to die of a cancel."""

    def make(self, service: LocalService, outcome: Any) -> Any:
        """Make every cancel of the test's a slow one."""
        service.client.clear_faults()
        service.client.add_fault("cancel", "slow_stop", seconds=0.5, times=0)
        return super().make(service, outcome)


def cancel_for_good(trigger: JobTrigger) -> Any:
    """Do what a trigger must not do because it is cancelled."""

    async def cleanup() -> None:
        adapter = LocalJobOperator.for_watching(trigger.arguments)
        with adapter.looking({}):
            adapter.cancel_job(trigger.job["external_id"], {})

    return cleanup()


def _replaced(target: Any, name: str, value: Any) -> Callable[[], Any]:
    return lambda: mock.patch.object(target, name, value)


def _watch_arguments_of_another_kind(self: LocalJobOperator, context: Any) -> dict[str, Any]:
    return {"service_url": self.service_url, "poll_interval": self.poll_interval, "command": ("a", "tuple")}


def _result_of_a_whole_run_only(self: LocalJobOperator, external_id: Any, context: Any) -> Any:
    return self._job(external_id)["result"] if self._created else None


FINAL = "test_a_failing_try_leaves_no_job_that_nobody_will_watch"
SLIPS: dict[str, tuple[type[LocalConformance], str, tuple[object, ...], Callable[[], Any]]] = {
    "a clear that doesn't wait for the end of the old job": (
        SlowToStop,
        "test_a_clear_cancels_what_runs",
        (),
        _replaced(service_module.JobService, "_wait_until_gone", lambda self, live: ()),
    ),
    "a late job that nobody takes back": (
        LocalConformance,
        "test_a_job_that_comes_too_late_is_taken_back",
        (True,),
        _replaced(Submission, "_retract", lambda *_: None),
    ),
    "a second job of the same token that nobody takes back": (
        NarrowedConformance,
        "test_a_job_that_comes_too_late_is_taken_back",
        (False,),
        _replaced(Submission, "_retract", lambda *_: None),
    ),
    "a job kept after the last try": (
        LocalConformance,
        FINAL,
        (True, "cancel", False),
        _replaced(Ending, "_cancel", lambda *_: None),
    ),
    "a job cancelled with tries left": (
        LocalConformance,
        FINAL,
        (False, "cancel", True),
        _replaced(JobAttempt, "is_last_try", True),
    ),
    "a refused lookup read as an empty one": (
        LocalConformance,
        "test_a_refused_lookup_is_loud",
        (),
        _replaced(LocalJobOperator, "find_job_by_token", lambda *_: []),
    ),
    "arguments of a trigger that are no JSON": (
        LocalConformance,
        "test_a_triggerer_needs_json_and_an_importable_class",
        (),
        _replaced(LocalJobOperator, "get_watch_arguments", _watch_arguments_of_another_kind),
    ),
    "a result that only the submitting process knows": (
        LocalConformance,
        "test_a_deferred_job_gives_the_result_of_a_watched_one",
        (),
        _replaced(LocalJobOperator, "get_job_result", _result_of_a_whole_run_only),
    ),
    "a trigger that cancels its job on the way out": (
        LocalConformance,
        "test_a_triggerer_that_goes_down_cancels_nothing",
        (),
        _replaced(JobTrigger, "cleanup", cancel_for_good),
    ),
    "a failed job that the trigger takes for a success": (
        LocalConformance,
        "test_a_deferred_job_that_fails_fails_the_try",
        (),
        _replaced(
            LocalJobOperator, "is_job_succeeded", lambda self, status: status in ("SUCCEEDED", "FAILED")
        ),
    ),
    "another job after a deferral": (
        LocalConformance,
        "test_a_crash_after_a_deferral_starts_no_second_job",
        (),
        lambda: broken("generation + 1 on every attempt"),
    ),
}


def behave(
    service: JobService, place: Path, suite: type[LocalConformance], behaviour: str, *arguments: object
) -> None:
    """Run one behaviour at a view of its own of the service."""
    place.mkdir()
    seen = LocalService(service, place / "gate")
    tries = TaskTries(FileTaskStateStore(place / "store"))
    subject = suite()
    if place.name == "broken":
        subject.patience = 1.0
    try:
        getattr(subject, behaviour)(seen, tries, *arguments)
    finally:
        seen.client.clear_faults()
        seen.release()


def test_every_variant_has_its_behaviour() -> None:
    """Section 10 names twelve."""
    assert CAUGHT_BY.keys() == VARIANTS.keys()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_behaviour_fails_on_a_broken_protocol(service: JobService, tmp_path: Path, variant: str) -> None:
    """Whole, the behaviour holds; broken, it fails by its own assertion and not by a slip or a skip."""
    suite, behaviour, arguments = CAUGHT_BY[variant]
    behave(service, tmp_path / "whole", suite, behaviour, *arguments)
    with broken(variant), pytest.raises(ITS_OWN) as caught:
        behave(service, tmp_path / "broken", suite, behaviour, *arguments)
    assert "pytest-timeout" not in str(caught.value)


@pytest.mark.parametrize("slip", SLIPS)
def test_a_behaviour_fails_on_a_slip(service: JobService, tmp_path: Path, slip: str) -> None:
    """The same of what section 10 doesn't name: slips of the protocol, and of an operator's author."""
    suite, behaviour, arguments, breaking = SLIPS[slip]
    behave(service, tmp_path / "whole", suite, behaviour, *arguments)
    with breaking(), pytest.raises(ITS_OWN) as caught:
        behave(service, tmp_path / "broken", suite, behaviour, *arguments)
    assert "pytest-timeout" not in str(caught.value)


def test_an_author_who_gives_no_service_is_told() -> None:
    """The error names the class and what is missing."""

    class Nothing(JobConformance):
        def make(self, service: object, outcome: object) -> object:
            return None

    with pytest.raises(NotImplementedError, match="Nothing needs a fixture service"):
        Nothing.service.__wrapped__(Nothing())  # type: ignore[attr-defined]
