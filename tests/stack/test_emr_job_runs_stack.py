# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The operators of job runs on a real Airflow with a triggerer, and a stand-in for AWS, whose log counts.

What befalls a run in a worker is shown by ``demo --system emr-serverless`` on a real Airflow too.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.testing.aws import AwsService
from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.stack import AirflowStack
from tests import systems
from tests.emr_job_runs import JobRunService
from tests.stack.kills import until

pytestmark = [pytest.mark.stack, pytest.mark.slow]

SOURCE = """
from datetime import timedelta

from airflow.sdk import DAG

from airflow_resumable.operators.emr_containers import ResumableEmrContainerOperator
from airflow_resumable.operators.emr_serverless import ResumableEmrServerlessStartJobOperator

ROLE = "arn:aws:iam::123456789012:role/job"
LOGS = {"monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": "s3://logs/spark"}}}
ARGUMENTS = {"retries": 2, "retry_delay": timedelta(seconds=1)}
for suffix, deferrable in (("", False), ("_deferred", True)):
    with DAG(f"op_emr_serverless{suffix}", schedule=None, default_args=ARGUMENTS):
        ResumableEmrServerlessStartJobOperator(
            task_id="job",
            application_id="{{ dag_run.conf['place'] }}",
            execution_role_arn=ROLE,
            job_driver={"sparkSubmit": {"entryPoint": "s3://bucket/job.py"}},
            configuration_overrides=LOGS,
            waiter_delay=1,
            waiter_max_attempts=600,
            deferrable=deferrable,
        )
    with DAG(f"op_emr_containers{suffix}", schedule=None, default_args=ARGUMENTS):
        ResumableEmrContainerOperator(
            task_id="job",
            name="nightly",
            virtual_cluster_id="{{ dag_run.conf['place'] }}",
            execution_role_arn=ROLE,
            release_label="emr-7.0.0-latest",
            job_driver={"sparkSubmitJobDriver": {"entryPoint": "s3://bucket/job.py"}},
            poll_interval=1,
            deferrable=deferrable,
        )
"""

Service = Any
BOTH = pytest.mark.parametrize("service", ["emr-serverless", "emr-containers"])


@pytest.fixture(scope="module")
def own_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsService]:
    """A stand-in whose address stays the same as long as the Airflow lives."""
    systems.require("moto")
    with AwsService(tmp_path_factory.mktemp("emr-job-runs")) as running:
        yield running


@pytest.fixture(scope="module")
def airflow(
    tmp_path_factory: pytest.TempPathFactory,
    template_db: Path,
    crash_controller: CrashController,
    own_aws: AwsService,
) -> Iterator[AirflowStack]:
    """An Airflow whose tasks find the stand-in."""
    env = {**crash_controller.env, **own_aws.environment()}
    home = tmp_path_factory.mktemp("emr-job-runs-airflow")
    with AirflowStack(home, env=env, template_db=template_db, triggerer=True) as running:
        running.add_dag(SOURCE, "job_runs.py")
        for name in ("serverless", "containers"):
            for suffix in ("", "_deferred"):
                running.wait_for_dag(f"op_emr_{name}{suffix}", 120)
        yield running


def test_the_links_lead_to_the_run_while_it_is_at_work(
    airflow: AirflowStack, crash: CrashController, own_aws: AwsService
) -> None:
    """In a second try too, whose worker was killed; and there is one run."""
    runs, dag = JobRunService(own_aws, "emr-serverless"), "op_emr_serverless"
    crash.on("mid_poll", "kill_task", dag_id=dag, task_id="job", try_number=1)
    run = airflow.trigger(dag, conf={"place": runs.place})
    crash.wait("mid_poll", run_id=run, task_id="job", try_number=2, timeout=90)
    links = airflow.request("GET", f"/dags/{dag}/dagRuns/{run}/taskInstances/job/links")["extra_links"]
    runs.release()
    airflow.wait_for(dag, run, "job", {"success"}, timeout=90)
    (started,) = runs.ids()

    assert links["S3 Logs"].endswith(f"prefix=spark/applications/{runs.place}/jobs/{started}/")
    assert links["Job"].endswith(f"#/serverless-applications/{runs.place}/job-runs/{started}")
    assert runs.cancels() == 0
    assert airflow.xcom(dag, run, "job") == started


@BOTH
def test_a_triggerer_that_is_killed_loses_no_run(
    airflow: AirflowStack, crash: CrashController, own_aws: AwsService, service: Service
) -> None:
    """The one that comes back watches on; no cancel, no second run, no second try."""
    runs, dag = JobRunService(own_aws, service), f"op_{service.replace('-', '_')}_deferred"
    run = airflow.trigger(dag, conf={"place": runs.place})
    crash.wait("in_trigger", run_id=run, task_id="job", timeout=90)
    airflow.restart("triggerer", signal.SIGKILL)
    crash.reset()
    crash.wait("in_trigger", run_id=run, task_id="job", timeout=90)
    runs.release()
    ended = airflow.wait_for(dag, run, "job", {"success"}, timeout=90)

    assert ended["try_number"] == 1
    assert runs.cancels() == 0
    assert [airflow.xcom(dag, run, "job")] == runs.ids()


@BOTH
def test_a_deferred_task_that_is_marked_failed_ends_its_run(
    airflow: AirflowStack, crash: CrashController, own_aws: AwsService, service: Service
) -> None:
    """By one cancel, from the triggerer."""
    runs, dag = JobRunService(own_aws, service), f"op_{service.replace('-', '_')}_deferred"
    run = airflow.trigger(dag, conf={"place": runs.place})
    crash.wait("in_trigger", run_id=run, task_id="job", timeout=90)
    airflow.mark(dag, run, "job", "failed")

    until("the run is cancelled", lambda: not any(one.live for one in runs.jobs()))
    assert (len(runs.ids()), runs.cancels()) == (1, 1)


@BOTH
def test_a_worker_that_is_killed_in_its_submit_starts_no_second_run(
    airflow: AirflowStack, crash: CrashController, own_aws: AwsService, service: Service
) -> None:
    """After the service's answer and before the id is on record."""
    runs, dag = JobRunService(own_aws, service), f"op_{service.replace('-', '_')}_deferred"
    crash.on("after_accept", "kill_task", dag_id=dag, task_id="job", try_number=1)
    run = airflow.trigger(dag, conf={"place": runs.place})
    crash.wait("in_trigger", run_id=run, task_id="job", timeout=90)
    runs.release()
    ended = airflow.wait_for(dag, run, "job", {"success"}, timeout=90)

    assert ended["try_number"] == 2
    assert (len(runs.ids()), runs.cancels()) == (1, 0)
