# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Spark on YARN: what goes to spark-submit, and what becomes of an application whose worker dies.

ResourceManager and spark-submit are stand-ins, see `airflow_resumable.testing.yarn_stand_in`; their request
log counts.
"""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_resumable.jobs.errors import JobKept
from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator
from airflow_resumable.sdk import JobFailed, JobMissing
from airflow_resumable.testing.task_tries import TaskTries, at_point
from airflow_resumable.testing.yarn_stand_in import YarnStandIn
from tests.spark_attempts import Attempt, until
from tests.yarn_service import CONNECTION, YarnService, YarnTask, connection, make

# spark-submit isn't waited for once its id is known.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnStandIn]:
    """Start the stand-in: two ResourceManagers."""
    with YarnStandIn(tmp_path_factory.mktemp("yarn"), managers=2) as running:
        yield running


@pytest.fixture
def service(yarn: YarnStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[YarnService]:
    """The stand-in, as this test sees it, and a connection to it."""
    monkeypatch.setenv(CONNECTION, connection(yarn.address))
    service = YarnService(yarn, tmp_path)
    yield service
    yarn.heal()
    service.release()
    gc.collect()


@pytest.fixture
def task(service: YarnService, tmp_path: Path) -> Callable[..., YarnTask]:
    """Make a task; its application runs until the service's gate is opened, unless told otherwise."""

    def of(plan: dict[str, Any] | None = None, **more: Any) -> YarnTask:
        return YarnTask.of(service, tmp_path / "store", plan or service.plan("runs"), **more)

    return of


def begin(task: YarnTask, at: str, try_number: int = 1) -> Attempt:
    """Start an attempt and wait until it is at a crash point."""
    attempt = task.start(try_number, at)
    attempt.wait_at_point()
    return attempt


def clients(service: YarnService) -> list[psutil.Process]:
    """Return the spark-submit processes of a test that still run."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(service.gate) in word for word in words) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def tags_of(service: YarnService) -> list[list[str]]:
    """Return the tags of every application that was taken."""
    return [row["tags"] for row in service.requests("submit") if row.get("created")]


# --- what goes to spark-submit ---


def test_tags_are_added_to_the_users_own(service: YarnService) -> None:
    """Token and family come after what the conf has; the user's conf itself stays as it is."""
    conf = {"spark.yarn.tags": "Nightly, team-a,nightly"}
    operator, tries = make(service.spark_submit, conf=conf), TaskTries()
    tries.run(operator)
    token = tries.record(operator)["token"]
    ours = [f"airflow-resumable-family:{token[1:17]}", f"airflow-resumable-token:{token}"]
    assert tags_of(service) == [[*ours, "nightly", "team-a"]]
    assert operator.conf == conf


@pytest.mark.parametrize("place", ["properties_file", "SPARK_CONF_DIR", "SPARK_HOME"])
def test_tags_of_a_properties_file_are_not_lost(
    service: YarnService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A property on the command line replaces that of a file, so the file's tags are repeated there."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "conf"
    folder.mkdir()
    file = folder / "spark-defaults.conf"
    file.write_text("# tags\nspark.yarn.tagsx no\nspark.yarn.tags = one\n  spark.yarn.tags two,three\n")
    arguments: dict[str, Any] = {"properties_file": str(file)} if place == "properties_file" else {}
    if not arguments:
        monkeypatch.setenv(place, str(folder if place == "SPARK_CONF_DIR" else tmp_path))
    TaskTries().run(make(service.spark_submit, **arguments))
    assert tags_of(service)[0][2:] == ["three", "two"]


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"spark.yarn.tags": "a,b,c,d,e,f,g,h,i"}, "9 tags .*leave 8 at most"),
        ({"spark.yarn.tags": "x" * 101}, "printable ASCII"),
        ({"spark.yarn.tags": "grün"}, "grün"),
        ({"spark.yarn.submit.waitAppCompletion": "true"}, "waitAppCompletion='true' is not allowed"),
    ],
)
def test_a_conf_that_can_not_be_kept_is_refused(
    service: YarnService, conf: dict[str, Any], said: str
) -> None:
    """Before spark-submit is started, with the property, its value and the remedy."""
    with pytest.raises(ValueError, match=said):
        TaskTries().run(make(service.spark_submit, conf=conf))
    assert service.requests("new") == []


def test_eight_tags_of_the_users_are_fine(service: YarnService) -> None:
    """YARN takes ten."""
    TaskTries().run(make(service.spark_submit, conf={"spark.yarn.tags": "a,b,c,d,e,f,g,h"}))
    assert len(tags_of(service)[0]) == 10


