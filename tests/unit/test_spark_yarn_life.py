# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Spark on YARN: what becomes of an application whose worker or ResourceManager dies.

ResourceManager and spark-submit are stand-ins, see `airflow_resumable.testing.yarn_stand_in`; their request
log counts.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_resumable.jobs.errors import JobKept
from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator
from airflow_resumable.sdk import JobFailed, JobMissing
from airflow_resumable.testing.task_tries import TaskTries, at_point
from airflow_resumable.testing.yarn_stand_in import YarnStandIn
from tests.spark_attempts import begin, until
from tests.yarn_service import CONNECTION, YarnService, YarnTask, clients, connection, make

# spark-submit isn't waited for once its id is known.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


def test_the_applications_page_is_linked_as_soon_as_it_is_on_record(yarn_service: YarnService) -> None:
    """At the active ResourceManager; a reconnect links it again."""
    tries = TaskTries()
    assert tries.crash(lambda: make(yarn_service.spark_submit, yarn_service.plan("runs")), "after_id")
    (job,) = yarn_service.jobs()
    url = f"{yarn_service.yarn.url()}/cluster/app/{job.external_id}"
    assert url in dict(tries.xcoms).values()
    tries.xcoms = []
    yarn_service.release()
    tries.run(make(yarn_service.spark_submit))
    assert url in dict(tries.xcoms).values()


def test_a_failed_application_is_followed_by_the_next_generation(yarn_service: YarnService) -> None:
    """FINISHED with FAILED fails the try, with the ResourceManager's reason."""
    tries = TaskTries()
    with pytest.raises(JobFailed, match="FINISHED/FAILED: the stand-in was told to end it as FAILED"):
        tries.run(make(yarn_service.spark_submit, {"final": "FAILED", "queued": 0.1}))
    tries.run(operator := make(yarn_service.spark_submit))
    assert tries.record(operator)["ids"] == yarn_service.submitted()
    assert len(yarn_service.submitted()) == 2


@pytest.mark.parametrize("at", ["after_accept", "mid_poll"])
def test_an_evicted_worker_keeps_its_application(
    yarn_service: YarnService, yarn_task: Callable[..., YarnTask], tmp_path: Path, at: str
) -> None:
    """SIGTERM while the task is running: no kill request, no process left, sidecars left alone."""
    told = tmp_path / "post-submit"
    # The client lingers for as long as it is let live.
    plan = {**yarn_service.plan("runs"), "linger": 600}
    ours = yarn_task(plan, arguments={"post_submit_commands": [f"sh -c 'echo done >> {told}'"]})
    attempt = begin(ours, at)
    name, text = attempt.stop()

    assert (name, "kept" in text) == ("JobKept", True)
    until(lambda: not clients(yarn_service))
    assert yarn_service.requests("kill") == []
    assert [job.live for job in yarn_service.jobs()] == [True]
    assert not told.exists()

    yarn_service.release()
    assert ours.attempt(2) is None
    assert yarn_service.submitted() == [ours.record["external_id"]]
    assert told.read_text().splitlines() == ["done"]


def test_a_user_who_stops_the_task_kills_the_application_once(
    yarn_service: YarnService, yarn_task: Callable[..., YarnTask]
) -> None:
    """SIGTERM after a user marked the task failed: one request that counts, and it is KILLED."""
    ours = yarn_task(server_state="failed")
    begin(ours, "mid_poll").stop()
    assert yarn_service.cancels() == 1
    (job,) = yarn_service.submitted()
    assert yarn_service.yarn.applications()[job]["state"] == "KILLED"


def test_a_user_who_stops_a_try_that_has_not_begun_kills_the_application_of_the_one_before(
    yarn_service: YarnService,
) -> None:
    """SIGTERM before `execute`: the application is on record, and the connection is read for the kill."""
    tries = TaskTries()
    assert tries.crash(lambda: make(yarn_service.spark_submit, yarn_service.plan("runs")), "after_id")
    operator = make(yarn_service.spark_submit, yarn_service.plan("runs"))
    given, tries.server_state = tries.context(operator), "failed"

    def _on_term(signum: int, frame: object) -> None:
        operator.on_kill()

    before = signal.signal(signal.SIGTERM, _on_term)
    try:
        with mock.patch("airflow.sdk.get_current_context", return_value=given), pytest.raises(JobKept):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert yarn_service.cancels() == 1
    assert [job.live for job in yarn_service.jobs()] == [False]


def test_a_timeout_keeps_the_application_for_the_next_try(yarn_service: YarnService, tmp_path: Path) -> None:
    """execution_timeout calls on_kill outside of any signal: nothing is killed while tries are left."""

    class TimedOut(Exception):
        """What Airflow raises then."""

    operator, tries = make(yarn_service.spark_submit, yarn_service.plan("runs")), TaskTries()

    def time_out() -> None:
        operator.on_kill()
        raise TimedOut

    with at_point("mid_poll", time_out), pytest.raises(TimedOut):
        tries.run(operator)
    assert yarn_service.requests("kill") == []
    yarn_service.release()
    tries.run(make(yarn_service.spark_submit, yarn_service.plan("runs")))
    assert len(yarn_service.submitted()) == 1


def test_a_fail_over_in_mid_poll_is_followed(yarn_service: YarnService, yarn: YarnStandIn) -> None:
    """The other ResourceManager takes over: the same application, the same attempt, no cancel."""
    operator, tries = make(yarn_service.spark_submit, yarn_service.plan("runs")), TaskTries()
    moved: list[str] = []

    def move() -> None:
        if not moved:
            moved.append(yarn.active)
            yarn.fail_over("rm2" if yarn.active == "rm1" else "rm1")
            yarn_service.release()

    with at_point("mid_poll", move):
        tries.run(operator)
    assert moved
    assert len(yarn_service.submitted()) == 1
    assert yarn_service.requests("kill") == []


