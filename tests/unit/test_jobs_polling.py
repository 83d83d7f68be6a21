# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A job is watched through everything a service may answer, and never started again for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from airflow_resumable.jobs.adapter import Observation, observe
from airflow_resumable.sdk import FoundJob, JobFailed, JobNotSettled, StatusBudgetExhausted
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from tests.attempts import FAIL, TaskInstance, requests, started, until_released


@pytest.mark.parametrize("kind", ["unavailable", "error", "throttle", "reset", "truncated", "lost_reply"])
def test_three_bad_answers_while_polling_are_tolerated(
    service: JobService, instance: TaskInstance, kind: str
) -> None:
    """Cases 37 and 38: 503, 500, 429, connection reset, cut-off JSON, each three times in a row."""
    service.client().add_fault("status", kind, times=3)
    assert instance.attempt() == {"rows": 7}
    assert len(started(service)) == 1
    assert len([entry for entry in requests(service, "status") if entry["fault"] == kind]) == 3


def test_five_throttles_then_running_is_no_failure(service: JobService, instance: TaskInstance) -> None:
    """Case 37: five throttles in a row, then a good answer."""
    service.client().add_fault("status", "throttle", times=5)
    assert instance.attempt() == {"rows": 7}


def test_a_read_time_out_is_tolerated(service: JobService, instance: TaskInstance) -> None:
    """Case 38: the answer comes after the client has given up."""
    service.client().add_fault("status", "slow_reply", seconds=6)
    assert instance.attempt() == {"rows": 7}


