# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What ``airflow-resumable jobs reconcile`` finds, and what it can't check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_resumable.cli import jobs_dags, jobs_findings, jobs_store
from airflow_resumable.cli import main as cli
from airflow_resumable.cli.jobs_findings import Finding
from airflow_resumable.cli.jobs_inquiry import SeenJob
from airflow_resumable.jobs.adapter import Observation
from airflow_resumable.testing.jobservice.process import JobService
from tests import metadata
from tests.jobs_commands import Jobs

COUNTED = """
    from airflow.sdk import DAG
    from airflow_resumable.testing.local_job import LocalJobOperator

    with open("{file}", "a") as loads:
        loads.write("{{dag}} ")
    with DAG("{{dag}}", schedule=None, params={{{{"service": ""}}}}):
        for task in ("first", "second"):
            LocalJobOperator(
                task_id=task, service_url="{{{{{{{{ params.service }}}}}}}}", command=["true"], retries=2
            )
"""


def test_an_intent_without_an_id_is_found_with_its_job_or_without(run: metadata.Run, jobs: Jobs) -> None:
    """What a search by token says is told; an attempt at work may be about to write the id."""
    run.record(None, "intent")
    run.set_state("up_for_retry")
    (finding,) = jobs.findings()
    assert (finding["kind"], finding["job"]) == ("intent", None)
    assert run.token() in finding["detail"]
    job = run.start()
    (finding,) = jobs.findings()
    assert (finding["kind"], finding["job"]["external_id"]) == ("intent", job)
    run.set_state("running")
    assert jobs.findings(status=0) == []
    run.set_state("failed")
    (finding,) = jobs.findings()
    assert (finding["kind"], finding["cancel_refused"]) == ("orphan", None)


def test_an_intent_after_a_discarded_record_asks_for_real_tokens_only(
    run: metadata.Run, jobs: Jobs, service: JobService
) -> None:
    """`ANY_OTHER` on record stands for the family; it is no token that a service could know."""
    run.record(None, "intent", unsettled=("*",))
    run.set_state("up_for_retry")
    (finding,) = jobs.findings()
    assert finding["kind"] == "intent"
    assert "*" not in {entry["token"] for entry in service.requests("find")}


def test_a_job_that_the_service_lost_is_missing(run: metadata.Run, jobs: Jobs) -> None:
    """On record as running, unknown to the service; an ended record asks for nothing."""
    run.record("job-lost")
    run.set_state("failed")
    (finding,) = jobs.findings()
    assert (finding["kind"], finding["job"]["observation"]) == ("missing", "missing")
    assert "the job is not alive" in jobs.refused("--cancel", "job-lost")
    run.record("job-lost", "failed")
    assert jobs.findings(status=0) == []


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ("unlisted", "can't list jobs"),
        ("unrendered", "templates can't be rendered"),
        ("function", "resumable_job"),
        ("another", "the task instance is gone"),
    ],
)
def test_what_cannot_be_checked_is_told_with_the_reason(
    run: metadata.Run, jobs: Jobs, task: str, why: str
) -> None:
    """Status 3, never silently skipped."""
    run.record("j", "failed", task=task)
    report = jobs.json("reconcile", status=3)
    assert (report["checked"], report["findings"]) == (0, [])
    assert why in report["unchecked"][0]["reason"]
    assert why.split()[0] in jobs.text("reconcile", status=3)


def test_a_service_that_does_not_answer_is_told(run: metadata.Run, jobs: Jobs, service: JobService) -> None:
    """After ``--timeout`` seconds the task counts as not checked."""
    run.record("j")
    service.client().add_fault("find", "unavailable", times=0)
    (one,) = jobs.json("reconcile", "--timeout", "0.2", status=3)["unchecked"]
    assert "status_error_budget" in one["reason"]
    (shown,) = jobs.show("--timeout", "0.2", status=3)
    assert (shown["service"], shown["record"]["external_id"]) == (None, "j")