@pytest.mark.parametrize("recover", [True, False])
def test_a_restarted_resource_manager(yarn_service: YarnService, yarn: YarnStandIn, recover: bool) -> None:
    """With recovery the application is watched on; without it is missing, and on_missing decides."""
    tries, name = TaskTries(), yarn.active
    assert tries.crash(lambda: make(yarn_service.spark_submit, yarn_service.plan("runs")), "after_id")
    yarn.restart(name, recover=recover)
    yarn_service.release()
    if recover:
        tries.run(make(yarn_service.spark_submit, yarn_service.plan("runs")))
        assert len(yarn_service.submitted()) == 1
        return
    with pytest.raises(JobMissing, match="on_missing=resubmit"):
        tries.run(make(yarn_service.spark_submit, yarn_service.plan("runs")))
    assert len(yarn_service.submitted()) == 1
    tries.run(make(yarn_service.spark_submit, yarn_service.plan("runs")), {"on_missing": "resubmit"})
    assert len(yarn_service.submitted()) == 2


def test_three_refusals_while_polling_fail_nothing(yarn_service: YarnService) -> None:
    """503 three times: waited out, the application is neither killed nor doubled."""
    operator, tries = make(yarn_service.spark_submit, yarn_service.plan("runs")), TaskTries()
    spoiled: list[int] = []

    def spoil() -> None:
        if not spoiled:
            spoiled.append(1)
            yarn_service.yarn.fail("status", "unavailable", times=3)
            yarn_service.release()

    with at_point("mid_poll", spoil):
        tries.run(operator)
    assert [row["fault"] for row in yarn_service.requests("status")].count("unavailable") == 3
    assert (len(yarn_service.submitted()), yarn_service.requests("kill")) == (1, [])


def test_a_connection_that_names_another_cluster_changes_nothing_for_what_runs(
    yarn_service: YarnService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application is watched where it was started."""
    tries = TaskTries()
    assert tries.crash(lambda: make(yarn_service.spark_submit, yarn_service.plan("runs")), "after_id")
    yarn_service.release()
    with YarnStandIn(tmp_path / "other") as other:
        monkeypatch.setenv(CONNECTION, connection(other.address))
        tries.run(make(yarn_service.spark_submit, yarn_service.plan("runs")))
        assert other.requests() == []
    assert len(yarn_service.submitted()) == 1


def test_a_run_moves_from_the_stock_operator_to_ours(
    yarn_service: YarnService, yarn_task: Callable[..., YarnTask]
) -> None:
    """The provider's own operator dies while polling; ours takes its application over."""
    ours = yarn_task(
        operator_class=SparkSubmitOperator,
        connection=connection(yarn_service.yarn.url(yarn_service.yarn.active)),
    )
    attempt = ours.start()
    until(lambda: ours.driver is not None)
    attempt.kill()
    ours.operator_class = ResumableSparkSubmitOperator
    yarn_service.release()

    assert ours.attempt(2) is None
    assert yarn_service.submitted() == [ours.driver]
    assert ours.record["phase"] == "succeeded"


def test_a_run_moves_from_ours_to_the_stock_operator(
    yarn_service: YarnService, yarn_task: Callable[..., YarnTask]
) -> None:
    """Ours dies while polling; the provider's own operator reconnects to its application."""
    ours = yarn_task(connection=connection(yarn_service.yarn.url(yarn_service.yarn.active)))
    begin(ours, "mid_poll").kill()
    yarn_service.release()
    until(lambda: not yarn_service.yarn.is_live(ours.driver))
    ours.operator_class = SparkSubmitOperator

    assert ours.start(2).end() == ("returned", "None")
    assert yarn_service.submitted() == [ours.driver]


def test_no_more_status_calls_than_the_parents(
    yarn_service: YarnService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side over six pauses of the parent's length: as many looks, or fewer."""
    monkeypatch.setenv(CONNECTION, connection(yarn_service.yarn.url(yarn_service.yarn.active)))
    counts, pauses = {}, {}
    sleep = time.sleep
    for kind in (SparkSubmitOperator, ResumableSparkSubmitOperator):
        yarn_service.gate.unlink(missing_ok=True)
        slept: list[float] = []
        me = threading.current_thread()

        def nap(seconds: float, slept: list[float] = slept, me: threading.Thread = me) -> None:
            if threading.current_thread() is not me or seconds < 1:
                return sleep(seconds)
            slept.append(seconds)
            if len(slept) == 6:
                yarn_service.release()
            return None

        operator = make(
            yarn_service.spark_submit,
            yarn_service.plan("runs"),
            operator_class=kind,
            yarn_track_via_rm_api=True,
            status_poll_interval=7,
        )
        vars(operator).pop("get_poll_interval")
        before = len(yarn_service.requests("status"))
        with mock.patch("time.sleep", nap):
            TaskTries(run_id=kind.__name__).run(operator)
        until(lambda: not clients(yarn_service))
        counts[kind] = len(yarn_service.requests("status")) - before
        pauses[kind] = slept
    assert pauses[ResumableSparkSubmitOperator] == pauses[SparkSubmitOperator] == [10] * 6
    assert counts[ResumableSparkSubmitOperator] <= counts[SparkSubmitOperator]
