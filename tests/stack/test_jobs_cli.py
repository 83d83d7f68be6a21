# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""``airflow-resumable jobs`` on a real Airflow, against jobs whose tasks were really killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.stack import AirflowStack
from tests.stack.kills import until

pytestmark = pytest.mark.stack

SCRIPT = "from airflow_resumable.cli.main import main; raise SystemExit(main())"

DAG = """
    from datetime import timedelta

    from airflow.sdk import DAG, task
    from airflow_resumable.sdk import ExternalJob, resumable_job
    from airflow_resumable.testing.local_job import LocalJobOperator
    from airflow_resumable.testing.jobservice.client import JobServiceClient

    print("a Dag file that prints")
    GATED = "while [ ! -e '{{ params.gate }}' ]; do sleep 0.05; done; echo '{\\"rows\\": 7}'"

    class Job(ExternalJob):
        external_id_key = "function_job"

        def __init__(self, url):
            self._client = JobServiceClient(url)

        def submit_job(self, context):
            return self._client.submit(["true"], token=self.idempotency_token)["id"]

        def get_job_status(self, external_id, context):
            return self._client.status(external_id)["status"]

        def is_job_active(self, status):
            return status in ("QUEUED", "RUNNING")

        def is_job_succeeded(self, status):
            return status == "SUCCEEDED"

    @task
    def where(params):
        return params["service"]

    @task
    def function(url):
        return resumable_job(Job(url))

    with DAG("kept", schedule=None, params={"service": "", "gate": ""}):
        url = where()
        LocalJobOperator(
            task_id="job",
            service_url=url,
            command=["/bin/sh", "-c", GATED],
            poll_interval=0.1,
            retries=1,
            retry_delay=timedelta(seconds=1),
            resume_policy={"on_clear": "reconnect"},
        )
        function(url)
"""


class Commands:
    """The console script in the deployment's environment, and one run of the Dag."""

    def __init__(self, stack: AirflowStack, service: JobService, gate: Path) -> None:
        self.stack, self.service, self.gate = stack, service, gate
        self.run = stack.trigger("kept", conf={"service": service.url, "gate": str(gate)})

    def jobs(self, *words: str, status: int, run: bool = True) -> str:
        """Run ``jobs`` and return its standard output, which holds nothing but the answer."""
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, "jobs", *words, *(["--run-id", self.run] if run else [])],
            env=self.stack.env,
            cwd=self.stack.home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def json(self, *words: str, status: int, run: bool = True) -> Any:
        return json.loads(self.jobs(*words, "--json", status=status, run=run))

    def requests(self, verb: str) -> list[dict[str, Any]]:
        return [one for one in self.service.requests(verb) if one.get("job") == self.job]

    @property
    def job(self) -> str:
        """The first job of the killed task."""
        return str(self.submits[0]["job"])

    @property
    def submits(self) -> list[dict[str, Any]]:
        return self.service.requests("submit", client_contains=f"{self.run}/job", created=True)


@pytest.fixture
def kept(
    stack: AirflowStack, jobservice: JobService, crash: CrashController, tmp_path: Path
) -> Iterator[Commands]:
    """A run whose task was killed on each of its tries, so that it has failed and its job goes on."""
    stack.add_dag(DAG, "kept.py")
    stack.wait_for_dag("kept")
    crash.on("mid_poll", "kill_task", task_id="job", try_number=None, times=2)
    gate = tmp_path / "gate"
    commands = Commands(stack, jobservice, gate)
    stack.wait_for("kept", commands.run, "job", {"failed"}, timeout=200)
    yield commands
    gate.touch()