def test_a_dag_that_does_not_load_is_told(service: JobService, capsys: pytest.CaptureFixture[str]) -> None:
    """With the error of its file."""
    file = metadata.add_dag("broken")
    run = metadata.Run("broken", service)
    run.record("j")
    file.write_text("raise RuntimeError('half a Dag')", encoding="utf-8")
    (one,) = Jobs(run, capsys).json("reconcile", status=3)["unchecked"]
    assert "half a Dag" in one["reason"]


def test_only_final_states_count_as_ended() -> None:
    """Airflow's own list of finished states, and a task instance that is gone."""
    from airflow.utils.state import State

    assert {str(state.value) for state in State.finished} | {"gone"} == jobs_store.ENDED


def test_a_double_needs_two_live_jobs(run: metadata.Run) -> None:
    """A job that has ended beside a live one is none."""
    run.record("a")
    (stored,) = jobs_store.stored_jobs(jobs_store.Filters(run_id=run.run_id))

    def found(*observations: Observation) -> list[Finding]:
        seen = tuple(SeenJob(str(n), None, "X", one, True) for n, one in enumerate(observations))
        return jobs_findings.findings(stored, seen, can_cancel=True, can_search=True, installation="")

    assert found(Observation.ACTIVE, Observation.FAILED) == []
    for other in (Observation.STOPPING, Observation.UNKNOWN, Observation.ACTIVE):
        assert [one.kind for one in found(Observation.ACTIVE, other)] == ["double", "double"]


def test_a_reported_success_is_left_out_unless_all_are_asked_for(
    run: metadata.Run, jobs: Jobs, service: JobService
) -> None:
    """It costs no question to the service, and is counted; a success that wasn't reported is checked."""
    record = run.record("j", "succeeded")
    assert jobs.json("reconcile", status=0)["checked"] == 1
    run.put("resumable.local_job_id", record.with_(reported=True).dump())
    asked = len(service.requests("find", family=run.family("job")))
    report = jobs.json("reconcile", status=0)
    assert (report["checked"], report["left_out"]) == (0, 1)
    assert "1 reported successes left out (--all)" in jobs.text("reconcile", status=0)
    assert "(--all)" in jobs.refused("--cancel", "j")
    assert len(service.requests("find", family=run.family("job"))) == asked
    report = jobs.json("reconcile", "--all", status=0)
    assert (report["checked"], report["left_out"]) == (1, 0)


def test_each_dag_is_loaded_once_however_many_records_it_has(
    service: JobService,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One Dag after the other, so that even a memory of one Dag is enough."""
    loads = tmp_path / "loads"
    for name in ("odd", "even"):
        metadata.add_dag(name, COUNTED.format(file=loads))
    for name in ("odd", "even", "odd", "even"):
        metadata.Run(name, service).record("j", "failed", task="first")
    loads.unlink()
    monkeypatch.setattr(jobs_dags, "_KEPT_DAGS", 1)
    capsys.readouterr()
    assert cli.main(["jobs", "reconcile", "--task-id", "first", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checked"] == 4
    assert loads.read_text(encoding="utf-8").split() == ["even", "odd"]


def test_a_dag_that_does_not_load_is_tried_once(
    service: JobService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of its records is told with the same error."""
    loads = tmp_path / "loads"
    file = metadata.add_dag("spoilt", COUNTED.format(file=loads))
    run = metadata.Run("spoilt", service)
    run.record("j", task="first")
    run.record("k", task="second")
    file.write_text(
        file.read_text(encoding="utf-8") + "\nraise RuntimeError('half a Dag')\n", encoding="utf-8"
    )
    loads.unlink()
    unchecked = Jobs(run, capsys).json("reconcile", status=3)["unchecked"]
    assert ["half a Dag" in one["reason"] for one in unchecked] == [True, True]
    assert loads.read_text(encoding="utf-8").split() == ["spoilt"]
