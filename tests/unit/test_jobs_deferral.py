# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Deferred tasks: the worker hands the job over, the trigger watches it, the worker takes it back."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.bases.operator import TriggerFailureReason
from airflow.sdk.exceptions import TaskDeferralError, TaskDeferralTimeout, TaskDeferred

from airflow_resumable.integration import compat
from airflow_resumable.jobs import trigger
from airflow_resumable.jobs.deferral import RESUME_METHOD
from airflow_resumable.jobs.errors import ResumableJobFatal
from airflow_resumable.jobs.trigger import JobTrigger
from airflow_resumable.sdk import (
    JobFailed,
    JobMissing,
    JobNotSettled,
    ResumableJobMixin,
    StatusBudgetExhausted,
    StoreUnavailable,
)
from airflow_resumable.testing.jobservice.client import JobServiceClient
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from tests.attempts import FAIL, TaskInstance, requests, started, until_released


@dataclass
class Deferred:
    """One deferred try: what Airflow keeps of it, as JSON, and the ways in which it goes on."""

    instance: TaskInstance
    try_number: int
    path: str
    arguments: str
    kwargs: str
    timeout: timedelta | None

    @property
    def trigger(self) -> JobTrigger:
        """The trigger as a triggerer makes it: from what was serialized."""
        assert self.path == "airflow_resumable.jobs.trigger.JobTrigger"
        return JobTrigger(**json.loads(self.arguments))

    def event(self) -> dict[str, Any]:
        """Run the trigger to its end and return its event's payload."""

        async def only_event() -> Any:
            trigger = self.trigger
            events = [event async for event in trigger.run()]
            await trigger.cleanup()
            (event,) = events
            return event.payload

        return dict(asyncio.run(only_event()))

    def resume(self, event: Any, **kwargs: Any) -> Any:
        """Go on in a fresh process's operator, as Airflow does after an event."""
        return self._resume(RESUME_METHOD, {**json.loads(self.kwargs), "event": event, **kwargs})

    def fail(self, why: TriggerFailureReason) -> Any:
        """Go on as Airflow does after a trigger that failed or took too long."""
        return self._resume("__fail__", {"error": why, "traceback": None})

    def _resume(self, method: str, kwargs: dict[str, Any]) -> Any:
        operator = self.instance.operator(deferrable=True)
        return operator.resume_execution(method, kwargs, self.instance.context(operator, self.try_number))


@pytest.fixture
def gate(instance: TaskInstance, tmp_path: Path) -> Path:
    """The file whose coming ends the job; each test's job waits for it."""
    instance.command = until_released(tmp_path / "gate")
    instance.ti_id = uuid.uuid4()
    return tmp_path / "gate"


def defer(instance: TaskInstance, try_number: int = 1, **arguments: Any) -> Deferred:
    """Make an attempt that hands its job over."""
    with pytest.raises(TaskDeferred) as caught:
        instance.attempt(try_number, deferrable=True, **arguments)
    path, serialized = caught.value.trigger.serialize()
    kwargs = caught.value.kwargs or {}
    assert caught.value.method_name == RESUME_METHOD
    return Deferred(
        instance, try_number, path, json.dumps(serialized), json.dumps(kwargs), caught.value.timeout
    )


def test_a_deferred_job_is_on_record_before_the_worker_lets_go(instance: TaskInstance, gate: Path) -> None:
    """Its id is stored, and neither trigger nor arguments need more than JSON."""
    deferred = defer(instance)
    assert instance.record["phase"] == "submitted"
    assert json.loads(deferred.kwargs) == {
        "external_id": instance.record["external_id"],
        "generation": 1,
        "submitted": True,
    }


def test_the_reference_adapter_stores_no_command(instance: TaskInstance, gate: Path) -> None:
    """What is kept in the metadata database is where to ask, and nothing of what the job runs."""
    instance.command = ["/bin/sh", "-c", "echo of-no-concern-to-a-triggerer"]
    deferred = defer(instance)
    assert deferred.trigger.arguments == {"service_url": instance.service_url, "poll_interval": 0.02}
    assert "of-no-concern" not in deferred.arguments + deferred.kwargs
    assert deferred.event()["status"] == "SUCCEEDED"


