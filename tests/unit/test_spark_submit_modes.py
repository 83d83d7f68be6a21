# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Which runs the protocol takes on and which are left to the parent, with a spark-submit that is a script."""

from __future__ import annotations

import gc
import json
import os
import signal
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator
from airflow_resumable.sdk import JobAmbiguous
from airflow_resumable.testing.memory_store import InMemoryTaskStateStore
from tests import spark_replies as replies
from tests.spark_replies import DRIVER, Replies, driver, page, status

# The provider leaves the pipes of its processes to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]

ACCEPTED = f"echo INFO ClientEndpoint: Driver successfully submitted as {DRIVER}"


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Leave no garbage to tests that don't expect it."""
    yield
    gc.collect()


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put a script on PATH as spark-submit; it leaves its arguments in the returned file, one a line."""

    def write(body: str) -> Path:
        arguments = tmp_path / "arguments"
        script = tmp_path / "bin" / "spark-submit"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> {arguments}\n{body}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
        return arguments

    return write


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the Spark connection."""

    def to(host: str, **extra: Any) -> None:
        value = {"conn_type": "spark", "host": host, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(value))

    return to


def make(**arguments: Any) -> ResumableSparkSubmitOperator:
    """Return an operator."""
    values = {"task_id": "task", "application": "app.jar", "java_class": "SleepApp", "retries": 2}
    return ResumableSparkSubmitOperator(**{**values, **arguments})


def context(operator: ResumableSparkSubmitOperator, try_number: int = 1, **more: Any) -> Any:
    """Return the context of an attempt, with a store in memory."""
    ti = SimpleNamespace(
        id=uuid.uuid4(),
        dag_id="dag",
        run_id="run",
        task_id="task",
        map_index=-1,
        try_number=try_number,
        max_tries=2,
        stats_tags={},
        get_task_states=lambda **_: {"run": {"task": "running"}},
    )
    return {
        "ti": ti,
        "task": operator,
        "dag_run": SimpleNamespace(start_date=None),
        "task_state_store": InMemoryTaskStateStore(),
        **more,
    }


def finished(*drivers: dict[str, Any]) -> Replies:
    """Return a cluster on which every driver has finished."""
    return Replies({"GET /v1/submissions/status/": status("FINISHED"), "GET /json/": page(*drivers)})


def cluster_extra(server: Replies) -> dict[str, Any]:
    """Return the extra of a connection to a server of replies."""
    return {"deploy-mode": "cluster", "rest-port": server.port, "webui-port": server.port}


@pytest.mark.parametrize(
    ("host", "extra"),
    [("spark://m1:7077", {"deploy-mode": "client"}), ("local[1]", {}), ("yarn", {"deploy-mode": "client"})],
)
def test_client_mode_is_left_to_the_parent(
    submit: Callable[[str], Path], connect: Callable[..., None], host: str, extra: dict[str, str]
) -> None:
    """spark-submit runs to its end, nothing is stored, and nothing of ours is on the command line."""
    arguments = submit("echo done")
    connect(host, **extra)
    operator = make()
    given = context(operator)

    operator.execute(given)
    assert given["task_state_store"].operations == []
    assert "resumable" not in arguments.read_text()


def test_yarn_cluster_mode_without_durable_is_the_parents(
    submit: Callable[[str], Path], connect: Callable[..., None]
) -> None:
    """`durable` False: no ResourceManager's address is asked for, nothing is stored or marked."""
    arguments = submit("echo done")
    connect("yarn", **{"deploy-mode": "cluster"})
    operator = make(durable=False)
    given = context(operator)

    operator.execute(given)
    assert given["task_state_store"].operations == []
    assert "resumable" not in arguments.read_text()


def test_a_stop_in_client_mode_is_the_parents(
    submit: Callable[[str], Path], connect: Callable[..., None]
) -> None:
    """on_kill ends the spark-submit that carries the job, as the parent's does; nothing is kept."""
    submit("exec sleep 600")
    connect("local[1]")
    operator = make()

    def stop(signum: int, frame: Any) -> None:
        operator.on_kill()

    previous = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(AirflowException, match=r"Error code is: -9"):
            operator.execute(context(operator))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_without_durable_a_standalone_driver_is_the_parents(
    submit: Callable[[str], Path], connect: Callable[..., None]
) -> None:
    """`durable` False: the parent's submit and the parent's polling; nothing is stored or marked."""
    arguments = submit(ACCEPTED)
    with finished() as server:
        connect("spark://127.0.0.1:7077", **cluster_extra(server))
        operator = make(durable=False)
        given = context(operator)
        operator.execute(given)

    assert given["task_state_store"].operations == []
    assert "resumable" not in arguments.read_text()


def test_switched_off_it_is_the_parent(
    submit: Callable[[str], Path], connect: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``[resumable] enabled = False``: the provider's key alone is written, by Airflow's own mixin."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__ENABLED", "False")
    arguments = submit(ACCEPTED)
    with finished() as server:
        connect("spark://127.0.0.1:7077", **cluster_extra(server))
        operator = make()
        given = context(operator)
        operator.execute(given)

    assert given["task_state_store"].values == {"spark_job_id": json.dumps(DRIVER)}
    assert "resumable" not in arguments.read_text()


