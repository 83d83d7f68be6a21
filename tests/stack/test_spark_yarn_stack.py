# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Spark on YARN under a real Airflow whose workers die; the ResourceManager is a stand-in, its log counts."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.stack import AirflowStack
from airflow_resumable.testing.yarn_stand_in import YarnStandIn
from tests.stack.kills import until

pytestmark = [pytest.mark.stack, pytest.mark.slow]

DAG = """
    from datetime import timedelta

    from airflow.sdk import DAG
    from airflow_resumable.operators._spark_yarn import YarnTarget
    from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator

    YarnTarget.least_poll_interval = 0.2

    with DAG("yarn", schedule=None, params={{"gate": ""}}):
        ResumableSparkSubmitOperator(
            task_id="job",
            conn_id="yarn",
            application="app.jar",
            application_args=['{{"gate": "{{{{ params.gate }}}}"}}'],
            spark_binary="{spark_submit}",
            status_poll_interval=0.2,
            post_submit_commands=["sh -c 'echo done >> {{{{ params.gate }}}}.done'"],
            retries=2,
            retry_delay=timedelta(seconds=1),
        )
"""


@pytest.fixture(scope="module")
def yarn(stack: AirflowStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnStandIn]:
    """The stand-in, an Airflow connection to it, and the Dag."""
    folder = tmp_path_factory.mktemp("yarn")
    with YarnStandIn(folder / "yarn", managers=2) as running:
        extra = f'{{"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": "{running.address}"}}'
        given = {"connection_id": "yarn", "conn_type": "spark", "host": "yarn", "extra": extra}
        stack.request("POST", "/connections", json=given)
        text = textwrap.dedent(DAG).format(spark_submit=running.spark_submit(folder))
        stack.add_dag(text, "yarn.py")
        stack.wait_for_dag("yarn")
        yield running


@pytest.fixture
def run(stack: AirflowStack, yarn: YarnStandIn, tmp_path: Path) -> Iterator[Callable[[], tuple[str, Path]]]:
    """Start a run whose application runs until its gate is there; return its id and the gate."""
    gate = tmp_path / "gate"

    def start() -> tuple[str, Path]:
        return stack.trigger("yarn", conf={"gate": str(gate)}), gate

    yield start
    gate.touch()


@pytest.mark.parametrize("action", ["kill_task", "kill_supervisor", "term_task"])
@pytest.mark.parametrize("point", ["after_accept", "mid_poll"])
def test_a_worker_that_dies_leaves_one_application(
    run: Callable[[], tuple[str, Path]],
    stack: AirflowStack,
    yarn: YarnStandIn,
    crash: CrashController,
    point: str,
    action: str,
) -> None:
    """The second try watches the same application to its end, and nobody has asked for a kill."""
    before = len(yarn.submitted())
    crash.on(point, action, task_id="job")
    name, gate = run()
    crash.wait("mid_poll", run_id=name, try_number=2)
    assert not gate.with_name("gate.done").exists()
    gate.touch()
    stack.wait_for("yarn", name, "job", {"success"})

    assert len(yarn.submitted()) == before + 1
    assert [row for row in yarn.requests("kill") if row["app"] == yarn.submitted()[-1]] == []
    assert gate.with_name("gate.done").read_text().splitlines() == ["done"]


def test_a_user_who_marks_the_task_failed_kills_the_application_once(
    run: Callable[[], tuple[str, Path]], stack: AirflowStack, yarn: YarnStandIn, crash: CrashController
) -> None:
    """The supervisor ends the task with SIGTERM; one kill request is taken, and the application is KILLED."""
    name, _ = run()
    crash.wait("mid_poll", run_id=name)
    app = yarn.submitted()[-1]
    stack.mark("yarn", name, "job", "failed")
    until("the application is killed", lambda: yarn.applications()[app]["state"] == "KILLED")
    assert [row["code"] for row in yarn.requests("kill") if row["app"] == app].count(202) == 1
