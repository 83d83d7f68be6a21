# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableSparkConnectOperator` in a Dag file: arguments, warnings, and what an import brings along."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from datetime import timedelta
from typing import Any

import pytest

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.operators.spark_connect import ResumableSparkConnectOperator


def make(**arguments: Any) -> ResumableSparkConnectOperator:
    """Return an operator that nothing is to be said of."""
    settings = {"sql": "SELECT 1", "retries": 2, "retry_delay": timedelta(seconds=30), **arguments}
    return ResumableSparkConnectOperator(**{"task_id": "task", **settings})


async def _async_build(spark: Any) -> Any:
    return spark.range(1)


@pytest.mark.parametrize(
    ("arguments", "error", "allowed"),
    [
        ({"sql": None}, ValueError, "give one of them"),
        ({"build": print}, ValueError, "give one of them"),
        ({"sql": None, "build": "print"}, TypeError, "use a function"),
        ({"sql": None, "build": _async_build}, TypeError, "not an async one"),
        ({"sql": ""}, ValueError, "use a statement"),
        ({"sql": " \n"}, ValueError, "use a statement"),
        ({"sql": 5}, TypeError, "use a statement"),
        ({"sql": ["SELECT 1"]}, TypeError, "use a statement"),
        ({"conn_id": None}, TypeError, "use the id of a connection"),
        ({"conn_id": 5}, TypeError, "use the id of a connection"),
        ({"conn_id": " "}, ValueError, "use the id of a connection"),
        ({"deferrable": "yes"}, TypeError, "use True or False"),
        ({"conf": "abc"}, TypeError, "use a dict of settings"),
        ({"conf": [("a", "b")]}, TypeError, "use a dict of settings"),
        ({"conf": {"": "b"}}, ValueError, "use a dict of settings"),
        ({"conf": {5: "b"}}, TypeError, "use a dict of settings"),
        ({"sql": None, "build": print, "op_kwargs": [1]}, TypeError, "use a dict by the names"),
        ({"sql": None, "build": print, "op_kwargs": "abc"}, TypeError, "use a dict by the names"),
        ({"sql": None, "build": print, "op_kwargs": {1: 2}}, TypeError, "use a dict by the names"),
        ({"op_kwargs": {"a": 1}}, ValueError, "op_kwargs is for build"),
        ({"result_rows_limit": 0}, ValueError, "use 1 or more"),
        ({"result_rows_limit": True}, TypeError, "use a whole number"),
        ({"status_poll_interval": 0}, ValueError, "up to 60"),
        ({"status_poll_interval": 1e-9}, ValueError, "from 0.1 up to 60"),
        ({"status_poll_interval": float("nan")}, ValueError, "up to 60"),
        ({"status_poll_interval": 61}, ValueError, "up to 60"),
        ({"status_poll_interval": "5"}, TypeError, "use seconds"),
        ({"detached_timeout": 300}, TypeError, "use a timedelta"),
        ({"detached_timeout": timedelta(seconds=10)}, ValueError, "more than twice status_poll_interval=5.0"),
        ({"durable": "yes"}, TypeError, "True or False"),
    ],
)
def test_a_wrong_argument_is_refused_when_the_dag_is_parsed(
    arguments: dict[str, Any], error: type[Exception], allowed: str
) -> None:
    """The error names the argument, the value and what is allowed."""
    with pytest.raises(error, match=allowed) as caught:
        make(**arguments)
    name, value = list(arguments.items())[-1]
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)


def test_a_setting_without_a_value_is_refused_by_its_name() -> None:
    """It would reach Spark as the text None."""
    with pytest.raises(TypeError, match=r"conf\['a'\]=None is not allowed; use a string or a number"):
        make(conf={"a": None})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sql": "  "}, "sql='  ' is not allowed"),
        ({"conn_id": ""}, "conn_id='' is not allowed"),
        ({"conf": {"a": None}}, r"conf\['a'\]=None is not allowed"),
        ({"op_kwargs": None}, "op_kwargs=None is not allowed"),
    ],
)
def test_what_a_template_was_rendered_to_is_looked_at_before_anything_is_started(
    change: dict[str, Any], said: str
) -> None:
    """A template may be rendered to nothing."""
    subject = make()
    for name, value in change.items():
        setattr(subject, name, value)
    with pytest.raises((TypeError, ValueError), match=said):
        subject.execute({})


def test_what_another_task_returns_is_waited_for() -> None:
    """Any template field may be given by another task."""
    from airflow.sdk import DAG

    with DAG("dag"):
        other = make(task_id="other").output
        subject = make(sql=other, conn_id=other, conf=other)
        made = make(sql=None, build=print, op_kwargs=other, conf={"a": other}, task_id="made")
    assert subject.upstream_task_ids == made.upstream_task_ids == {"other"}


