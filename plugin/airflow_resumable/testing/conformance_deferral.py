# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance suite's behaviours of a deferred task, for operators with `get_watch_arguments`."""

from __future__ import annotations

import json
import pkgutil
import threading
from typing import Any
from unittest import mock

import pytest

from airflow_resumable.jobs.taskflow import ExternalJob
from airflow_resumable.testing.conformance_service import ServiceUnderTest
from airflow_resumable.testing.conformance_suite import ConformanceSuite, Outcome
from airflow_resumable.testing.deferred_try import DeferredTry
from airflow_resumable.testing.task_tries import Crashed, TaskTries, at_point


class DeferralConformance(ConformanceSuite):
    """The worker hands the job over, a trigger watches it, and a worker takes it back."""

    def _defer(self, tries: TaskTries, service: Any, outcome: Outcome) -> DeferredTry:
        subject = self.make(service, outcome)
        if isinstance(subject, ExternalJob):
            pytest.skip("a @task function can't be deferred")
        if not subject.get_capabilities().deferrable:
            pytest.skip("this operator has no get_watch_arguments, so it can't be deferred")
        return tries.defer(subject)

    def _cancel_count(self, service: ServiceUnderTest) -> int:
        return 0 if type(service).cancels is ServiceUnderTest.cancels else service.cancels()

    def test_a_triggerer_needs_json_and_an_importable_class(self, service: Any, tries: TaskTries) -> None:
        """What is kept of a deferred task comes back as it was, and names the operator's class."""
        deferred = self._defer(tries, service, "runs")
        kept = {"get_watch_arguments": deferred.trigger_arguments, "the id": deferred.kwargs}
        for what, value in kept.items():
            assert _through_json(value) == value, f"{what} must give what JSON gives back as it was"
        found = pkgutil.resolve_name(deferred.trigger_arguments["adapter"])
        assert found is type(self.make(service, "runs"))

    def test_a_deferred_job_gives_the_result_of_a_watched_one(self, service: Any, tries: TaskTries) -> None:
        """A trigger made from JSON sees the end; result and XComs are those of an undisturbed run."""
        deferred = self._defer(tries, service, "runs")
        service.release()
        event = deferred.event(self.patience)
        subject = self.make(service, "runs")
        result = deferred.resume(subject, event)
        assert len(service.jobs()) == 1
        assert tries.record(subject)["phase"] == "succeeded"
        whole = TaskTries(run_id="whole")
        watched = self.make(service, "runs")
        expected = whole.run(watched)
        ours, theirs = (one.record(watched)["external_id"] for one in (tries, whole))
        assert result in (expected, with_id(expected, theirs, ours))
        assert {key for key, _ in tries.xcoms} == {key for key, _ in whole.xcoms}

    def test_a_deferred_job_that_fails_fails_the_try(self, service: Any, tries: TaskTries) -> None:
        """The trigger sees the failure too; the next try starts the next generation."""
        deferred = self._defer(tries, service, "fails")
        event = deferred.event(self.patience)
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the operator raises
            deferred.resume(self.make(service, "fails"), event)
        assert len(service.jobs()) == 1
        tries.run(self.make(service, "succeeds"))
        assert len(service.jobs()) == 2

    def test_a_triggerer_that_goes_down_cancels_nothing(self, service: Any, tries: TaskTries) -> None:
        """Its trigger is cancelled in mid watch, and another one, made of the same, sees the end."""
        deferred = self._defer(tries, service, "runs")
        kind, looked = type(self.make(service, "runs")), threading.Event()
        look = kind.get_job_status

        def get_job_status(*args: Any) -> Any:
            status = look(*args)
            looked.set()
            return status

        with mock.patch.object(kind, "get_job_status", get_job_status):
            deferred.cut_short(looked.is_set)
        assert len(self._live(service)) == 1, "the trigger has ended the job"
        assert self._cancel_count(service) == 0
        service.release()
        deferred.resume(self.make(service, "runs"), deferred.event(self.patience))
        assert len(service.jobs()) == 1

    def test_a_crash_after_a_deferral_starts_no_second_job(self, service: Any, tries: TaskTries) -> None:
        """The next try hands the same job over again; so it is when the worker dies that took it back."""
        self._defer(tries, service, "runs")
        second = self._defer(tries, service, "runs")
        assert len(service.jobs()) == 1
        service.release()
        event = second.event(self.patience)
        with at_point("before_outcome", _die), pytest.raises(Crashed):
            second.resume(self.make(service, "runs"), event)
        tries.run(self.make(service, "runs"))
        assert len(service.jobs()) == 1
        assert self._cancel_count(service) == 0


def _die() -> None:
    raise Crashed


def _through_json(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        return error


def with_id(value: Any, old: Any, new: Any) -> Any:
    """Put one job's id in another's place, in a result that tells it."""
    if value == old and type(value) is type(old):
        return new
    if isinstance(old, dict | list):
        # A result may tell a part of an id.
        names = old if isinstance(old, dict) else range(len(old))
        for name in names:
            value = with_id(value, old[name], new[name])
        return value
    if isinstance(value, dict):
        return {key: with_id(one, old, new) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(with_id(one, old, new) for one in value)
    if isinstance(value, str) and isinstance(old, str) and old:
        return value.replace(old, str(new))
    return value