def test_env_vars_reach_spark_submit(service: YarnService, tmp_path: Path) -> None:
    """As by the parent: they are how a task names another Hadoop configuration."""
    script = tmp_path / "told"
    script.write_text(
        f'#!/bin/sh\necho "$HADOOP_CONF_DIR" > {tmp_path}/seen\nexec {service.spark_submit} "$@"\n'
    )
    script.chmod(0o755)
    TaskTries().run(make(script, env_vars={"HADOOP_CONF_DIR": "/etc/other"}))
    assert (tmp_path / "seen").read_text() == "/etc/other\n"


@pytest.mark.parametrize("flag", [False, True])
def test_without_an_address_nothing_is_submitted(
    service: YarnService, monkeypatch: pytest.MonkeyPatch, flag: bool
) -> None:
    """The error names the extra, the connection, and the way around."""
    monkeypatch.setenv(CONNECTION, connection(""))
    with pytest.raises(
        ValueError, match=r"yarn_resourcemanager_webapp_address in its extra.*durable=False"
    ) as e:
        TaskTries().run(make(service.spark_submit, yarn_track_via_rm_api=flag))
    assert "spark_default" in str(e.value)
    assert service.requests("new") == []


def test_not_durable_is_the_parents_way(service: YarnService, monkeypatch: pytest.MonkeyPatch) -> None:
    """spark-submit waits for the end, no ResourceManager is asked by us, and nothing of ours is a tag."""
    monkeypatch.setenv(CONNECTION, connection(""))
    operator, tries = make(service.spark_submit, durable=False), TaskTries()
    tries.run(operator)
    assert tags_of(service) == [[]]
    assert tries.record(operator) is None
    assert service.requests("find") == []


def test_switched_off_it_is_the_parent(service: YarnService, monkeypatch: pytest.MonkeyPatch) -> None:
    """``[resumable] enabled = False``: the provider follows the application, under its own key alone."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__ENABLED", "False")
    operator, tries = make(service.spark_submit), TaskTries()
    tries.run(operator)
    assert tags_of(service) == [[]]
    assert (tries.record(operator), tries.store.get("spark_job_id")) == (None, service.submitted()[0])


# --- the page ---


def test_the_applications_page_is_linked_as_soon_as_it_is_on_record(service: YarnService) -> None:
    """At the active ResourceManager; a reconnect links it again."""
    tries = TaskTries()
    assert tries.crash(lambda: make(service.spark_submit, service.plan("runs")), "after_id")
    (job,) = service.jobs()
    url = f"{service.yarn.url()}/cluster/app/{job.external_id}"
    assert url in dict(tries.xcoms).values()
    tries.xcoms = []
    service.release()
    tries.run(make(service.spark_submit))
    assert url in dict(tries.xcoms).values()


# --- ends ---


def test_a_failed_application_is_followed_by_the_next_generation(service: YarnService) -> None:
    """FINISHED with FAILED fails the try, with the ResourceManager's reason."""
    tries = TaskTries()
    with pytest.raises(JobFailed, match="FINISHED/FAILED: the stand-in was told to end it as FAILED"):
        tries.run(make(service.spark_submit, {"final": "FAILED", "queued": 0.1}))
    tries.run(operator := make(service.spark_submit))
    assert tries.record(operator)["ids"] == service.submitted()
    assert len(service.submitted()) == 2


def test_an_application_that_yarn_refuses_at_once_is_not_taken_for_none(service: YarnService) -> None:
    """A queue that doesn't exist: spark-submit fails, the application is there, FAILED, with our tag."""
    tries = TaskTries()
    service.yarn.fail("submit", "lost_reply")
    with pytest.raises(JobFailed, match="FAILED"):
        tries.run(make(service.spark_submit, {"state": "FAILED", "final": "FAILED"}))
    tries.run(make(service.spark_submit))
    assert len(service.submitted()) == 2


def test_a_spark_submit_that_fails_for_itself_fails_the_try(service: YarnService) -> None:
    """No application has the tag: the error shows what spark-submit said, and the next try starts one."""
    tries = TaskTries()
    service.yarn.fail("submit", "unavailable")
    with pytest.raises(Exception, match=r"Error code is: 1(.|\n)*503"):
        tries.run(make(service.spark_submit))
    tries.run(make(service.spark_submit))
    assert len(service.submitted()) == 1


# --- a worker that dies ---


def test_spark_submit_dies_with_its_task_and_what_it_had_submitted_is_found(
    service: YarnService, task: Callable[..., YarnTask]
) -> None:
    """SIGKILL while the ResourceManager's answer to the submit is on its way: the tag finds it."""
    ours = task()
    service.yarn.fail("submit", "hang_after", seconds=60)
    attempt = ours.start()
    until(lambda: bool(service.submitted()))
    assert clients(service)
    attempt.kill()
    until(lambda: not clients(service))
    assert ours.record["external_id"] is None

    service.release()
    assert ours.attempt(2) is None
    assert service.submitted() == [ours.record["external_id"]]


