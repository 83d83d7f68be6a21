# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A real process gets a real SIGTERM: whose stop it was decides what becomes of the job."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout

from airflow_resumable.jobs.kill import KillReason, action_for, reason_for
from airflow_resumable.jobs.policies import ResumePolicy
from airflow_resumable.sdk import JobKept
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from airflow_resumable.testing.task_tries import at_point
from tests.attempts import TaskInstance, requests, started, until_released


def test_an_evicted_worker_keeps_its_job_and_the_next_try_reconnects(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Case 23: SIGTERM while the server says running; the attempt ends by an exit that Airflow retries."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    ended, text = instance.attempt_stopped("mid_poll")
    assert ended == "JobKept"
    assert "infrastructure" in text
    assert requests(service, "cancel") == []
    gate.touch()
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1


def test_a_server_that_cant_be_asked_means_keep(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """No answer is no reason to kill a job."""
    instance.command, instance.server_state = until_released(tmp_path / "never"), "unreachable"
    ended, text = instance.attempt_stopped("mid_poll")
    assert ended == "JobKept"
    assert "infrastructure" in text
    assert requests(service, "cancel") == []


@pytest.mark.parametrize("state", ["failed", "success", "skipped", "removed", "restarting"])
def test_a_users_stop_cancels_the_job_once(
    service: JobService, instance: TaskInstance, tmp_path: Path, state: str
) -> None:
    """Case 24: marked failed, success, skipped, or cleared while running."""
    instance.command, instance.server_state = until_released(tmp_path / "never"), state
    ended, text = instance.attempt_stopped("mid_poll", signals=2)
    assert ended == "JobKept"
    assert "was cancelled" in text
    (cancel,) = requests(service, "cancel")
    assert cancel["code"] == 202


def test_a_stop_in_mid_poll_never_ends_as_success(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Case 25: the unwinding passes through tenacity and through the poll loop."""
    instance.command = until_released(tmp_path / "never")
    service.client().add_fault("status", "unavailable", times=0, after=1)
    ended, _ = instance.attempt_stopped("mid_poll")
    assert ended == "JobKept"
    assert instance.record["phase"] == "submitted"


def test_a_stop_inside_a_submit_waits_for_the_id(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The answer comes half a second after the signal; the id is on record when the attempt ends."""
    instance.command = until_released(tmp_path / "never")
    service.client().add_fault("submit", "slow_reply", seconds=0.5)
    ended, _ = instance.attempt_stopped("after_intent", when=lambda: service.wait_for_request("submit"))
    assert ended == "JobKept"
    assert instance.record["external_id"] == started(service)[0]["job"]
    assert requests(service, "cancel") == []


def test_a_stop_inside_a_submit_that_never_answers_ends_with_the_intent(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """After two seconds the attempt ends; the next one finds the job by its token."""
    gate = tmp_path / "gate"
    instance.command = until_released(gate)
    hold = service.client().add_fault("submit", "hold")
    ended, _ = instance.attempt_stopped("after_intent", when=lambda: service.wait_for_request("submit"))
    assert ended == "JobKept"
    assert instance.record["external_id"] is None
    service.client().delete_fault(hold)
    gate.touch()
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1


def test_the_last_trys_eviction_cancels_the_job(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Nobody would ever watch it again, so `on_final_failure` decides: cancel."""
    instance.command = until_released(tmp_path / "never")
    assert "was cancelled" in instance.attempt_stopped("mid_poll", try_number=3)[1]
    assert len(requests(service, "cancel")) == 1


def test_a_refused_cancel_is_said_and_the_record_kept(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Case 30's kind: not cancelled is logged as not cancelled."""
    instance.command, instance.server_state = until_released(tmp_path / "never"), "failed"
    service.client().add_fault("cancel", "refuse_cancel", times=0)
    ended, text = instance.attempt_stopped("mid_poll")
    assert ended == "JobKept"
    assert "NOT cancelled" in text
    assert instance.record["phase"] == "submitted"


POLICY = ResumePolicy(
    on_infrastructure_stop="keep",
    on_user_stop="cancel",
    on_timeout="keep",
    on_final_failure="cancel",
    on_clear="resubmit",
)


@pytest.mark.parametrize(
    ("state", "reason", "action", "on_last_try"),
    [
        ("failed", KillReason.USER, "cancel", "cancel"),
        ("success", KillReason.USER, "cancel", "cancel"),
        ("restarting", KillReason.CLEARED, "cancel", "cancel"),
        ("running", KillReason.INFRASTRUCTURE, "keep", "cancel"),
        (None, KillReason.INFRASTRUCTURE, "keep", "cancel"),
        ("none", KillReason.SUPERSEDED, "keep", "keep"),
        ("a state of a later Airflow", KillReason.SUPERSEDED, "keep", "keep"),
        ("queued", KillReason.SUPERSEDED, "keep", "keep"),
        ("up_for_retry", KillReason.SUPERSEDED, "keep", "keep"),
    ],
)
def test_the_servers_word_decides(
    state: str | None, reason: KillReason, action: str, on_last_try: str
) -> None:
    """Section 6 of the protocol as a table."""
    assert reason_for(state) is reason
    assert action_for(reason, POLICY, last_try=False) == action
    assert action_for(reason, POLICY, last_try=True) == on_last_try


def test_a_chosen_cancel_holds_on_the_last_try_too() -> None:
    """on_final_failure speaks of jobs that were to be kept for a try that doesn't come."""
    policy = ResumePolicy(on_infrastructure_stop="cancel", on_timeout="cancel", on_final_failure="keep")
    for reason in (KillReason.INFRASTRUCTURE, KillReason.TIMEOUT):
        assert action_for(reason, policy, last_try=True) == "cancel"


def test_a_stop_before_the_attempt_has_begun_keeps_it_from_submitting(
    service: JobService, instance: TaskInstance
) -> None:
    """SIGTERM while templates are rendered or connections read: nothing is started afterwards."""
    operator = instance.operator()

    def get_job_spec(context: object) -> object:
        signal.raise_signal(signal.SIGTERM)
        return {}

    before = signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())
    try:
        with pytest.raises(JobKept, match="before this attempt had begun"):
            signal.raise_signal(signal.SIGTERM)
        operator.get_job_spec = get_job_spec  # type: ignore[method-assign]
        with pytest.raises(JobKept, match="has started is kept"):
            operator.execute(instance.context(operator, 1))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert requests(service, "submit") == []


def test_a_dying_task_asks_and_cancels_within_two_seconds(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """API server and service both hang; each call gets its share of one limit, whatever it does."""
    from airflow_resumable.jobs.kill import ASK_LIMIT, KILL_LIMIT

    instance.command, instance.policy = (
        until_released(tmp_path / "never"),
        {"on_infrastructure_stop": "cancel"},
    )
    instance.server_state = "hangs"
    service.client().add_fault("cancel", "hold", times=0)
    ended, text = instance.attempt_stopped("mid_poll")
    assert ended == "JobKept"
    assert "NOT cancelled" in text
    assert ASK_LIMIT < KILL_LIMIT < 2
    assert len(requests(service, "cancel")) == 1


@pytest.mark.parametrize(("lost", "verb"), [("after_accept", "find"), ("mid_poll", "status")])
def test_a_users_stop_cancels_a_job_that_this_try_has_not_looked_at_yet(
    service: JobService, instance: TaskInstance, tmp_path: Path, lost: str, verb: str
) -> None:
    """The second try is stopped while it asks the service: the job is known by its id, or by its token."""
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed(lost)
    instance.server_state = "failed"
    service.client().add_fault(verb, "hold")
    last = service.requests()[-1]["seq"]
    ended, text = instance.attempt_stopped(
        None, try_number=2, when=lambda: service.wait_for_request(verb, since_seq=last)
    )
    assert ended == "JobKept"
    assert "was cancelled" in text
    assert len(requests(service, "cancel")) == 1


@pytest.mark.parametrize(("try_number", "cancels"), [(1, 0), (3, 1)])
def test_execution_timeout_keeps_the_job_but_on_the_last_try(
    service: JobService, instance: TaskInstance, tmp_path: Path, try_number: int, cancels: int
) -> None:
    """Airflow raises its time-out, then calls on_kill outside of any signal handler."""
    instance.command = until_released(tmp_path / "never")
    operator = instance.operator()
    with pytest.raises(AirflowTaskTimeout), timeout(1):  # type: ignore[no-untyped-call]
        operator.execute(instance.context(operator, try_number))
    operator.on_kill()
    operator.client.close()
    assert len(requests(service, "cancel")) == cancels
    assert instance.record["phase"] == "submitted"


def test_a_stop_before_this_try_has_begun_cancels_the_job_of_the_try_before(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Marked failed while the second try still renders its job: the job is known from the store."""
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed("mid_poll")
    instance.server_state = "failed"
    operator = instance.operator()

    def get_job_spec(context: object) -> object:
        signal.raise_signal(signal.SIGTERM)
        return {}

    operator.get_job_spec = get_job_spec  # type: ignore[method-assign]
    before = signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())
    try:
        with pytest.raises(JobKept, match="was cancelled"):
            operator.execute(instance.context(operator, 2))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(requests(service, "cancel")) == 1


def test_a_superseded_last_try_cancels_nothing_when_it_is_stopped(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Its job is another attempt's by now; "running" is that one's state."""
    instance.command = until_released(tmp_path / "never")
    operator = instance.operator()
    with pytest.raises(AirflowTaskTimeout), timeout(1):  # type: ignore[no-untyped-call]
        operator.execute(instance.context(operator, 3))
    instance.attempt_killed("mid_poll", try_number=4)
    operator.on_kill()
    operator.client.close()
    assert requests(service, "cancel") == []


class InFront:
    """An on_kill from a class in front of ours, which cancels at every stop."""

    def on_kill(self) -> None:
        """Cancel, as on the stock mixin."""
        self.client.cancel("job-000001")  # type: ignore[attr-defined]


class WithOneInFront(InFront, LocalJobOperator):
    """Its on_kill comes before the mixin's in the method resolution order."""


def test_an_on_kill_in_front_of_ours_is_asked_why_too(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Evicted, the job is kept, wherever in the class hierarchy on_kill stands."""
    instance.command, instance.operator_class = until_released(tmp_path / "never"), WithOneInFront
    ended, _ = instance.attempt_stopped("mid_poll")
    assert ended == "JobKept"
    assert requests(service, "cancel") == []


class _Last:
    """Something whose end is interrupted by a stop: what is raised there is swallowed by Python."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def _by_a_finalizer() -> None:
    _Last()


def _by_a_bare_except() -> None:
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("swallow", [_by_a_finalizer, _by_a_bare_except])
@pytest.mark.parametrize(("state", "cancels"), [("running", 0), ("failed", 1)])
def test_a_stop_that_is_swallowed_is_raised_again_and_answered_once(
    service: JobService,
    instance: TaskInstance,
    tmp_path: Path,
    swallow: Callable[[], None],
    state: str,
    cancels: int,
) -> None:
    """The attempt ends all the same, and its job was kept or cancelled by the first answer."""
    instance.command, instance.server_state = until_released(tmp_path / "gate"), state
    told = _told_at_mid_poll(instance, swallow)
    assert told == 2
    assert len(requests(service, "cancel")) == cancels
    assert len(started(service)) == 1


def test_a_stop_that_is_told_again_leaves_a_clean_up_its_time(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """On its way out the attempt tidies up for longer than a moment: that isn't going on."""
    instance.command = until_released(tmp_path / "gate")
    tidied: list[int] = []
    again = threading.Event()

    def stop() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            assert again.wait(20)
            tidied.append(1)

    _told_at_mid_poll(instance, stop, again)
    assert tidied == [1]
    assert requests(service, "cancel") == []


def _told_at_mid_poll(
    instance: TaskInstance, act: Callable[[], None], again: threading.Event | None = None
) -> int:
    """Run a try that does `act` at its first look, until it ends; return how often it was told to stop."""
    operator, told = instance.operator(), []

    # Airflow's own handler has this name.
    def _on_term(signum: int, frame: object) -> None:
        told.append(signum)
        try:
            operator.on_kill()
        finally:
            if again is not None and len(told) > 1:
                again.set()

    def once() -> None:
        if not told:
            act()
            assert threading.Event().wait(20), "it was not told again"

    before = signal.signal(signal.SIGTERM, _on_term)
    try:
        with at_point("mid_poll", once), pytest.raises(JobKept):
            operator.execute(instance.context(operator, 1))
    finally:
        signal.signal(signal.SIGTERM, before)
        operator.client.close()
    return len(told)