@pytest.mark.parametrize(
    "late",
    [
        {"retry_delay": timedelta(minutes=5)},
        {"retry_exponential_backoff": 2},
        {"retry_exponential_backoff": 2, "max_retry_delay": timedelta(minutes=6)},
        {"retry_delay": timedelta(seconds=50), "detached_timeout": timedelta(seconds=40)},
    ],
    ids=str,
)
def test_a_retry_that_would_come_too_late_is_warned_of(late: dict[str, Any]) -> None:
    """The server cancels what nobody attaches to; Airflow's own default of 5 minutes is too long."""
    with pytest.warns(UserWarning, match="would come too late to find it"):
        make(**late)


@pytest.mark.parametrize(
    "early",
    [
        {"retry_delay": timedelta(minutes=4)},
        {"retry_exponential_backoff": 2, "max_retry_delay": timedelta(minutes=2)},
        {"retry_delay": timedelta(minutes=30), "detached_timeout": timedelta(hours=1)},
        {"retry_delay": timedelta(minutes=30), "durable": False},
        {"retry_delay": timedelta(minutes=30), "retries": 0, "durable": False},
    ],
    ids=str,
)
def test_a_retry_in_time_is_not(early: dict[str, Any]) -> None:
    """A server that keeps operations for longer is told of by `detached_timeout`."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(**early)


def test_a_dag_file_imports_neither_pyspark_nor_grpc() -> None:
    """A Dag is parsed again and again; pyspark takes a second."""
    code = (
        "import sys, airflow_resumable.operators.spark_connect as s\n"
        "from datetime import timedelta\n"
        "s.ResumableSparkConnectOperator(task_id='t', sql='x', retries=1, retry_delay=timedelta(seconds=9))\n"
        "print(*sorted({'pyspark', 'grpc', 'pyarrow', 'pandas', 'google.protobuf'} & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert said.stdout.split() == []


def test_what_the_triggerer_is_given_makes_an_operator_that_looks_the_same_way() -> None:
    """Through JSON, and without a word about retries."""
    subject = make(conn_id="other", status_poll_interval=7, detached_timeout=timedelta(minutes=9))
    arguments = json.loads(json.dumps(subject.get_watch_arguments({})))
    watching = ResumableSparkConnectOperator.for_watching(arguments)
    assert watching.get_watch_arguments({}) == subject.get_watch_arguments({})


def test_its_facts_are_what_it_can_do() -> None:
    """What the docs say of the window is what the decision goes by."""
    can, (facts,) = make().get_capabilities(), ResumableSparkConnectOperator.service_facts
    assert facts.submit_window is can.submit_window is SubmitWindow.CLOSED
    assert (can.cancel, can.find_by_token, can.tells_failed, can.deferrable) == (True,) * 4
    assert facts.retry_delay < timedelta(minutes=5)


def test_a_changed_statement_is_another_job() -> None:
    """So are another setting and another number of rows; another connection isn't."""
    specs = [
        make(**change).get_job_spec({})
        for change in ({}, {"sql": "SELECT 2"}, {"conf": {"a": "b"}}, {"result_rows_limit": 2})
    ]
    assert len({json.dumps(spec) for spec in specs}) == 4
    assert make(conn_id="other").get_job_spec({}) == specs[0]


@pytest.mark.parametrize(
    ("connection", "url", "user"),
    [
        ({"host": "spark"}, "sc://spark/", "airflow"),
        ({"host": "sc://spark", "port": 1}, "sc://spark:1/", "airflow"),
        ({"host": "spark", "login": "me", "password": "s"}, "sc://spark/;user_id=me;token=s", "me"),
    ],
)
def test_the_connection_names_server_and_user(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], url: str, user: str
) -> None:
    """Without a login it is the same user on each worker; a job of before stays where it was started."""
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps({"conn_type": "spark_connect", **connection})
    )
    assert make()._server() == (url, user)
    there, then = make()._server({"endpoint": "old:15002", "user_id": "them"})
    assert (there.partition(";")[0], then) == ("sc://old:15002/", "them")
    assert there.partition(";")[2] == url.partition(";")[2]


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thing that needs it is the task, not the Dag."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.proto", None)
    for name in ("_connect_plan", "_connect_client"):
        monkeypatch.delitem(sys.modules, f"airflow_resumable.operators.{name}", raising=False)
        monkeypatch.delattr(f"airflow_resumable.operators.{name}", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'airflow-resumable\[spark\]'"):
        make().submit_job({})


@pytest.mark.parametrize(
    ("sql", "none"),
    [
        ("INSERT INTO t VALUES (1)", True),
        (" -- a word\n/* and\nanother */ create or replace table t as select 1", True),
        ("insert_me()", False),
        ("SELECT 1", False),
        ("WITH a AS (SELECT 1) SELECT * FROM a", False),
        ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", False),
        ("-- INSERT\nSELECT 1", False),
    ],
)
def test_it_is_told_by_its_first_word_that_a_statement_gives_no_rows(sql: str, none: bool) -> None:
    """Where the server has dropped the rows, none are missed then."""
    assert make(sql=sql)._gives_no_rows() is none