def test_a_used_up_budget_fails_the_attempt_and_leaves_the_job(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The service answers nothing but 503: the attempt fails, the job lives, the next try watches it."""
    gate = tmp_path / "gate"
    instance.command, instance.policy = until_released(gate), {"status_error_budget": 0.5}
    fault = service.client().add_fault("status", "unavailable", times=0)
    with pytest.raises(StatusBudgetExhausted, match="left alone"):
        instance.attempt()
    service.client().delete_fault(fault)
    gate.touch()
    assert instance.attempt(try_number=2) == {"rows": 7}
    assert len(started(service)) == 1
    assert requests(service, "cancel") == []


def test_a_refused_permission_on_a_lookup_is_loud_and_submits_nothing(
    service: JobService, instance: TaskInstance
) -> None:
    """Case 5's kind: "not allowed to look" is never read as "nothing found"."""

    class NotAllowedToList(LocalJobOperator):
        def find_job_by_token(self, token: str, since: object, context: object) -> list[FoundJob]:
            raise PermissionError("listing jobs is not allowed")

    instance.attempt_killed("after_intent")
    instance.operator_class = NotAllowedToList
    with pytest.raises(PermissionError, match="not allowed"):
        instance.attempt(try_number=2)
    assert requests(service, "submit") == []


def test_credentials_that_expire_every_three_polls_last_for_thirty(tmp_path: Path) -> None:
    """Case 39: each refresh is good for three requests; refreshing has no lifetime limit."""
    gate = tmp_path / "gate"
    with JobService(tmp_path / "service", credential_uses=3) as service:
        instance = TaskInstance(service.url, tmp_path / "store", until_released(gate))
        counting = _ReleasesAfter(gate, polls=30)
        instance.operator_class = counting.operator_class
        assert instance.attempt() == {"rows": 7}
        polls = [entry for entry in requests(service, "status") if entry["code"] == 200]
        refreshes = requests(service, "credentials")
        assert len(polls) >= 30
        assert len(refreshes) >= 10
        assert len(started(service)) == 1


class _ReleasesAfter:
    def __init__(self, gate: Path, polls: int) -> None:
        class Operator(LocalJobOperator):
            seen = 0

            def get_job_status(self, external_id: object, context: object) -> str:
                status = super().get_job_status(external_id, context)  # type: ignore[arg-type]
                Operator.seen += 1
                if Operator.seen >= polls:
                    gate.touch()
                return status

        self.operator_class = Operator


def test_a_job_that_fails_ends_the_attempt_and_the_next_try_starts_the_next_generation(
    service: JobService, instance: TaskInstance
) -> None:
    """Jobs started = 1 + terminal failures seen by an attempt."""
    instance.command = FAIL
    for number in (1, 2, 3):
        with pytest.raises(JobFailed, match=rf"generation {number}\) ended as 'FAILED'"):
            instance.attempt(try_number=number)
    tokens = [entry["token"] for entry in started(service)]
    assert len(tokens) == len(set(tokens)) == 3


def test_a_status_never_heard_of_is_waited_on_then_fails_without_a_submit(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Unknown is active for `unknown_status_timeout`, then the attempt fails and the job is kept."""
    instance.command = until_released(tmp_path / "never")
    instance.policy = {"unknown_status_timeout": 0.2}
    service.client().add_fault("status", "unknown_status", status="HIBERNATING", times=0)
    with pytest.raises(JobNotSettled, match="HIBERNATING"):
        instance.attempt()
    assert len(requests(service, "submit")) == 1
    assert requests(service, "cancel") == []


def test_a_reply_without_a_status_is_waited_on(service: JobService, instance: TaskInstance) -> None:
    """Case 40's kind: one answer carries no state; it is no failure and no success."""
    service.client().add_fault("status", "no_status", times=2)
    assert instance.attempt() == {"rows": 7}
    assert len(started(service)) == 1


KNOWN = ("QUEUED", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "CANCELLED")


@given(status=st.text(max_size=30).filter(lambda text: text not in KNOWN))
def test_no_unheard_of_status_means_an_end(status: str) -> None:
    """Case 44: any text outside the known ones is unknown, so never a reason to submit."""
    operator = LocalJobOperator.__new__(LocalJobOperator)
    assert observe(operator, status, LocalJobOperator.resumable_capabilities()) is Observation.UNKNOWN


@hypothesis_settings(max_examples=8)
@given(
    status=st.from_regex(re.compile(r"[A-Z_]{1,12}"), fullmatch=True).filter(lambda text: text not in KNOWN)
)
def test_an_unheard_of_status_at_reconnect_never_submits(status: str) -> None:
    """Case 44, through the service: the second attempt meets a random word and starts nothing."""
    import tempfile

    with tempfile.TemporaryDirectory() as place, JobService(Path(place) / "service") as service:
        gate = Path(place) / "gate"
        instance = TaskInstance(service.url, Path(place) / "store", until_released(gate))
        instance.policy = {"unknown_status_timeout": 0.05}
        service.client().add_fault("status", "unknown_status", status=status, times=0)
        for number in (1, 2):
            with pytest.raises(JobNotSettled):
                instance.attempt(try_number=number)
        assert len(requests(service, "submit")) == 1


def test_a_stopping_job_is_waited_for_then_replaced_once(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """Case 31: the second attempt finds the job stopping, waits for its end and submits once."""
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed("mid_poll")
    client = service.client()
    client.add_fault("cancel", "slow_stop", seconds=0.5)
    client.cancel(instance.record["external_id"])
    instance.command = ["/bin/echo", "5"]
    assert instance.attempt(try_number=2) == 5
    assert len(started(service)) == 2
    assert instance.record["generation"] == 2


def test_a_job_that_never_stops_stopping_fails_the_attempt_without_a_submit(
    service: JobService, instance: TaskInstance, tmp_path: Path
) -> None:
    """The wait on a stopping job is bounded by `stopping_timeout`."""
    instance.command = until_released(tmp_path / "never")
    instance.attempt_killed("mid_poll")
    client = service.client()
    client.add_fault("cancel", "slow_stop", seconds=60)
    client.cancel(instance.record["external_id"])
    instance.policy = {"stopping_timeout": 0.2}
    with pytest.raises(JobNotSettled, match="STOPPING"):
        instance.attempt(try_number=2)
    assert len(requests(service, "submit")) == 1