def test_the_id_is_not_believed_before_yarn_has_the_application(
    service: YarnService, task: Callable[..., YarnTask]
) -> None:
    """spark-submit prints the id before its submit: a task that dies in between leaves nothing to watch."""
    ours = task()
    service.yarn.fail("submit", "hang_before", seconds=3600)
    attempt = ours.start()
    until(lambda: bool(service.requests("new")) and bool(clients(service)))
    attempt.kill()
    until(lambda: not clients(service))
    assert ours.record["phase"] == "intent"
    assert ours.driver is None

    service.release()
    assert ours.attempt(2) is None
    assert service.submitted() == [ours.record["external_id"]]


@pytest.mark.parametrize("at", ["after_accept", "mid_poll"])
def test_an_evicted_worker_keeps_its_application(
    service: YarnService, task: Callable[..., YarnTask], tmp_path: Path, at: str
) -> None:
    """SIGTERM while the task is running: no kill request, no process left, sidecars left alone."""
    told = tmp_path / "post-submit"
    # The client lingers for as long as it is let live.
    plan = {**service.plan("runs"), "linger": 600}
    ours = task(plan, arguments={"post_submit_commands": [f"sh -c 'echo done >> {told}'"]})
    attempt = begin(ours, at)
    name, text = attempt.stop()

    assert (name, "kept" in text) == ("JobKept", True)
    until(lambda: not clients(service))
    assert service.requests("kill") == []
    assert [job.live for job in service.jobs()] == [True]
    assert not told.exists()

    service.release()
    assert ours.attempt(2) is None
    assert service.submitted() == [ours.record["external_id"]]
    assert told.read_text().splitlines() == ["done"]


def test_a_user_who_stops_the_task_kills_the_application_once(
    service: YarnService, task: Callable[..., YarnTask]
) -> None:
    """SIGTERM after a user marked the task failed: one request that counts, and it is KILLED."""
    ours = task(server_state="failed")
    begin(ours, "mid_poll").stop()
    assert service.cancels() == 1
    (job,) = service.submitted()
    assert service.yarn.applications()[job]["state"] == "KILLED"


def test_a_user_who_stops_a_try_that_has_not_begun_kills_the_application_of_the_one_before(
    service: YarnService,
) -> None:
    """SIGTERM before `execute`: the application is on record, and the connection is read for the kill."""
    tries = TaskTries()
    assert tries.crash(lambda: make(service.spark_submit, service.plan("runs")), "after_id")
    operator = make(service.spark_submit, service.plan("runs"))
    given, tries.server_state = tries.context(operator), "failed"

    def _on_term(signum: int, frame: object) -> None:
        operator.on_kill()

    before = signal.signal(signal.SIGTERM, _on_term)
    try:
        with mock.patch("airflow.sdk.get_current_context", return_value=given), pytest.raises(JobKept):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert service.cancels() == 1
    assert [job.live for job in service.jobs()] == [False]


def test_a_timeout_keeps_the_application_for_the_next_try(service: YarnService, tmp_path: Path) -> None:
    """execution_timeout calls on_kill outside of any signal: nothing is killed while tries are left."""

    class TimedOut(Exception):
        """What Airflow raises then."""

    operator, tries = make(service.spark_submit, service.plan("runs")), TaskTries()

    def time_out() -> None:
        operator.on_kill()
        raise TimedOut

    with at_point("mid_poll", time_out), pytest.raises(TimedOut):
        tries.run(operator)
    assert service.requests("kill") == []
    service.release()
    tries.run(make(service.spark_submit, service.plan("runs")))
    assert len(service.submitted()) == 1


# --- the ResourceManager ---


def test_a_fail_over_in_mid_poll_is_followed(service: YarnService, yarn: YarnStandIn) -> None:
    """The other ResourceManager takes over: the same application, the same attempt, no cancel."""
    operator, tries = make(service.spark_submit, service.plan("runs")), TaskTries()
    moved: list[str] = []

    def move() -> None:
        if not moved:
            moved.append(yarn.active)
            yarn.fail_over("rm2" if yarn.active == "rm1" else "rm1")
            service.release()

    with at_point("mid_poll", move):
        tries.run(operator)
    assert moved
    assert len(service.submitted()) == 1
    assert service.requests("kill") == []