def test_a_job_whose_task_died_for_good_is_found_and_cancelled_once(kept: Commands) -> None:
    """A dry run changes nothing; ``--cancel`` sends one request by the service's own log."""
    before = kept.stack.task_states("kept", kept.run, "job")
    kept.stack.wait_for("kept", kept.run, "function", {"success"})
    report = kept.json("reconcile", "--dry-run", "--all", status=1)
    (finding,) = report["findings"]
    assert (finding["kind"], finding["task_state"]) == ("orphan", "failed")
    assert (finding["job"]["external_id"], finding["cancel_refused"]) == (kept.job, None)
    # The adapter of a job inside a @task function is known to that function alone.
    (unchecked,) = report["unchecked"]
    assert unchecked["task_id"] == "function"
    assert "resumable_job" in unchecked["reason"]
    assert kept.stack.task_states("kept", kept.run, "job") == before
    assert kept.requests("cancel") == []

    done = kept.json("reconcile", "--cancel", kept.job, status=0)
    assert kept.job in done["done"]
    client = kept.service.client()
    until("the job is cancelled", lambda: client.status(kept.job)["status"] == "CANCELLED")
    assert "no such job" in kept.json("reconcile", "--cancel", kept.job, status=4)["error"]
    assert len(kept.requests("cancel")) == 1


def test_a_task_that_was_cleared_keeps_its_job(kept: Commands, crash: CrashController) -> None:
    """What a running attempt owns is no finding any more; cancel and forget are refused, nothing is sent."""
    crash.reset()
    kept.stack.clear("kept", kept.run, "job", only_failed=False)
    crash.wait("mid_poll", run_id=kept.run, try_number=3)
    report = kept.json("reconcile", "--cancel", kept.job, "--task-id", "job", status=4)
    assert "no such job among the findings" in report["error"]
    assert "alive" in kept.json("reconcile", "--forget", kept.job, "--task-id", "job", status=4)["error"]
    assert kept.requests("cancel") == []
    kept.gate.touch()
    assert kept.stack.wait_for("kept", kept.run, "job", {"success"})["try_number"] == 3
    assert len(kept.submits) == 1


def test_a_forgotten_record_makes_the_next_attempt_start_afresh(kept: Commands) -> None:
    """Once the service has lost the job, the next try after a forget submits with a new token."""
    kept.gate.touch()
    client = kept.service.client()
    client.wait(kept.job)
    client.forget(kept.job)
    (finding,) = kept.json("reconcile", "--task-id", "job", status=1)["findings"]
    assert finding["kind"] == "missing"
    assert "generation 2" in kept.jobs("reconcile", "--forget", kept.job, status=0)
    # on_clear=reconnect: a clear alone would go back to the lost job, and fail.
    kept.stack.clear("kept", kept.run, "job", only_failed=False)
    kept.stack.wait_for("kept", kept.run, "job", {"success"})
    assert len({one["token"] for one in kept.submits}) == 2


def test_both_spellings_list_and_show_what_is_on_record(kept: Commands) -> None:
    """``airflow resumable jobs`` is the same command, and ``show`` asks the service."""
    kept.stack.wait_for("kept", kept.run, "function", {"success"})
    listed = kept.json("list", status=0)["records"]
    assert {one["external_id_key"] for one in listed} == {"local_job_id", "function_job"}
    same = kept.stack.cli("resumable", "jobs", "list", "--run-id", kept.run, "--json")
    assert json.loads(same.stdout)["records"] == listed
    (shown,) = kept.json("show", "kept", kept.run, "job", status=0, run=False)["records"]
    assert shown["record"]["phase"] == "submitted"
    assert [one["status"] for one in shown["service"]["jobs"]] == ["RUNNING"]


def test_a_dag_that_is_gone_is_told_and_nothing_of_it_is_cancelled(kept: Commands) -> None:
    """Without the Dag there is no adapter: can't be checked, and why."""
    file = kept.stack.dags_folder / "kept.py"
    hidden = file.rename(kept.stack.home / "kept.py")
    try:
        report = kept.json("reconcile", "--task-id", "job", "--cancel", kept.job, status=4)
        (one,) = kept.json("reconcile", "--task-id", "job", status=3)["unchecked"]
    finally:
        hidden.rename(file)
    assert "1 can't be checked" in report["error"]
    assert "is not on this machine" in one["reason"]
    assert kept.requests("cancel") == []
