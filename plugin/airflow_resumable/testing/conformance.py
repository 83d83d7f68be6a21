# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: what an operator on the job protocol must do, for its author's own test file.

Subclass `JobConformance`, make an operator and describe the service; pytest collects the rest. See
"Test your own operator" in the docs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.jobs.crashpoints import POINTS
from airflow_resumable.jobs.defaults import AdapterDefaults
from airflow_resumable.jobs.errors import JobAmbiguous, JobMissing, JobNotSettled, JobSuperseded
from airflow_resumable.testing.conformance_deferral import DeferralConformance
from airflow_resumable.testing.conformance_service import SeenJob, ServiceUnderTest, fail, need
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.task_tries import TaskTries, at_point

__all__ = ["JobConformance", "SeenJob", "ServiceUnderTest"]


class _Broken(Exception):
    """What makes a try fail while its job goes on."""


class JobConformance(DeferralConformance):
    """Subclass it, with a fixture `service` and the method `make`.

    Attributes:
        crash_by: ``exception`` (default): a crash is a `BaseException` in this process. ``sigkill``: a forked
            process is killed; for services outside of this process.
        short: Seconds for the time-outs of the policy that are waited for; more than one poll interval.
        patience: Seconds to wait for the service to do what it was told.
    """

    # --- an undisturbed run ---

    def test_an_undisturbed_run_starts_one_job(self, service: Any, tries: TaskTries) -> None:
        """One job, an outcome on record, and nothing alive in the end."""
        subject = self.make(service, "succeeds")
        tries.run(subject)
        assert len(service.jobs()) == 1
        assert self._live(service) == []
        assert tries.record(subject)["phase"] == "succeeded"

    def test_ids_come_back_as_they_were(self, service: Any, tries: TaskTries) -> None:
        """An id passes through JSON and through the parent's key, whose shape may tell less than the id."""
        external_id = self._running(tries, service)
        subject, (job,) = self.make(service, "runs"), service.jobs()
        assert json.loads(json.dumps(job.external_id)) == external_id
        stored = subject.id_to_parent_value(external_id)
        back = subject.parent_value_to_id(stored)
        assert external_id == ({**external_id, **back} if isinstance(back, dict) else back)
        assert subject.id_to_parent_value(back) == stored

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
        assert dict(tries.xcoms) == dict(pushed)
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
        self._goes_well(tries, subject)
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
        """The job of before the clear is gone by the time that the next one is submitted."""
        if not self._can(service).cancel:
            pytest.skip("this operator has no cancel_job")
        self._running(tries, service)
        tries.clear()
        subject, live_then = self.make(service, "succeeds"), []
        submit = subject.submit_job

        def submit_job(context: Any) -> Any:
            live_then.append(self._live(service))
            return submit(context)

        with mock.patch.object(subject, "submit_job", submit_job):
            tries.run(subject)
        assert live_then == [[]], "what ran before the clear was alive at the next submit"
        assert len(service.jobs()) == 2

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

    @pytest.mark.parametrize(
        ("last", "on_final_failure", "kept"),
        [(False, "cancel", True), (True, "cancel", False), (True, "keep", True)],
        ids=["tries are left", "the last try", "the last try, on_final_failure=keep"],
    )
    def test_a_failing_try_leaves_no_job_that_nobody_will_watch(
        self, service: Any, tries: TaskTries, last: bool, on_final_failure: str, kept: bool
    ) -> None:
        """A try fails while its job runs: kept for the next try; after the last one as the policy says."""
        if not self._can(service).cancel:
            pytest.skip("this operator has no cancel_job")
        job = self._running(tries, service)
        number = tries.max_tries + 1 if last else None
        with at_point("mid_poll", _break), pytest.raises(_Broken):
            tries.run(self.make(service, "runs"), {"on_final_failure": on_final_failure}, try_number=number)
        if kept:
            assert self._live(service) == [job]
        else:
            self._until("the job is cancelled", lambda: not self._live(service))
        if type(service).cancels is not ServiceUnderTest.cancels:
            assert service.cancels() == (not kept)

    # --- what the service may say ---

    def test_a_missing_job_is_not_started_again_by_itself(self, service: Any, tries: TaskTries) -> None:
        """The service no longer knows the job: `on_missing` decides, and its default is to fail."""
        need(service, "forget")
        service.forget(self._running(tries, service))
        with self._raises(JobMissing):
            tries.run(self.make(service, "succeeds"), {"on_missing": "fail"})
        assert len(service.jobs()) == 1
        tries.run(self.make(service, "succeeds"), {"on_missing": "resubmit"})
        assert len(service.jobs()) == 2

    def test_a_stopping_job_is_waited_for_and_not_for_ever(self, service: Any, tries: TaskTries) -> None:
        """The wait ends by `stopping_timeout`, and nothing was submitted."""
        need(service, "stop_slowly")
        service.stop_slowly(self._running(tries, service))
        subject = self.make(service, "runs")
        with self._bounded(subject), self._raises(JobNotSettled):
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
            with self._bounded(subject, status), self._raises(JobNotSettled):
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
        """Without the permission to look nobody knows whether there is a job, so none is started.

        Once it is given, the job that was there all along is found.
        """
        if not self._can(service).find_by_token:
            pytest.skip("this operator has no find_job_by_token")
        self._crash(tries, service, "runs", "after_accept")
        service.release()
        fail(service, "find", "denied", 1)
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the service's client raises
            tries.run(self.make(service, "runs"))
        assert tries.record(self.make(service, "runs"))["phase"] == "intent", "the refusal was not heard"
        assert len(service.jobs()) == 1
        self._goes_well(tries, self.make(service, "runs"))
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
        with self._raises(JobAmbiguous):
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

        with mock.patch.object(subject, "submit_job", submit_job), self._raises(JobSuperseded):
            tries.run(subject)
        record = tries.record(subject)
        assert (record["owner"]["try_number"], record["phase"]) == (2, "succeeded")
        jobs = service.jobs()
        assert record["external_id"] == jobs[0].external_id
        # The window that a grade names is no wider than the one late submit.
        assert len(jobs) <= (1 if self._can(service).submit_window is SubmitWindow.CLOSED else 2)

    @pytest.mark.parametrize("cleared", [False, True], ids=["by a retry", "by a clear"])
    def test_a_job_that_comes_too_late_is_taken_back(
        self, service: Any, tries: TaskTries, cleared: bool
    ) -> None:
        """A try that was overtaken in its submit starts a job after the next one's: just that is ended."""
        subject, can = self.make(service, "runs"), self._can(service)
        if type(subject).was_job_created is AdapterDefaults.was_job_created:
            pytest.skip("this operator has no was_job_created, so a late job can't be known for one")
        if not can.cancel:
            pytest.skip("this operator has no cancel_job")
        submit = subject.submit_job

        def submit_job(context: Any) -> Any:
            if cleared:
                tries.clear()
            self._running(tries, service)
            return submit(context)

        with mock.patch.object(subject, "submit_job", submit_job), self._raises(JobSuperseded):
            tries.run(subject)
        wanted, *late = (job.external_id for job in service.jobs())
        # Without a clear both have the same token, by which a service that closes the window starts one job.
        assert len(late) == (cleared or can.submit_window is not SubmitWindow.CLOSED)
        self._until("the late job is gone", lambda: all(job not in self._live(service) for job in late))
        assert self._live(service) == [wanted]
        assert tries.record(subject)["external_id"] == wanted
        service.release()
        tries.run(self.make(service, "runs"))
        assert len(service.jobs()) == 1 + len(late)


def _break() -> None:
    raise _Broken
