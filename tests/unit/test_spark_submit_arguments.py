# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableSparkSubmitOperator` in a Dag file: arguments, defaults, what it keeps of its parent."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
import warnings
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

from airflow_resumable.jobs.link import JobLink
from airflow_resumable.operators import _spark_parent, spark_submit
from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator


def make(**arguments: Any) -> ResumableSparkSubmitOperator:
    """Return an operator with enough retries not to be warned about."""
    return ResumableSparkSubmitOperator(task_id="task", **{"retries": 2, **arguments})


@pytest.mark.parametrize(
    ("argument", "value", "error", "allowed"),
    [
        ("deploy_mode", "clutser", ValueError, "'cluster', 'client' or None"),
        ("status_poll_interval", 0, ValueError, "more than 0"),
        ("status_poll_interval", -1, ValueError, "more than 0"),
        ("status_poll_interval", float("inf"), ValueError, "more than 0"),
        ("status_poll_interval", "5", TypeError, "seconds"),
        ("status_poll_interval", True, TypeError, "seconds"),
        ("durable", "yes", TypeError, "True or False"),
        ("resume_policy", {"on_clear": "perhaps"}, ValueError, "'resubmit' or 'reconnect'"),
    ],
)
def test_a_wrong_argument_is_refused_when_the_dag_is_parsed(
    argument: str, value: Any, error: type[Exception], allowed: str
) -> None:
    """The error names the argument, the value and what is allowed."""
    with pytest.raises(error) as caught:
        make(**{argument: value})

    text = str(caught.value)
    assert argument in text
    assert repr(value if not isinstance(value, dict) else value["on_clear"]) in text
    assert allowed in text


def test_it_takes_what_its_parent_takes() -> None:
    """Each argument, template field and key of the provider's operator is there, with the same default."""
    for name, parameter in inspect.signature(SparkSubmitOperator.__init__).parameters.items():
        if name in ("self", "kwargs"):
            continue
        if name in ("durable", "reconnect_on_retry"):
            continue
        default = getattr(make(), name, getattr(make(), f"_{name}", None))
        stock = SparkSubmitOperator(task_id="task")
        assert default == getattr(stock, name, getattr(stock, f"_{name}", None)), (name, parameter)

    assert make().template_fields == SparkSubmitOperator.template_fields
    assert make().external_id_key == SparkSubmitOperator.external_id_key == "spark_job_id"
    links = make().operator_extra_links
    assert links[:-1] == SparkSubmitOperator(task_id="task").operator_extra_links
    assert isinstance(links[-1], JobLink)


@pytest.mark.parametrize(
    ("arguments", "durable"),
    [({}, True), ({"durable": False}, False), ({"durable": True}, True)],
)
def test_it_is_durable_unless_told_otherwise(arguments: dict[str, Any], durable: bool) -> None:
    """`durable` means what it means to the parent."""
    assert make(**arguments).durable is durable


@pytest.mark.parametrize("value", [True, False])
def test_the_deprecated_name_of_durable_still_counts(value: bool) -> None:
    """`reconnect_on_retry` sets `durable`, with the parent's own warning."""
    with pytest.warns(match="reconnect_on_retry"):
        operator = make(reconnect_on_retry=value)

    assert operator.durable is value


def test_default_args_reach_our_arguments() -> None:
    """What a Dag sets for all its tasks is taken, a policy as a plain dict too."""
    defaults = {"durable": False, "deploy_mode": "cluster", "resume_policy": {"on_clear": "reconnect"}}
    with DAG("dag", default_args=defaults, schedule=None):
        operator = make()

    assert (operator.durable, operator._deploy_mode) == (False, "cluster")
    assert operator.resume_policy.on_clear == "reconnect"


def test_no_retries_are_warned_about() -> None:
    """A task that has no second try can't reconnect."""
    with pytest.warns(UserWarning, match="retries=0"):
        make(retries=0)


def test_a_run_that_openlineage_names_anew_is_the_same_job() -> None:
    """The parent run's id that OpenLineage adds to `conf` for each try doesn't change the job's spec."""
    first, second, other = (
        make(conf={"spark.openlineage.parentRunId": run, "spark.x": x})
        for run, x in (("try-1", "1"), ("try-2", "1"), ("try-2", "2"))
    )
    context: Any = {}

    assert first.get_job_spec(context) == second.get_job_spec(context) != other.get_job_spec(context)


@pytest.mark.parametrize(
    ("owner", "name"),
    [("SparkSubmitOperator", "_get_hook"), ("SparkSubmitHook", "_process_spark_submit_log")],
)
def test_a_provider_that_lacks_something_is_refused_on_import(
    monkeypatch: pytest.MonkeyPatch, owner: str, name: str
) -> None:
    """The error names what is missing, where, and the versions that have it."""
    holder = {"SparkSubmitOperator": SparkSubmitOperator, "SparkSubmitHook": SparkSubmitHook}[owner]
    monkeypatch.delattr(holder, name)
    with pytest.raises(ImportError) as caught:
        importlib.reload(spark_submit)

    assert f"{owner} of the installed apache-airflow-providers-apache-spark has no {name}" in str(
        caught.value
    )
    assert _spark_parent.TESTED_WITH[0] in str(caught.value)


def test_a_provider_whose_objects_lack_something_is_refused_on_construction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What only an object has is looked for as soon as there is one."""
    monkeypatch.setattr(_spark_parent, "OPERATOR_SELF", ("_hook", "_gone"))
    with pytest.raises(ImportError, match=r"ResumableSparkSubmitOperator .* has no _gone"):
        make()


def test_a_dag_file_pays_for_no_http_client() -> None:
    """Importing the operator imports neither our own HTTP code nor the parts that run in a task."""
    code = (
        "import sys; from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator; "
        "print([name for name in sys.modules if name.startswith(('airflow_resumable.operators._', "
        "'airflow_resumable.jobs.'))])"
    )
    with warnings.catch_warnings():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]

    assert "_spark_parent" in loaded
    for late in ("_spark_master", "_driver_search", "_submit_client", "jobs.attempt", "jobs.record"):
        assert late not in loaded