def test_a_deferred_job_ends_with_the_result_of_an_undisturbed_one(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """One submit, no cancel, the same return value, the outcome on record."""
    deferred = defer(instance)
    gate.touch()
    event = deferred.event()
    assert (event["generation"], event["status"]) == (1, "SUCCEEDED")
    assert deferred.resume(event) == {"rows": 7}
    assert (len(requests(service, "submit")), requests(service, "cancel")) == (1, [])
    assert instance.record["phase"] == "succeeded"


def test_a_triggerer_that_restarts_neither_cancels_nor_loses_the_job(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """Case 32: the trigger's coroutine is cancelled, and another one made from the same arguments."""
    deferred = defer(instance)

    async def cancelled_in_mid_run() -> None:
        trigger = deferred.trigger
        before = len(requests(service, "status"))
        task = asyncio.ensure_future(anext(trigger.run()))
        while len(requests(service, "status")) == before:
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await trigger.cleanup()

    asyncio.run(cancelled_in_mid_run())
    assert requests(service, "cancel") == []
    gate.touch()
    assert deferred.resume(deferred.event()) == {"rows": 7}
    assert len(started(service)) == 1


def test_an_event_of_an_older_generation_is_refused(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """It says nothing about the job on record, so that one is handed over again."""
    deferred = defer(instance)
    with pytest.raises(TaskDeferred) as again:
        deferred.resume({"generation": 0, "status": "FAILED"}, generation=0, external_id="older")
    assert again.value.kwargs is not None
    assert again.value.kwargs["external_id"] == instance.record["external_id"]
    assert again.value.kwargs["generation"] == 1
    assert len(started(service)) == 1


def test_an_event_that_comes_too_early_defers_again(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """Only the service's word counts, not the event's."""
    deferred = defer(instance)
    with pytest.raises(TaskDeferred):
        deferred.resume({"generation": 1, "status": "SUCCEEDED", "seen_alive": True})
    assert len(started(service)) == 1


def test_a_deferred_job_that_failed_ends_the_try_and_the_next_one_starts_another(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """As in a worker: the failure is this try's, the next generation the next try's."""
    instance.command = FAIL
    deferred = defer(instance)
    with pytest.raises(JobFailed, match="ended as 'FAILED'"):
        deferred.resume(deferred.event())
    assert (len(started(service)), instance.record["phase"]) == (1, "failed")
    instance.ti_id = uuid.uuid4()
    defer(instance, try_number=2)
    assert len(started(service)) == 2


def test_a_job_that_the_service_lost_while_deferred_is_missing(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """By on_missing=fail nothing is submitted."""
    deferred = defer(instance)
    service.client().forget(instance.record["external_id"])
    event = deferred.event()
    with pytest.raises(JobMissing):
        deferred.resume(event)
    assert len(started(service)) == 1


def test_a_failed_trigger_hands_the_job_back_to_the_worker(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """A triggerer without this package costs a worker slot, not the job."""
    deferred = defer(instance)
    gate.touch()
    assert deferred.fail(TriggerFailureReason.TRIGGER_FAILURE) == {"rows": 7}
    assert (len(started(service)), requests(service, "cancel")) == (1, [])


@pytest.mark.parametrize(("try_number", "cancels"), [(1, 0), (3, 1)])
def test_a_timeout_while_deferred_keeps_the_job_but_on_the_last_try(
    service: JobService, instance: TaskInstance, gate: Path, try_number: int, cancels: int
) -> None:
    """`on_timeout` and `on_final_failure` hold for a deferred task too."""
    deferred = defer(instance, try_number)
    with pytest.raises(TaskDeferralTimeout):
        deferred.fail(TriggerFailureReason.TRIGGER_TIMEOUT)
    assert len(requests(service, "cancel")) == cancels
    assert len(started(service)) == 1


def test_the_parts_of_a_deferred_try_share_one_execution_timeout(instance: TaskInstance, gate: Path) -> None:
    """What has passed before the deferral is taken off."""
    operator = instance.operator(deferrable=True, execution_timeout=timedelta(hours=1))
    context = instance.context(operator, 1)
    context["ti"].start_date = datetime.now(UTC) - timedelta(minutes=40)
    with pytest.raises(TaskDeferred) as caught:
        operator.execute(context)
    assert caught.value.timeout is not None
    assert timedelta(minutes=19) < caught.value.timeout <= timedelta(minutes=20)


def test_a_used_up_budget_in_the_trigger_fails_the_try_and_leaves_the_job(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """The same budget as in a worker, even on the last try."""
    instance.policy = {"status_error_budget": 0.2}
    deferred = defer(instance, try_number=3)
    service.client().add_fault("status", "unavailable", times=0)
    event = deferred.event()
    service.client().clear_faults()
    with pytest.raises(StatusBudgetExhausted, match="no good answer") as caught:
        deferred.resume(event)
    assert caught.value.external_id == instance.record["external_id"]
    assert requests(service, "cancel") == []


def test_bad_answers_within_the_budget_dont_end_the_trigger(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """Three 503s, then the end of the job."""
    deferred = defer(instance)
    service.client().add_fault("status", "unavailable", times=3)
    gate.touch()
    assert deferred.event()["status"] == "SUCCEEDED"


def test_a_job_that_never_stops_stopping_ends_the_trigger(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """`stopping_timeout` holds in the triggerer too; nothing is submitted."""
    instance.policy = {"stopping_timeout": 0.2}
    deferred = defer(instance)
    service.client().add_fault("cancel", "slow_stop", seconds=60)
    service.client().cancel(instance.record["external_id"])
    event = deferred.event()
    with pytest.raises(JobNotSettled, match="STOPPING"):
        deferred.resume(event)
    assert len(started(service)) == 1


def test_a_record_deleted_while_deferred_is_made_again(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """The deferred task knows its job by what Airflow kept for it, so nothing is submitted."""
    deferred = defer(instance)
    instance.store.clear()
    gate.touch()
    assert deferred.resume(deferred.event()) == {"rows": 7}
    assert len(started(service)) == 1


def test_a_store_that_is_down_at_the_resume_never_runs_the_job_again(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """Not even with on_store_down=submit: the job exists."""
    instance.policy = {"on_store_down": "submit"}
    deferred = defer(instance)

    class Down:
        def get(self, key: str, default: Any = None) -> Any:
            raise BrokenPipeError("no supervisor")

        set = delete = get

    operator = instance.operator(deferrable=True)
    context = instance.context(operator, 1, Down())
    with pytest.raises(StoreUnavailable):
        operator.resume_execution(RESUME_METHOD, {**json.loads(deferred.kwargs), "event": {}}, context)
    assert len(started(service)) == 1


def test_a_retry_after_a_crash_in_the_resumed_part_reconnects(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """The next try finds the job on record and defers again without a submit."""
    defer(instance)
    instance.ti_id = uuid.uuid4()
    second = defer(instance, try_number=2)
    gate.touch()
    assert second.resume(second.event()) == {"rows": 7}
    assert len(started(service)) == 1


def test_an_adapter_that_the_triggerer_cant_make_is_refused(instance: TaskInstance, gate: Path) -> None:
    """Before anything is started: without the method, with its name."""

    class NotDeferrable(LocalJobOperator):
        get_watch_arguments: Any = ResumableJobMixin.get_watch_arguments

    instance.operator_class = NotDeferrable
    with pytest.raises(ResumableJobFatal, match="get_watch_arguments"):
        instance.attempt(deferrable=True)


def test_a_class_of_a_dag_file_is_refused_with_the_remedy(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """The triggerer parses no Dag files, so it could not find the class."""

    class Local(LocalJobOperator):
        pass

    instance.operator_class = Local
    with pytest.raises(ResumableJobFatal, match="move it to a module"):
        instance.attempt(deferrable=True)
    assert started(service) == []


def test_arguments_that_are_no_json_are_refused_before_anything_is_started(
    service: JobService, instance: TaskInstance, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow would find out once the job runs, outside of our reach."""
    monkeypatch.setattr(LocalJobOperator, "get_watch_arguments", lambda self, context: {"client": object()})
    with pytest.raises(ResumableJobFatal, match="isn't JSON"):
        instance.attempt(deferrable=True)
    assert started(service) == []


def test_an_operator_that_can_not_be_made_anew_is_refused_before_anything_is_started(
    service: JobService, instance: TaskInstance, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The triggerer would find out once the job runs; the message names the remedy."""
    monkeypatch.setattr(
        LocalJobOperator, "for_watching", classmethod(lambda cls, arguments: cls(**arguments))
    )
    with pytest.raises(ResumableJobFatal, match="define for_watching"):
        instance.attempt(deferrable=True)
    assert started(service) == []


def test_a_service_that_loses_each_job_is_not_sent_one_after_another(
    service: JobService, instance: TaskInstance, gate: Path
) -> None:
    """on_missing=resubmit starts one job a try, deferred or not."""
    instance.policy = {"on_missing": "resubmit"}
    deferred = defer(instance)
    service.client().forget(instance.record["external_id"])
    with pytest.raises(JobFailed, match="lost job"):
        deferred.resume(deferred.event())
    assert len(started(service)) == 1


def test_a_job_that_no_trigger_has_seen_alive_was_not_deleted_while_running(
    service: JobService, instance: TaskInstance, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trigger failed before its first look, so on_missing decides."""
    monkeypatch.setattr(LocalJobOperator, "missing_while_running_is_failure", True)
    deferred = defer(instance)
    service.client().forget(instance.record["external_id"])
    with pytest.raises(JobMissing):
        deferred.fail(TriggerFailureReason.TRIGGER_FAILURE)


def test_a_task_that_is_switched_off_while_deferred_watches_its_job_to_the_end(
    service: JobService, instance: TaskInstance, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job exists: it is neither lost nor started again."""
    deferred = defer(instance)
    monkeypatch.setenv("AIRFLOW__RESUMABLE__ENABLED", "False")
    gate.touch()
    assert deferred.resume(deferred.event()) == {"rows": 7}
    assert len(started(service)) == 1


@pytest.mark.parametrize("event", ["done", ["x"], 5, True, None, {}, {"error": 5}, {"error": "JobFailed"}])
@pytest.mark.parametrize("try_number", [1, 3])
def test_an_odd_event_is_no_reason_to_end_the_job(
    service: JobService, instance: TaskInstance, gate: Path, event: Any, try_number: int
) -> None:
    """Only what the service says counts: the job is watched on, here or by the next trigger."""
    deferred = defer(instance, try_number)
    looks: list[str] = []

    class Ends(LocalJobOperator):
        def get_job_status(self, external_id: Any, context: Any) -> str:
            looks.append(super().get_job_status(external_id, context))
            if len(looks) > 1:
                gate.touch()
            return looks[-1]

        def get_watch_arguments(self, context: Any) -> Any:
            gate.touch()
            return super().get_watch_arguments(context)

    Ends.__module__, Ends.__qualname__ = "tests.unit.test_jobs_deferral", "Ends"
    globals()["Ends"] = Ends
    instance.operator_class = Ends
    try:
        assert deferred.resume(event) == {"rows": 7}
    except TaskDeferred:
        assert looks == ["RUNNING"]
    assert (len(started(service)), requests(service, "cancel")) == (1, [])


@pytest.mark.parametrize("odd", [StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_adapter_that_raises_oddly_fails_its_trigger_only(
    service: JobService, instance: TaskInstance, gate: Path, odd: type[BaseException], monkeypatch: Any
) -> None:
    """Not the whole triggerer with every trigger in it; the worker takes over then."""
    deferred = defer(instance)

    def raises(*_: Any) -> str:
        raise odd

    with monkeypatch.context() as patched:
        patched.setattr(LocalJobOperator, "get_job_status", raises)
        with pytest.raises(RuntimeError, match=odd.__name__):
            deferred.event()
    gate.touch()
    assert deferred.fail(TriggerFailureReason.TRIGGER_FAILURE) == {"rows": 7}
    assert len(started(service)) == 1


@pytest.mark.parametrize("point", ["after_accept", "between_key_writes", "after_id", "before_defer"])
def test_a_users_stop_inside_the_submit_is_answered_before_the_task_is_deferred(
    service: JobService, instance: TaskInstance, gate: Path, point: str
) -> None:
    """It is put off to the end of the submit; a deferred task has no process that could answer it."""
    instance.server_state, instance.operator_class = "failed", DeferredJobOperator
    ended, text = instance.attempt_stopped(point, hold=True)
    assert (ended, "user" in text) == ("JobKept", True), text
    assert [entry["job"] for entry in requests(service, "cancel")] == ["job-000001"]


class DeferredJobOperator(LocalJobOperator):
    """Deferrable without being asked."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{**arguments, "deferrable": True})


def test_a_job_without_an_id_is_watched_by_the_worker(
    service: JobService, instance: TaskInstance, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could be handed over, and a resumed task would submit once more."""
    submit = LocalJobOperator.submit_job

    def nameless(self: Any, context: Any) -> None:
        submit(self, context)

    monkeypatch.setattr(LocalJobOperator, "submit_job", nameless)
    monkeypatch.setattr(LocalJobOperator, "get_job_status", lambda *_: "SUCCEEDED")
    monkeypatch.setattr(LocalJobOperator, "get_job_result", lambda *_: None)
    assert instance.attempt(deferrable=True) is None
    assert len(started(service)) == 1


@pytest.mark.parametrize(("try_number", "cancels"), [(1, 0), (3, 1)])
def test_a_dag_edited_to_deferrable_false_meanwhile_answers_its_trigger_all_the_same(
    service: JobService, instance: TaskInstance, gate: Path, try_number: int, cancels: int
) -> None:
    """A timeout on the last try cancels, whatever the argument says now."""
    defer(instance, try_number)
    operator = instance.operator()
    context = instance.context(operator, try_number)
    with pytest.raises(TaskDeferralTimeout):
        operator.resume_execution("__fail__", {"error": TriggerFailureReason.TRIGGER_TIMEOUT}, context)
    assert len(requests(service, "cancel")) == cancels


def test_arguments_that_airflow_reserves_are_refused_before_anything_is_started(
    service: JobService, instance: TaskInstance, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are JSON, but Airflow's serializer takes them for its own."""
    reserved = {"spec": {"__classname__": "x", "__version__": 1}}
    monkeypatch.setattr(LocalJobOperator, "get_watch_arguments", lambda self, context: reserved)
    with pytest.raises(ResumableJobFatal, match="Airflow can store"):
        instance.attempt(deferrable=True)
    assert started(service) == []


@pytest.mark.parametrize(
    ("method", "odd"),
    [
        ("for_watching", StopIteration),
        ("for_watching", SystemExit),
        ("restore_job", StopIteration),
        ("restore_job", SystemExit),
        ("cancel_job", SystemExit),
    ],
)
def test_whatever_of_an_adapter_raises_oddly_ends_no_triggerer(
    service: JobService,
    instance: TaskInstance,
    gate: Path,
    odd: type[BaseException],
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Making the adapter and cancelling by it run in the triggerer's process too."""
    deferred = defer(instance)
    monkeypatch.setattr(trigger, "state_of", lambda scope: "failed")

    def raises(*_: Any) -> None:
        raise odd

    async def on_kill() -> None:
        one = deferred.trigger
        try:
            await one.on_kill()
        finally:
            await one.cleanup()

    monkeypatch.setattr(LocalJobOperator, method, raises)
    with pytest.raises(RuntimeError, match=odd.__name__):
        asyncio.run(on_kill())


def killed(deferred: Deferred, *, looks: int = 2) -> None:
    """Let a trigger look a few times, then remove it as Airflow does when its row is gone."""

    async def run() -> None:
        one = deferred.trigger
        service = deferred.instance.service_url
        with JobServiceClient(service) as client:
            before = len(client.log(verb="status"))
            task = asyncio.ensure_future(anext(one.run()))
            while len(client.log(verb="status")) < before + looks:
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await one.on_kill()
        await one.cleanup()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("version", "state", "policy", "installed", "cancels"),
    [
        ((3, 3), "failed", {}, False, 1),
        ((3, 3), "success", {}, False, 1),
        ((3, 3), "skipped", {}, False, 1),
        ((3, 3), "failed", {"on_user_stop": "keep"}, False, 0),
        ((3, 3), "deferred", {}, False, 0),
        ((3, 3), "running", {}, False, 0),
        ((3, 3), "none", {}, False, 0),
        ((3, 4), "running", {}, False, 1),
        ((3, 4), "none", {}, False, 1),
        ((3, 4), "deferred", {}, False, 1),
        ((3, 4), "running", {}, True, 0),
        ((3, 4), "running", {"on_clear": "reconnect"}, False, 0),
        ((3, 4), "up_for_retry", {}, False, 0),
    ],
)
def test_a_removed_trigger_cancels_by_the_servers_word(
    service: JobService,
    instance: TaskInstance,
    gate: Path,
    version: tuple[int, int],
    state: str,
    policy: dict[str, Any],
    installed: bool,
    cancels: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user's end cancels; a clear does where the next try can't find the job by itself."""
    if installed:
        monkeypatch.setenv("AIRFLOW__RESUMABLE__INSTALLATION_ID", "here")
    instance.policy = policy
    monkeypatch.setattr(compat, "AIRFLOW_VERSION", version, raising=False)
    monkeypatch.setattr(trigger, "state_of", lambda scope: state)
    killed(defer(instance))
    assert len(requests(service, "cancel")) == cancels


def test_a_trigger_that_was_paused_answers_no_clear(
    service: JobService, instance: TaskInstance, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another triggerer may have handed the job back to a worker meanwhile; here any pause is too long."""
    monkeypatch.setattr(compat, "AIRFLOW_VERSION", (3, 4), raising=False)
    monkeypatch.setattr(trigger, "state_of", lambda scope: "running")
    monkeypatch.setattr(trigger, "PAUSE_LIMIT", -10.0)
    killed(defer(instance))
    assert requests(service, "cancel") == []


def test_looks_that_hang_keep_no_users_stop_waiting(
    service: JobService, instance: TaskInstance, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have threads of their own, and those that stop a job have others."""
    deferred = defer(instance)
    monkeypatch.setattr(trigger, "_LOOKING_THREADS", 1)
    monkeypatch.setattr(trigger, "_looking", {})
    monkeypatch.setattr(trigger, "state_of", lambda scope: "failed")
    hangs = threading.Event()
    monkeypatch.setattr(LocalJobOperator, "get_job_status", lambda *_: hangs.wait() and "RUNNING")

    async def stopped_beside_a_hanging_one() -> None:
        hanging = asyncio.ensure_future(anext(deferred.trigger.run()))
        await asyncio.sleep(0)
        await deferred.trigger.on_kill()
        assert not hanging.done()
        hanging.cancel()
        hangs.set()

    asyncio.run(stopped_beside_a_hanging_one())
    assert len(requests(service, "cancel")) == 1


def test_the_way_to_the_server_is_tried_once_a_process(
    instance: TaskInstance, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand triggers of a restarted triggerer don't ask a thousand times."""
    asked: list[Any] = []
    monkeypatch.setattr(trigger, "_is_warm", False)
    monkeypatch.setattr(trigger, "state_of", asked.append)
    deferred = defer(instance)
    gate.touch()
    deferred.event()
    deferred.event()
    assert len(asked) == 1


def test_an_adapter_that_can_not_be_deferred_any_more_answers_for_its_job(
    service: JobService, instance: TaskInstance, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edited while deferred, on the last try: the job isn't left to nobody."""
    deferred = defer(instance, try_number=3)
    monkeypatch.setattr(LocalJobOperator, "get_watch_arguments", lambda self, context: {"client": object()})
    with pytest.raises(Exception, match="object"):
        deferred.resume(None)
    assert len(requests(service, "cancel")) == 1


def test_a_trigger_error_that_is_not_ours_stays_airflows(instance: TaskInstance, gate: Path) -> None:
    """Without ``deferrable`` nothing was deferred by us."""
    operator = instance.operator()
    with pytest.raises(TaskDeferralError):
        operator.resume_execution(
            "__fail__", {"error": TriggerFailureReason.TRIGGER_FAILURE}, instance.context(operator, 1)
        )
