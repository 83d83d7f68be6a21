# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""When the id of a BigQuery job is taken: every state, first and later tries, `force_rerun` on and off.

The table is the one of docs/operators/bigquery.md. The states are those of real jobs at the emulator where it
can have them; PENDING and a quota error are shown by its layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.errors import JobMissing, ResumableJobError, ResumableJobFatal
from airflow_resumable.operators._bigquery_plan import Plan
from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator, until
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.http_faults import HttpFaultProxy
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests.bigquery_service import FAILS, SUCCEEDS, BigQueryService, serving

LIVE = ("PENDING", "RUNNING")
ENDED = ("DONE ok", "DONE error", "DONE quota")
FORCE_RERUN = pytest.mark.parametrize("force_rerun", [True, False], ids=["force_rerun", "not force_rerun"])
TRY = pytest.mark.parametrize("later", [False, True], ids=["A1", "A2"])
TOKEN_LABEL = "airflow-resumable-token"


@pytest.fixture
def service(
    bigquery: BigQueryEmulator,
    bigquery_proxy: HttpFaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[BigQueryService]:
    """Lead Google's client to the proxy."""
    yield from serving(bigquery, bigquery_proxy, tmp_path, monkeypatch)


@pytest.fixture
def tries(tmp_path: Path) -> TaskTries:
    """One task instance."""
    return TaskTries(FileTaskStateStore(tmp_path / "store"))


class Taken:
    """Puts a job into a state under an id that a task is about to use.

    Args:
        service: The emulator.
        state: The state.
    """

    def __init__(self, service: BigQueryService, state: str) -> None:
        self._service = service
        self._state = state
        self.job_id = ""

    def put(self, job_id: str, **configuration: Any) -> None:
        """Start the job."""
        emulator, self.job_id = self._service.emulator, job_id
        sql = {"DONE ok": SUCCEEDS, "DONE error": FAILS}.get(self._state, until(self._service.gate))
        emulator.insert(job_id, sql, **configuration)
        if self._state == "PENDING":
            emulator.show(job_id, "PENDING")
        elif self._state == "DONE quota":
            emulator.show(job_id, "DONE", "quotaExceeded")
        elif self._state in ENDED:
            emulator.request("GET", f"projects/{emulator.project}/queries/{job_id}", location="US")

    def end_well(self) -> None:
        """Let a live job succeed."""
        if self._state == "PENDING":
            self._service.emulator.show(self.job_id, "DONE")
        self._service.release()


def own_id(tries: TaskTries, subject: Any) -> tuple[str, str]:
    """Return the id and the token that are in a task's intent."""
    record = tries.record(subject)
    plan = Plan.of(record["before"])
    assert plan is not None
    return (plan.prefix if plan.exact else plan.named(record["token"])), record["token"]


def providers_id(tries: TaskTries, subject: Any) -> str:
    """Return the id that the provider's own operator gives, with ``force_rerun=False``."""
    plan = Plan.of(subject.snapshot_before_submit(tries.context(subject, try_number=0)))
    assert plan is not None
    assert plan.exact
    return plan.prefix


def started_by_us(service: BigQueryService, taken: Taken) -> list[str]:
    return [call.job_id for call in service.inserted() if call.job_id != taken.job_id]


class TestOwn:
    """The job that has the id is the task's own: an earlier submit got through and nobody heard of it."""

    def _run(
        self, service: BigQueryService, tries: TaskTries, state: str, force_rerun: bool, later: bool
    ) -> Any:
        taken = Taken(service, state)

        def subject() -> Any:
            return service.operator("succeeds", force_rerun=force_rerun)

        def put() -> None:
            if not taken.job_id:
                job_id, token = own_id(tries, subject())
                taken.put(job_id, labels={TOKEN_LABEL: token})

        if later:
            assert tries.crash(subject, "after_intent")
            put()
        with at_point("after_intent", put), at_point("mid_poll", taken.end_well):
            try:
                return taken, tries.run(subject())
            except AirflowException as error:
                return taken, error

    @TRY
    @FORCE_RERUN
    @pytest.mark.parametrize("state", LIVE)
    def test_one_that_is_alive_is_watched(
        self, service: BigQueryService, tries: TaskTries, state: str, force_rerun: bool, later: bool
    ) -> None:
        """Whatever `reattach_states` says."""
        taken, result = self._run(service, tries, state, force_rerun, later)
        assert result == taken.job_id
        assert started_by_us(service, taken) == []
        assert service.cancels() == 0

    @TRY
    @FORCE_RERUN
    def test_one_that_has_succeeded_is_the_result(
        self, service: BigQueryService, tries: TaskTries, force_rerun: bool, later: bool
    ) -> None:
        """Nothing is left to do."""
        taken, result = self._run(service, tries, "DONE ok", force_rerun, later)
        assert result == taken.job_id
        assert started_by_us(service, taken) == []

    @TRY
    @FORCE_RERUN
    @pytest.mark.parametrize("state", ["DONE error", "DONE quota"])
    def test_one_that_has_failed_is_followed_by_another(
        self, service: BigQueryService, tries: TaskTries, state: str, force_rerun: bool, later: bool
    ) -> None:
        """A1's own failure fails A1; what failed before A2 is the generation before A2's."""
        taken, result = self._run(service, tries, state, force_rerun, later)
        if not later:
            assert isinstance(result, AirflowException)
            assert started_by_us(service, taken) == []
            result = tries.run(service.operator("succeeds", force_rerun=force_rerun))
        assert started_by_us(service, taken) == [result]
        assert tries.record(service.operator("succeeds"))["generation"] == 2

    @TRY
    @FORCE_RERUN
    def test_none_is_submitted(
        self, service: BigQueryService, tries: TaskTries, force_rerun: bool, later: bool
    ) -> None:
        """A2 finds the intent only, and sends the same id."""
        subject = service.operator("succeeds", force_rerun=force_rerun)
        if later:
            assert tries.crash(lambda: service.operator("succeeds", force_rerun=force_rerun), "after_intent")
        result = tries.run(subject)
        assert [call.job_id for call in service.inserted()] == [result] == [own_id(tries, subject)[0]]

    @FORCE_RERUN
    def test_one_on_record_that_is_gone_is_a_policy(
        self, service: BigQueryService, tries: TaskTries, force_rerun: bool
    ) -> None:
        """A2 knows that there was one: by default it fails and starts nothing."""
        assert tries.crash(lambda: service.operator("runs", force_rerun=force_rerun), "after_id")
        service.forget(service.inserted()[0].job_id)
        with pytest.raises(JobMissing):
            tries.run(service.operator("runs", force_rerun=force_rerun))
        assert len(service.inserted()) == 1


class TestAnothers:
    """The job that has the id is another task's, which only ``force_rerun=False`` can meet."""

    def _run(
        self,
        service: BigQueryService,
        tries: TaskTries,
        state: str,
        later: bool,
        reattach: set[str],
        **more: Any,
    ) -> tuple[Taken, Any]:
        taken = Taken(service, state)

        def subject() -> Any:
            return service.operator("succeeds", force_rerun=False, reattach_states=reattach)

        taken.put(providers_id(tries, subject()))
        if later:
            assert tries.crash(subject, "after_intent")
        with at_point("mid_poll", taken.end_well):
            try:
                return taken, tries.run(subject(), **more)
            except AirflowException as error:
                return taken, error

    @TRY
    @pytest.mark.parametrize("state", LIVE)
    def test_one_in_a_state_to_reattach_to_is_watched(
        self, service: BigQueryService, tries: TaskTries, state: str, later: bool
    ) -> None:
        """As the task's own."""
        taken, result = self._run(service, tries, state, later, {state})
        assert result == taken.job_id
        assert started_by_us(service, taken) == []

    @TRY
    @pytest.mark.parametrize("state", LIVE)
    def test_one_in_another_state_fails_the_try(
        self, service: BigQueryService, tries: TaskTries, state: str, later: bool
    ) -> None:
        """With the remedy in the message; the next try may find it otherwise."""
        taken, result = self._run(service, tries, state, later, set())
        assert isinstance(result, ResumableJobError)
        assert not isinstance(result, ResumableJobFatal)
        assert f"add {state!r} to reattach_states" in str(result)
        assert started_by_us(service, taken) == []

    def test_one_that_is_anothers_is_never_cancelled(
        self, service: BigQueryService, tries: TaskTries
    ) -> None:
        """Also when the task fails for good."""
        _, result = self._run(service, tries, "RUNNING", False, set(), try_number=tries.max_tries + 1)
        assert isinstance(result, ResumableJobError)
        assert service.cancels() == 0

    @TRY
    @pytest.mark.parametrize("state", ["DONE ok", "DONE error"])
    def test_one_that_has_ended_fails_the_task(
        self, service: BigQueryService, tries: TaskTries, state: str, later: bool
    ) -> None:
        """DONE among the `reattach_states` changes nothing, as with the provider."""
        taken, result = self._run(service, tries, state, later, {"DONE"})
        assert isinstance(result, ResumableJobFatal)
        assert "Set force_rerun=True" in str(result)
        assert started_by_us(service, taken) == []

    @TRY
    def test_one_that_ended_for_want_of_quota_is_run_by_a_later_try(
        self, service: BigQueryService, tries: TaskTries, later: bool
    ) -> None:
        """Under an id of its own; the first try fails, as the provider's does."""
        taken, result = self._run(service, tries, "DONE quota", later, set())
        if not later:
            assert isinstance(result, ResumableJobError)
            assert not isinstance(result, ResumableJobFatal)
            assert started_by_us(service, taken) == []
            result = tries.run(service.operator("succeeds", force_rerun=False))
        assert started_by_us(service, taken) == [result]
        assert str(result).startswith(f"{taken.job_id}_r")