@pytest.mark.parametrize("recover", [True, False])
def test_a_restarted_resource_manager(service: YarnService, yarn: YarnStandIn, recover: bool) -> None:
    """With recovery the application is watched on; without it is missing, and on_missing decides."""
    tries, name = TaskTries(), yarn.active
    assert tries.crash(lambda: make(service.spark_submit, service.plan("runs")), "after_id")
    yarn.restart(name, recover=recover)
    service.release()
    if recover:
        tries.run(make(service.spark_submit, service.plan("runs")))
        assert len(service.submitted()) == 1
        return
    with pytest.raises(JobMissing, match="on_missing=resubmit"):
        tries.run(make(service.spark_submit, service.plan("runs")))
    assert len(service.submitted()) == 1
    tries.run(make(service.spark_submit, service.plan("runs")), {"on_missing": "resubmit"})
    assert len(service.submitted()) == 2


def test_three_refusals_while_polling_fail_nothing(service: YarnService) -> None:
    """503 three times: waited out, the application is neither killed nor doubled."""
    operator, tries = make(service.spark_submit, service.plan("runs")), TaskTries()
    spoiled: list[int] = []

    def spoil() -> None:
        if not spoiled:
            spoiled.append(1)
            service.yarn.fail("status", "unavailable", times=3)
            service.release()

    with at_point("mid_poll", spoil):
        tries.run(operator)
    assert [row["fault"] for row in service.requests("status")].count("unavailable") == 3
    assert (len(service.submitted()), service.requests("kill")) == (1, [])


def test_a_connection_that_names_another_cluster_changes_nothing_for_what_runs(
    service: YarnService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application is watched where it was started."""
    tries = TaskTries()
    assert tries.crash(lambda: make(service.spark_submit, service.plan("runs")), "after_id")
    service.release()
    with YarnStandIn(tmp_path / "other") as other:
        monkeypatch.setenv(CONNECTION, connection(other.address))
        tries.run(make(service.spark_submit, service.plan("runs")))
        assert other.requests() == []
    assert len(service.submitted()) == 1


# --- beside the provider's own operator ---


def test_a_run_moves_from_the_stock_operator_to_ours(
    service: YarnService, task: Callable[..., YarnTask]
) -> None:
    """The provider's own operator dies while polling; ours takes its application over."""
    ours = task(
        operator_class=SparkSubmitOperator, connection=connection(service.yarn.url(service.yarn.active))
    )
    attempt = ours.start()
    until(lambda: ours.driver is not None)
    attempt.kill()
    ours.operator_class = ResumableSparkSubmitOperator
    service.release()

    assert ours.attempt(2) is None
    assert service.submitted() == [ours.driver]
    assert ours.record["phase"] == "succeeded"


def test_a_run_moves_from_ours_to_the_stock_operator(
    service: YarnService, task: Callable[..., YarnTask]
) -> None:
    """Ours dies while polling; the provider's own operator reconnects to its application."""
    ours = task(connection=connection(service.yarn.url(service.yarn.active)))
    begin(ours, "mid_poll").kill()
    service.release()
    until(lambda: not service.yarn.is_live(ours.driver))
    ours.operator_class = SparkSubmitOperator

    assert ours.start(2).end() == ("returned", "None")
    assert service.submitted() == [ours.driver]


def test_no_more_status_calls_than_the_parents(service: YarnService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Side by side over six pauses of the parent's length: as many looks, or fewer."""
    monkeypatch.setenv(CONNECTION, connection(service.yarn.url(service.yarn.active)))
    counts, pauses = {}, {}
    sleep = time.sleep
    for kind in (SparkSubmitOperator, ResumableSparkSubmitOperator):
        service.gate.unlink(missing_ok=True)
        slept: list[float] = []
        me = threading.current_thread()

        def nap(seconds: float, slept: list[float] = slept, me: threading.Thread = me) -> None:
            if threading.current_thread() is not me or seconds < 1:
                return sleep(seconds)
            slept.append(seconds)
            if len(slept) == 6:
                service.release()
            return None

        operator = make(
            service.spark_submit,
            service.plan("runs"),
            operator_class=kind,
            yarn_track_via_rm_api=True,
            status_poll_interval=7,
        )
        vars(operator).pop("get_poll_interval")
        before = len(service.requests("status"))
        with mock.patch("time.sleep", nap):
            TaskTries(run_id=kind.__name__).run(operator)
        until(lambda: not clients(service))
        counts[kind] = len(service.requests("status")) - before
        pauses[kind] = slept
    assert pauses[ResumableSparkSubmitOperator] == pauses[SparkSubmitOperator] == [10] * 6
    assert counts[ResumableSparkSubmitOperator] <= counts[SparkSubmitOperator]
