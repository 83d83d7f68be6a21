# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The BigQuery operator on a real Airflow with a triggerer; the emulator's own log counts.

What befalls it in a worker is shown by ``demo --system bigquery`` on a real Airflow too.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_resumable.testing.bigquery.emulator import BigQueryEmulator, until
from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.stack import AirflowStack
from tests import bigquery_service as bq
from tests.stack.kills import until as wait_until

pytestmark = [pytest.mark.stack, pytest.mark.slow]

SOURCE = """
from datetime import timedelta

from airflow.sdk import DAG

from airflow_resumable.operators.bigquery import ResumableBigQueryInsertJobOperator

ARGUMENTS = {"retries": 2, "retry_delay": timedelta(seconds=1)}
for name, deferrable in (("op_bigquery", False), ("op_bigquery_deferred", True)):
    with DAG(name, schedule=None, default_args=ARGUMENTS):
        ResumableBigQueryInsertJobOperator(
            task_id="job",
            job_id="{{ dag_run.run_id | replace('.', '_') }}",
            configuration={"query": {"query": "{{ dag_run.conf['sql'] }}", "useLegacySql": False}},
            gcp_conn_id="bigquery_test",
            location="EU",
            poll_interval=1,
            deferrable=deferrable,
        )
"""


class Counted:
    """What the emulator's log says of one run."""

    def __init__(self, bigquery: BigQueryEmulator, run: str) -> None:
        self._bigquery = bigquery
        self._prefix = run.replace(".", "_") + "_"

    @property
    def started(self) -> list[str]:
        """The ids of the jobs that were started."""
        return [one.job_id for one in self._bigquery.inserted() if one.job_id.startswith(self._prefix)]

    @property
    def cancels(self) -> int:
        """How many cancels were asked for."""
        return sum(one.is_cancel and one.job_id.startswith(self._prefix) for one in self._bigquery.calls())


@pytest.fixture(scope="module")
def airflow(
    tmp_path_factory: pytest.TempPathFactory,
    template_db: Path,
    crash_controller: CrashController,
    bigquery: BigQueryEmulator,
) -> Iterator[AirflowStack]:
    """An Airflow whose tasks find the emulator as Google's own client does."""
    env = {
        **crash_controller.env,
        bq.EMULATOR_HOST: bigquery.url,
        bq.CONNECTION: bq.connection(bigquery.project),
    }
    home = tmp_path_factory.mktemp("bigquery-airflow")
    with AirflowStack(home, env=env, template_db=template_db, triggerer=True) as running:
        running.add_dag(SOURCE, "bigquery.py")
        for dag in ("op_bigquery", "op_bigquery_deferred"):
            running.wait_for_dag(dag, 120)
        yield running


def test_the_links_lead_to_the_job_while_it_runs(
    airflow: AirflowStack, crash: CrashController, bigquery: BigQueryEmulator, tmp_path: Path
) -> None:
    """In a second try too, whose worker was killed; and there is one job."""
    gate = tmp_path / "gate"
    crash.on("mid_poll", "kill_task", dag_id="op_bigquery", task_id="job", try_number=1)
    run = airflow.trigger("op_bigquery", conf={"sql": until(gate)})
    crash.wait("mid_poll", run_id=run, task_id="job", try_number=2, timeout=90)
    path = f"/dags/op_bigquery/dagRuns/{run}/taskInstances/job/links"
    links = airflow.request("GET", path)["extra_links"]
    gate.touch()
    airflow.wait_for("op_bigquery", run, "job", {"success"}, timeout=90)
    seen = Counted(bigquery, run)

    assert links["BigQuery Job Detail"].startswith("https://console.cloud.google.com/bigquery?project=proj&")
    assert links["BigQuery Job Detail"].endswith(f"!2s{seen.started[0]}!3sEU")
    assert (len(seen.started), seen.cancels) == (1, 0)
    assert airflow.xcom("op_bigquery", run, "job") == seen.started[0]


def test_a_triggerer_that_is_killed_loses_no_job(
    airflow: AirflowStack, crash: CrashController, bigquery: BigQueryEmulator, tmp_path: Path
) -> None:
    """The one that comes back watches on; no cancel, no second job, no second try."""
    gate = tmp_path / "gate"
    run = airflow.trigger("op_bigquery_deferred", conf={"sql": until(gate)})
    crash.wait("in_trigger", run_id=run, task_id="job", timeout=90)
    airflow.restart("triggerer", signal.SIGKILL)
    crash.reset()
    crash.wait("in_trigger", run_id=run, task_id="job", timeout=90)
    gate.touch()
    ended = airflow.wait_for("op_bigquery_deferred", run, "job", {"success"}, timeout=90)
    seen = Counted(bigquery, run)

    assert ended["try_number"] == 1
    assert (len(seen.started), seen.cancels) == (1, 0)
    assert airflow.xcom("op_bigquery_deferred", run, "job") == seen.started[0]


def test_a_deferred_task_that_is_marked_failed_ends_its_job(
    airflow: AirflowStack, crash: CrashController, bigquery: BigQueryEmulator, tmp_path: Path
) -> None:
    """By one cancel, from the triggerer."""
    run = airflow.trigger("op_bigquery_deferred", conf={"sql": until(tmp_path / "gate")})
    crash.wait("in_trigger", run_id=run, task_id="job", timeout=90)
    airflow.mark("op_bigquery_deferred", run, "job", "failed")
    seen = Counted(bigquery, run)

    def cancelled() -> bool:
        job = bigquery.job(seen.started[0], "EU")
        return job is not None and job["status"].get("errorResult", {}).get("reason") == "stopped"

    wait_until("the job is cancelled", cancelled)
    assert (len(seen.started), seen.cancels) == (1, 1)
