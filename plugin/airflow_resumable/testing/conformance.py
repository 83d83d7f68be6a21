# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: what an operator on the job protocol must do, for its author's own test file.

Subclass `JobConformance`, make an operator and describe the service; pytest collects the rest. See
"Test your own operator" in the docs.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest

from airflow_resumable.jobs.adapter import Capabilities, SubmitWindow
from airflow_resumable.jobs.crashpoints import POINTS
from airflow_resumable.jobs.errors import JobAmbiguous, JobMissing, JobNotSettled, JobSuperseded
from airflow_resumable.testing.conformance_service import SeenJob, ServiceUnderTest, fail, need
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.task_tries import CrashBy, TaskTries

__all__ = ["JobConformance", "SeenJob", "ServiceUnderTest"]

Outcome = Literal["runs", "succeeds", "fails"]
LOOKS = 200
"""Looks at a job that is stopping or in an unknown state, after which a bounded wait would have ended."""


class _StillWaiting(BaseException):
    """A wait that should have had an end."""


class JobConformance:
    """Subclass it, with a fixture `service` and the method `make`.

    Attributes:
        crash_by: ``exception`` (default): a crash is a `BaseException` in this process. ``sigkill``: a forked
            process is killed; for services outside of this process.
        short: Seconds for the time-outs of the policy that are waited for; more than one poll interval.
        patience: Seconds to wait for the service to do what it was told.
    """

    crash_by: CrashBy = "exception"
    short: float = 0.2
    patience: float = 30.0

    @pytest.fixture
    def service(self) -> ServiceUnderTest:
        """Return the service, with no job in it; override this fixture."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture service(self)")

    @abstractmethod
    def make(self, service: Any, outcome: Outcome) -> Any:
        """Return a fresh operator, or a fresh `ExternalJob`, with a short poll interval.

        Args:
            service: What the fixture gave.
            outcome: ``runs`` (until `ServiceUnderTest.release`, then success), ``succeeds`` or ``fails``.
        """

    @pytest.fixture
    def tries(self, tmp_path: Path) -> TaskTries:
        """One task instance, whose tries share a store of files."""
        return TaskTries(FileTaskStateStore(tmp_path / "store"))

    def _can(self, service: Any) -> Capabilities:
        can: Capabilities = self.make(service, "runs").resumable_capabilities()
        return can

    def _crash(self, tries: TaskTries, service: Any, outcome: Outcome, point: str) -> None:
        if not tries.crash(lambda: self.make(service, outcome), point, by=self.crash_by):
            pytest.skip(f"this operator's own poll loop doesn't pass the crash point {point}")

    def _running(self, tries: TaskTries, service: Any) -> Any:
        """Leave a job running whose watcher is gone, and return its id."""
        self._crash(tries, service, "runs", "after_id")
        return tries.record(self.make(service, "runs"))["external_id"]

    def _live(self, service: ServiceUnderTest) -> list[Any]:
        return [job.external_id for job in service.jobs() if job.live]

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.patience
        while not holds():
            assert time.monotonic() < deadline, f"{what}: not within {self.patience:.0f} s"
            time.sleep(0.02)

    def _bounded(self, subject: Any, status: str | None = None) -> Any:
        """Count the looks at a job, and let them show another status if one is given."""
        look, looks = subject.get_job_status, iter(range(LOOKS))

        def get_job_status(external_id: Any, context: Any) -> Any:
            if next(looks, None) is None:
                raise _StillWaiting(f"{LOOKS} looks, and no end of the wait")
            return look(external_id, context) if status is None else status

        return mock.patch.object(subject, "get_job_status", get_job_status)

    # --- an undisturbed run ---

    def test_an_undisturbed_run_starts_one_job(self, service: Any, tries: TaskTries) -> None:
        """One job, an outcome on record, and nothing alive in the end."""
        subject = self.make(service, "succeeds")
        tries.run(subject)
        assert len(service.jobs()) == 1
        assert self._live(service) == []
        assert tries.record(subject)["phase"] == "succeeded"

    def test_ids_come_back_as_they_were(self, service: Any, tries: TaskTries) -> None:
        """An id passes through JSON and through the parent's key, and a lookup gives the same."""
        external_id = self._running(tries, service)
        subject, (job,) = self.make(service, "runs"), service.jobs()
        assert json.loads(json.dumps(job.external_id)) == external_id
        assert subject.parent_value_to_id(subject.id_to_parent_value(external_id)) == external_id

    # --- crashes ---

    @pytest.mark.parametrize("point", POINTS)
    def test_a_crash_starts_no_second_job(self, service: Any, tries: TaskTries, point: str) -> None:
        """Whatever the point, the next try returns a result, and one job was started."""
        window = self._can(service).submit_window
        if point == "after_accept" and window is SubmitWindow.OPEN:
            pytest.skip(
                "submit_window is open: between the answer and its record a crash may start a second job"
            )
        self._crash(tries, service, "runs" if point == "mid_poll" else "succeeds", point)
        service.release()
        tries.run(self.make(service, "succeeds"))
        assert len(service.jobs()) == 1

    def test_a_running_job_is_watched_on(self, service: Any, tries: TaskTries) -> None:
        """A job that runs when its watcher dies is the next try's, and its result is what that returns."""
        external_id = self._running(tries, service)
        service.release()
        subject = self.make(service, "succeeds")
        tries.run(subject)
        assert [job.external_id for job in service.jobs()] == [external_id]
        assert tries.record(subject)["generation"] == 1

    def test_a_result_is_the_same_after_a_reconnect(self, service: Any, tries: TaskTries) -> None:
        """The try that saw the job end, and the one after it, return and push the same."""
        self._running(tries, service)
        service.release()
        first = tries.run(self.make(service, "succeeds"))
        pushed, tries.xcoms = tries.xcoms, []
        assert tries.run(self.make(service, "succeeds")) == first
        assert tries.xcoms == pushed
        whole = TaskTries(run_id="whole")
        whole.run(self.make(service, "succeeds"))
        assert {key for key, _ in whole.xcoms} == {key for key, _ in pushed}

    def test_a_lost_answer_to_a_submit_starts_no_second_job(self, service: Any, tries: TaskTries) -> None:
        """The service took the job and the connection broke: it is found, now or in the next try."""
        if self._can(service).submit_window is SubmitWindow.OPEN:
            pytest.skip("submit_window is open: a lost answer may start a second job")
        fail(service, "submit", "lost_reply", 1)
        try:
            tries.run(self.make(service, "succeeds"))
        except Exception:
            tries.run(self.make(service, "succeeds"))
        assert len(service.jobs()) == 1

    # --- generations ---

    def test_a_failed_job_is_followed_by_another(self, service: Any, tries: TaskTries) -> None:
        """A terminal failure fails the try; the next one starts the next generation."""
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the operator raises
            tries.run(self.make(service, "fails"))
        subject = self.make(service, "succeeds")
        tries.run(subject)
        assert len(service.jobs()) == 2
        assert tries.record(subject)["generation"] == 2

    def test_a_clear_runs_the_job_once_more(self, service: Any, tries: TaskTries) -> None:
        """After a success that a user clears, another job is started, and only one."""
        tries.run(self.make(service, "succeeds"))
        tries.clear()
        tries.run(self.make(service, "succeeds"))
        tries.run(self.make(service, "succeeds"))
        assert len(service.jobs()) == 2

    def test_a_clear_cancels_what_runs(self, service: Any, tries: TaskTries) -> None:
        """The job of before the clear is gone before the next one starts."""
        if not self._can(service).cancel:
            pytest.skip("this operator has no cancel_job")
        old = self._running(tries, service)
        tries.clear()
        tries.run(self.make(service, "succeeds"))
        assert len(service.jobs()) == 2
        assert old not in self._live(service)

    # --- stops ---

    def test_an_eviction_keeps_the_job(self, service: Any, tries: TaskTries) -> None:
        """SIGTERM while the server says running: no cancel, and the next try watches the same job."""
        ended = tries.stop(self.make(service, "runs"), "running", point="after_id")
        assert ended == "JobKept"
        assert len(self._live(service)) == 1, "the stop has ended the job"
        service.release()
        tries.run(self.make(service, "succeeds"))
        assert len(service.jobs()) == 1

    def test_a_users_stop_cancels_the_job_once(self, service: Any, tries: TaskTries) -> None:
        """Marked failed: the job ends, also when a fresh operator has only just reconnected to it."""
        if not self._can(service).cancel:
            pytest.skip("this operator has no cancel_job")
        self._running(tries, service)
        if tries.stop(self.make(service, "runs"), "failed") is None:
            pytest.skip("this operator's own poll loop doesn't pass the crash point mid_poll")
        self._until("the job is cancelled", lambda: not self._live(service))
        if type(service).cancels is not ServiceUnderTest.cancels:
            assert service.cancels() == 1

    # --- what the service may say ---

    def test_a_missing_job_is_not_started_again_by_itself(self, service: Any, tries: TaskTries) -> None:
        """The service no longer knows the job: `on_missing` decides, and its default is to fail."""
        need(service, "forget")
        service.forget(self._running(tries, service))
        with pytest.raises(JobMissing):
            tries.run(self.make(service, "succeeds"), {"on_missing": "fail"})
        assert len(service.jobs()) == 1
        tries.run(self.make(service, "succeeds"), {"on_missing": "resubmit"})
        assert len(service.jobs()) == 2

    def test_a_stopping_job_is_waited_for_and_not_for_ever(self, service: Any, tries: TaskTries) -> None:
        """The wait ends by `stopping_timeout`, and nothing was submitted."""
        need(service, "stop_slowly")
        service.stop_slowly(self._running(tries, service))
        subject = self.make(service, "runs")
        with self._bounded(subject), pytest.raises(JobNotSettled):
            tries.run(subject, {"stopping_timeout": self.short})
        assert len(service.jobs()) == 1

    def test_a_status_never_heard_of_starts_nothing(self, service: Any, tries: TaskTries) -> None:
        """It is waited on for `unknown_status_timeout`, and is neither success nor failure."""
        if not self._can(service).tells_failed:
            pytest.skip(
                "this operator has no is_job_failed: as in Airflow's own mixin, what it doesn't know failed"
            )
        self._running(tries, service)
        for status in ("NEVER HEARD OF", "paused by quota"):
            subject = self.make(service, "runs")
            with self._bounded(subject, status), pytest.raises(JobNotSettled):
                tries.run(subject, {"unknown_status_timeout": self.short})
        assert len(service.jobs()) == 1

    def test_a_passing_error_of_a_status_call_is_outlived(self, service: Any, tries: TaskTries) -> None:
        """Three failing calls in a row cost neither the job nor the try."""
        self._running(tries, service)
        fail(service, "status", "unavailable", 3)
        service.release()
        tries.run(self.make(service, "succeeds"))
        assert len(service.jobs()) == 1

    # --- lookups ---

    def test_a_refused_lookup_is_loud(self, service: Any, tries: TaskTries) -> None:
        """Without the permission to look nobody knows whether there is a job, so none is started."""
        if not self._can(service).find_by_token:
            pytest.skip("this operator has no find_job_by_token")
        self._crash(tries, service, "runs", "after_accept")
        fail(service, "find", "denied", 1)
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the service's client raises
            tries.run(self.make(service, "runs"))
        assert len(service.jobs()) == 1

    def test_a_lookup_takes_no_job_of_another_run(
        self, service: Any, tries: TaskTries, tmp_path: Path
    ) -> None:
        """Another run's running job is not adopted, neither by token nor by family."""
        if not self._can(service).find_by_token:
            pytest.skip("this operator has no find_job_by_token")
        theirs = self._running(TaskTries(FileTaskStateStore(tmp_path / "another"), run_id="another"), service)
        self._crash(tries, service, "succeeds", "after_intent")
        tries.run(self.make(service, "succeeds"))
        without_record = TaskTries(run_id="third")
        without_record.run(self.make(service, "succeeds"), try_number=2)
        assert len(service.jobs()) == 3
        assert self._live(service) == [theirs]

    @pytest.mark.parametrize("turned", [False, True], ids=["as listed", "turned round"])
    def test_of_several_jobs_the_live_one_is_watched(
        self, service: Any, tries: TaskTries, turned: bool
    ) -> None:
        """One that failed and one that runs carry the mark, in either order; two live ones are an error."""
        can = self._can(service)
        if not can.find_by_token or can.submit_window is SubmitWindow.CLOSED:
            pytest.skip("this service starts one job per token, so no two can carry it")
        self._crash(tries, service, "fails", "after_accept")
        self._until("the first job has failed", lambda: not self._live(service))
        self._again(tries, service)
        subject = self.make(service, "runs")
        find = subject.find_job_by_token

        running = service.jobs()[-1].external_id

        def turn(*args: Any) -> Any:
            return sorted(find(*args), key=lambda job: bool(job.external_id == running), reverse=turned)

        service.release()
        with mock.patch.object(subject, "find_job_by_token", turn):
            tries.run(subject)
        assert len(service.jobs()) == 2
        assert tries.record(subject)["external_id"] == running

    def test_two_live_jobs_are_an_error(self, service: Any, tries: TaskTries) -> None:
        """Both carry the mark: a person has to choose, so nothing is started."""
        can = self._can(service)
        if not can.find_by_token or can.submit_window is SubmitWindow.CLOSED:
            pytest.skip("this service starts one job per token, so no two can carry it")
        self._crash(tries, service, "runs", "after_accept")
        self._again(tries, service)
        with pytest.raises(JobAmbiguous):
            tries.run(self.make(service, "runs"))
        assert len(service.jobs()) == 2

    def _again(self, tries: TaskTries, service: Any) -> None:
        """Start a second job with the mark of the first, as a race or the service itself does."""
        subject = self.make(service, "runs")
        with mock.patch.object(subject, "find_job_by_token", return_value=[]):
            self._crash_of(tries, subject)

    def _crash_of(self, tries: TaskTries, subject: Any) -> None:
        assert tries.crash(lambda: subject, "after_accept")

    # --- order and ownership ---

    def test_tidying_up_comes_after_the_outcome(self, service: Any, tries: TaskTries) -> None:
        """`clean_up_job` is called once, when the success is on record."""
        subject, phases = self.make(service, "succeeds"), []
        tidy = subject.clean_up_job

        def clean_up_job(*args: Any) -> None:
            phases.append(tries.record(subject)["phase"])
            tidy(*args)

        with mock.patch.object(subject, "clean_up_job", clean_up_job):
            tries.run(subject)
        assert phases == ["succeeded"]

    def test_an_overtaken_try_writes_nothing(self, service: Any, tries: TaskTries) -> None:
        """A try that slept in its submit while another one did the work stands back."""
        subject = self.make(service, "succeeds")
        submit = subject.submit_job

        def submit_job(context: Any) -> Any:
            tries.run(self.make(service, "succeeds"))
            return submit(context)

        with mock.patch.object(subject, "submit_job", submit_job), pytest.raises(JobSuperseded):
            tries.run(subject)
        assert tries.record(subject)["owner"]["try_number"] == 2
        if self._can(service).submit_window is SubmitWindow.CLOSED:
            assert len(service.jobs()) == 1