def test_the_token_is_on_the_command_line_and_not_in_the_operators_conf(
    submit: Callable[[str], Path], connect: Callable[..., None]
) -> None:
    """The driver carries the token of the intent; the task's rendered `conf` stays as it was."""
    arguments = submit(ACCEPTED)
    with finished() as server:
        connect("spark://127.0.0.1:7077", **cluster_extra(server))
        operator = make(conf={"spark.x": "1", "spark.airflow.resumable.mark": "somebody's"})
        given = context(operator)
        operator.execute(given)
    record = given["task_state_store"].peek("resumable.spark_job_id")

    assert f"spark.airflow.resumable.mark={record['token']}" in arguments.read_text().splitlines()
    assert operator.conf == {"spark.x": "1", "spark.airflow.resumable.mark": "somebody's"}
    assert (record["external_id"], record["location"]) == (DRIVER, "spark://127.0.0.1:7077")
    assert record["before"] == {"drivers": [], "main_class": "SleepApp", "oldest": 0}


def test_a_spark_submit_that_fails_is_told_with_its_masked_output(
    submit: Callable[[str], Path], connect: Callable[..., None]
) -> None:
    """The parent's error: exit code, command and last lines, passwords blanked out."""
    submit("echo Exception in thread main: no such class, my.password=hunter2; exit 7")
    with finished() as server:
        connect("spark://127.0.0.1:7077", **cluster_extra(server))
        operator = make(conf={"spark.ssl.keyPassword": "hunter2"})
        with pytest.raises(AirflowException, match=r"Error code is: 7\.") as caught:
            operator.execute(context(operator))

    assert "no such class" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_spark_submit_that_ends_well_without_an_id_is_an_error(
    submit: Callable[[str], Path], connect: Callable[..., None]
) -> None:
    """No id and no new driver on the master's list: as the parent."""
    submit("echo nothing to say")
    with finished(driver("driver-old", "FINISHED")) as server:
        connect("spark://127.0.0.1:7077", **cluster_extra(server))
        operator = make()
        with pytest.raises(AirflowException, match=r"No driver id is known(.|\n)*nothing to say"):
            operator.execute(context(operator))


def test_a_driver_that_was_taken_without_a_word_is_found(
    submit: Callable[[str], Path], connect: Callable[..., None]
) -> None:
    """spark-submit died or its log level hides the id: the driver with our mark is the one."""
    arguments = submit("exit 1")
    with finished() as server:

        def listed(request: str) -> dict[str, Any]:
            submitted = [driver()] if arguments.exists() else []
            return page(*submitted, workers={"worker-1": server.url})

        def log(request: str) -> str:
            line = next(one for one in arguments.read_text().splitlines() if "resumable.mark=" in one)
            return replies.log(line.partition("=")[2])

        server.replies.update({"GET /json/": listed, "GET /log/": log})
        connect("spark://127.0.0.1:7077", **cluster_extra(server))
        operator = make()
        given = context(operator)
        operator.execute(given)

    assert given["task_state_store"].peek("spark_job_id") == DRIVER


def test_a_driver_is_watched_where_it_was_started(
    submit: Callable[[str], Path], connect: Callable[..., None]
) -> None:
    """The connection names another cluster by now: the recorded one is asked."""
    arguments = submit(ACCEPTED)
    with finished() as old, Replies({}, host="127.0.0.2", port=old.port) as new:
        well, listed = dict(old.replies), iter([page()])
        old.replies["GET /v1/submissions/status/"] = replies.NOT_READY
        old.replies["GET /json/"] = lambda request: next(listed, (503, ""))
        connect("spark://127.0.0.1:7077", **cluster_extra(old))
        first = make(resume_policy={"status_error_budget": 0})
        given = context(first)
        with pytest.raises(Exception, match="status_error_budget"):
            first.execute(given)
        old.replies = well
        connect("spark://127.0.0.2:7077", **cluster_extra(new))
        second = make()
        given = context(second, 2, task_state_store=given["task_state_store"])
        second.execute(given)

    assert new.requests == []
    assert arguments.read_text().splitlines().count("app.jar") == 1


def test_two_drivers_taken_without_a_word_are_left_to_a_person(
    submit: Callable[[str], Path], connect: Callable[..., None]
) -> None:
    """spark-submit started two with our mark and told of none: neither is chosen."""
    arguments = submit("exit 1")
    with finished() as server:

        def listed(request: str) -> dict[str, Any]:
            submitted = [driver("driver-a"), driver("driver-b")] if arguments.exists() else []
            return page(*submitted, workers={"worker-1": server.url})

        def log(request: str) -> str:
            line = next(one for one in arguments.read_text().splitlines() if "resumable.mark=" in one)
            return replies.log(line.partition("=")[2])

        server.replies.update({"GET /json/": listed, "GET /log/": log})
        connect("spark://127.0.0.1:7077", **cluster_extra(server))
        operator = make()
        with pytest.raises(JobAmbiguous, match="driver-a, driver-b"):
            operator.execute(context(operator))
