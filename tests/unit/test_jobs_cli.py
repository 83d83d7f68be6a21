# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""``airflow-resumable jobs`` against a real metadata database and the real local job service."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.cli import jobs_dags, jobs_findings, jobs_store
from airflow_resumable.cli import main as cli
from airflow_resumable.cli.jobs_findings import Finding
from airflow_resumable.cli.jobs_inquiry import SeenJob
from airflow_resumable.jobs.adapter import Observation
from airflow_resumable.testing.jobservice.process import JobService
from tests import metadata

HELD = ["running", "queued", "deferred", "up_for_reschedule", "scheduled", "restarting"]
AT_WORK = [*HELD, "up_for_retry", None]
OVER = ["success", "failed", "skipped", "upstream_failed", "removed"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobService]:
    """One job service for all tests of this file; each run has families of its own."""
    with JobService(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="module")
def dag(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Dag in a migrated database."""
    cache = getattr(pytestconfig, "cache", None)
    folder: Path = cache.mkdir("metadata") if cache else tmp_path_factory.mktemp("metadata")
    metadata.migrate(folder / "migrated.db")
    metadata.add_dag("nightly")
    return "nightly"


@pytest.fixture
def run(dag: str, service: JobService) -> metadata.Run:
    """A run whose task instances have no record and no state yet."""
    service.client().clear_faults()
    return metadata.Run(dag, service)


class Jobs:
    """Runs ``jobs`` on one run and reads what it printed."""

    def __init__(self, run: metadata.Run, capsys: pytest.CaptureFixture[str]) -> None:
        self.run, self._capsys = run, capsys

    def text(self, *words: str, status: int) -> str:
        self._capsys.readouterr()
        ended = cli.main(["jobs", *words, "--run-id", self.run.run_id])
        said = self._capsys.readouterr()
        assert ended == status, said.out + said.err
        return said.out

    def json(self, *words: str, status: int) -> Any:
        return json.loads(self.text(*words, "--json", status=status))

    def findings(self, *words: str, status: int = 1) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("reconcile", *words, status=status)["findings"]
        return found

    def refused(self, *words: str) -> str:
        return str(self.json("reconcile", *words, status=4)["error"])


@pytest.fixture
def jobs(run: metadata.Run, capsys: pytest.CaptureFixture[str]) -> Jobs:
    """The commands, on `run`."""
    return Jobs(run, capsys)


def requests(service: JobService, verb: str, job: str) -> list[Any]:
    """Requests about one job, from the service's own log."""
    return service.requests(verb, job=job)


def test_every_record_is_listed_with_its_task(run: metadata.Run, jobs: Jobs) -> None:
    """One line for each record, in the documented shape, mapped tasks and other keys of a task included."""
    record = run.record("j-1")
    run.set_state("failed", tries=3)
    run.record("j-2", "succeeded", task="mapped", map_index=1)
    run.record({"name": "p", "namespace": "n"}, task="function", key="pod_identifier")
    run.put("resumableXother", {"not": "a record"})
    first, second, third = jobs.json("list", status=0)["records"]
    assert first == {
        "dag_id": "nightly",
        "run_id": run.run_id,
        "task_id": "job",
        "map_index": -1,
        "region_id": None,
        "external_id_key": "local_job_id",
        "task_state": "failed",
        "try_number": 3,
        "external_id": "j-1",
        "generation": 1,
        "phase": "submitted",
        "token": record.token,
        "last_status": "RUNNING",
        "last_seen_at": record.dump()["last_seen_at"].replace("Z", "+00:00"),
        "owner": record.owner.model_dump(mode="json"),
        "error": None,
    }
    assert (second["map_index"], second["task_state"], second["phase"]) == (1, "none", "succeeded")
    assert third["external_id"] == {"name": "p", "namespace": "n"}
    text = jobs.text("list", status=0)
    assert "j-1" in text
    assert "mapped[1]" in text
    assert "3 on record" in text


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--task-id", "job"], {"j-1"}),
        (["--map-index", "1"], {"j-2"}),
        (["--map-index", "-1"], {"j-1"}),
        (["--state", "live"], {"j-1"}),
        (["--state", "ended"], {"j-2"}),
        (["--dag-id", "nightly"], {"j-1", "j-2"}),
        (["--dag-id", "weekly"], set()),
    ],
)
def test_a_filter_leaves_out_the_others(
    run: metadata.Run, jobs: Jobs, words: list[str], wanted: set[str]
) -> None:
    """Each filter by itself, on ``list``."""
    run.record("j-1")
    run.record("j-2", "failed", task="mapped", map_index=1)
    assert {one["external_id"] for one in jobs.json("list", *words, status=0)["records"]} == wanted


def test_records_are_read_a_page_at_a_time(
    run: metadata.Run, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More records than a page holds are all listed, once each."""
    for number in range(5):
        run.record(f"j-{number}", key=f"key_{number}")
    monkeypatch.setattr(jobs_store, "PAGE", 2)
    listed = jobs.json("list", status=0)["records"]
    assert [one["external_id"] for one in listed] == [f"j-{number}" for number in range(5)]


def test_an_unreadable_record_is_listed_with_its_error(run: metadata.Run, jobs: Jobs) -> None:
    """Status 3; the others are listed all the same, and it counts as live."""
    run.put("resumable.odd", ["something", "else"])
    run.record("j-1")
    odd, good = jobs.json("list", "--state", "live", status=3)["records"]
    assert "'resumable.odd' is not a job record" in odd["error"]
    assert (odd["phase"], good["external_id"]) == (None, "j-1")
    (unchecked,) = [
        one for one in jobs.json("reconcile", status=1)["unchecked"] if one["external_id_key"] == "odd"
    ]
    assert "can't be read" in unchecked["reason"]


def test_a_value_kept_outside_by_the_workers_backend_is_fetched(
    run: metadata.Run, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``[workers] state_store_backend``: read and written through it; without it, what to do is said."""
    from airflow.sdk.execution_time.context import _get_worker_state_store_backend

    record = run.record("j-lost", "failed")
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps(record.dump()), encoding="utf-8")
    run.put("resumable.local_job_id", {"__airflow_state_ref__": str(outside)})
    (listed,) = jobs.json("list", status=3)["records"]
    assert "[workers] state_store_backend" in listed["error"]

    monkeypatch.setenv("AIRFLOW__WORKERS__STATE_STORE_BACKEND", "tests.metadata.FileBackend")
    _get_worker_state_store_backend.cache_clear()
    try:
        (listed,) = jobs.json("list", status=0)["records"]
        assert listed["external_id"] == "j-lost"
        jobs.json("reconcile", "--forget", "j-lost", status=0)
        assert run.stored()["resumable.local_job_id"] == {"__airflow_state_ref__": str(outside)}
        assert json.loads(outside.read_text(encoding="utf-8"))["phase"] == "cancelled"
    finally:
        _get_worker_state_store_backend.cache_clear()


@pytest.mark.parametrize("command", ["list", "reconcile"])
def test_a_store_that_cannot_list_is_named(jobs: Jobs, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """``[state_store] backend`` of a site's own: status 3, with the option and its value."""
    monkeypatch.setenv("AIRFLOW__STATE_STORE__BACKEND", "tests.metadata.ElsewhereBackend")
    error = jobs.json(command, status=3)["error"]
    assert "[state_store] backend is 'tests.metadata.ElsewhereBackend'" in error


@pytest.mark.parametrize("state", OVER)
def test_a_job_alive_after_its_tasks_end_is_an_orphan(
    run: metadata.Run, jobs: Jobs, service: JobService, state: str
) -> None:
    """Found in each final state, and cancelled by its id, once."""
    job = run.start()
    run.record(job)
    run.set_state(state, tries=3)
    (finding,) = jobs.findings()
    assert (finding["kind"], finding["job"]["external_id"]) == ("orphan", job)
    assert jobs.findings("--dry-run") == [finding]
    assert requests(service, "cancel", job) == []
    jobs.json("reconcile", "--cancel", job, status=0)
    assert len(requests(service, "cancel", job)) == 1


@pytest.mark.parametrize("state", AT_WORK)
def test_a_job_that_an_attempt_may_own_is_never_cancelled(
    run: metadata.Run, jobs: Jobs, service: JobService, state: str | None
) -> None:
    """Neither a single live job, which is no finding, nor one of two, which is."""
    job = run.start()
    run.record(job)
    run.set_state(state)
    assert jobs.findings(status=0) == []
    assert "no such job among the findings" in jobs.refused("--cancel", job)
    second = run.start(generation=2)
    assert {one["kind"] for one in jobs.findings()} == {"double"}
    for one in (job, second):
        assert "an attempt may own the job" in jobs.refused("--cancel", one)
        assert requests(service, "cancel", one) == []


def test_a_task_cleared_between_the_look_and_the_request_keeps_its_job(
    run: metadata.Run, jobs: Jobs, service: JobService
) -> None:
    """The task's state is read again right before the request: refused, nothing is sent."""
    job = run.start()
    run.record(job)
    run.set_state("failed")
    # By the family's listing it is found; the first status request is the one right before the cancel.
    fault = service.client().add_fault("status", "hold", job=job)

    def clear() -> None:
        service.wait_for_request("status", job=job)
        run.set_state(None)
        service.client().delete_fault(fault)

    thread = threading.Thread(target=clear)
    thread.start()
    refused = jobs.refused("--cancel", job)
    thread.join()
    assert "the task is none again" in refused
    assert requests(service, "cancel", job) == []


def test_a_refused_cancel_is_told(run: metadata.Run, jobs: Jobs, service: JobService) -> None:
    """Status 4 with the service's answer, and the job is still a finding."""
    job = run.start()
    run.record(job)
    run.set_state("failed")
    service.client().add_fault("cancel", "refuse_cancel", job=job)
    assert "was NOT cancelled" in jobs.refused("--cancel", job)
    assert len(jobs.findings()) == 1


def test_a_job_known_by_its_family_alone_needs_an_installation_id_to_be_cancelled(
    dag: str, service: JobService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``[resumable] installation_id`` it may be another installation's."""
    for installation in ("", "ours"):
        monkeypatch.setenv("AIRFLOW__RESUMABLE__INSTALLATION_ID", installation)
        run = metadata.Run(dag, service, installation)
        jobs = Jobs(run, capsys)
        run.record("lost", "failed")
        stray = run.start(generation=2)
        run.set_state("failed")
        (finding,) = jobs.findings()
        assert (finding["kind"], finding["job"]["on_record"]) == ("orphan", False)
        if installation:
            jobs.json("reconcile", "--cancel", stray, status=0)
        else:
            assert "installation_id" in jobs.refused("--cancel", stray)
        assert len(requests(service, "cancel", stray)) == bool(installation)


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
    (shown,) = shown_of(run, "--timeout", "0.2", jobs=jobs, status=3)
    assert (shown["service"], shown["record"]["external_id"]) == (None, "j")


def test_a_dag_that_does_not_load_is_told(service: JobService, capsys: pytest.CaptureFixture[str]) -> None:
    """With the error of its file."""
    file = metadata.add_dag("broken")
    run = metadata.Run("broken", service)
    run.record("j")
    file.write_text("raise RuntimeError('half a Dag')", encoding="utf-8")
    (one,) = Jobs(run, capsys).json("reconcile", status=3)["unchecked"]
    assert "half a Dag" in one["reason"]


def test_show_prints_the_whole_record_and_asks_for_every_id(run: metadata.Run, jobs: Jobs) -> None:
    """All records of a task instance; what the service says of each job."""
    first, second = run.start(command=("true",)), run.start(generation=2)
    record = run.record(second, generation=2, ids=(first, second))
    (shown,) = shown_of(run, jobs=jobs, status=0)
    assert shown["record"] == record.dump()
    assert {one["external_id"] for one in shown["service"]["jobs"]} == {first, second}


def test_forget_closes_the_record_and_the_parents_keys(run: metadata.Run, jobs: Jobs) -> None:
    """The generation goes on counting, so the next attempt's token is a new one; other keys are left."""
    record = run.record("job-lost", generation=3)
    run.put("local_job_id", "job-lost")
    run.put("mine", 1)
    run.set_state("up_for_retry")
    assert "generation 4" in jobs.text("reconcile", "--forget", "job-lost", status=0)
    stored = run.stored()
    closed = stored.pop("resumable.local_job_id")
    assert stored == {"mine": 1}
    assert (closed["phase"], closed["generation"], closed["token"]) == ("cancelled", 3, record.token)
    assert "forgotten by hand" in closed["last_status"]


def test_a_forgotten_intent_is_named_by_its_token(run: metadata.Run, jobs: Jobs) -> None:
    """An intent has no id; refused as soon as a job with its token is alive."""
    run.record(None, "intent")
    run.set_state("failed")
    jobs.json("reconcile", "--forget", run.token(), status=0)
    assert run.stored()["resumable.local_job_id"]["phase"] == "cancelled"
    run.record(None, "intent")
    run.start()
    before = run.stored()
    assert "alive" in jobs.refused("--forget", run.token())
    assert run.stored() == before


@pytest.mark.parametrize("state", HELD)
def test_a_record_that_an_attempt_holds_is_not_forgotten(run: metadata.Run, jobs: Jobs, state: str) -> None:
    """While an attempt is at work, or about to be, the record stays as it is."""
    run.record("job-lost", "failed")
    run.set_state(state)
    before = run.stored()
    assert f"the task is {state}" in jobs.refused("--forget", "job-lost")
    assert run.stored() == before


def test_a_record_written_meanwhile_is_not_forgotten(
    run: metadata.Run, jobs: Jobs, service: JobService
) -> None:
    """An attempt's write between the look and the change wins."""
    run.record("job-lost")
    run.set_state("failed")
    fault = service.client().add_fault("find", "hold", family=run.family("job"))

    def write() -> None:
        service.wait_for_request("find", family=run.family("job"))
        run.record("job-new", generation=2)
        service.client().delete_fault(fault)

    thread = threading.Thread(target=write)
    thread.start()
    refused = jobs.refused("--forget", "job-lost")
    thread.join()
    assert "changed meanwhile" in refused
    assert run.stored()["resumable.local_job_id"]["external_id"] == "job-new"


def test_a_record_without_an_adapter_is_not_forgotten(run: metadata.Run, jobs: Jobs) -> None:
    """What can't be asked for can't be shown to be dead."""
    run.record("j", task="function", key="other")
    assert "can't be shown" in jobs.refused("--forget", "j")
    assert "no record has this job" in jobs.refused("--forget", "nothing")


def test_an_id_that_two_tasks_have_is_refused(run: metadata.Run, jobs: Jobs) -> None:
    """It has to be said which is meant."""
    run.record("same", "failed")
    run.record("same", "failed", task="mapped", map_index=0)
    assert "several records" in jobs.refused("--forget", "same")
    jobs.json("reconcile", "--forget", "same", "--task-id", "job", status=0)


def test_options_that_exclude_each_other_are_a_misuse(jobs: Jobs) -> None:
    """Status 2, both named."""
    error = jobs.json("reconcile", "--cancel", "a", "--forget", "b", status=2)["error"]
    assert "--cancel and --forget" in error
    assert "--dry-run" in jobs.json("reconcile", "--cancel", "a", "--dry-run", status=2)["error"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["jobs"], "COMMAND"),
        (["jobs", "list", "--state", "dead"], "dead"),
        (["jobs", "list", "--map-index", "x"], "'x'"),
        (["jobs", "reconcile", "--timeout", "0"], "'0'"),
        (["jobs", "show", "dag", "run"], "TASK"),
    ],
)
def test_a_wrong_argument_is_named(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Argparse's own status 2, with the argument and the value."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_nothing_can_be_written_through_the_tasks_supervisor(dag: str) -> None:
    """A template that sets a Variable is refused by name."""
    from airflow.sdk import Variable

    with jobs_dags.supervised():
        assert Variable.get("no such variable", default="none") == "none"
        with pytest.raises(PermissionError, match="PutVariable"):
            Variable.set("written", "1")


def test_a_closed_pipe_ends_the_output_quietly(run: metadata.Run) -> None:
    """``jobs list | head`` prints no traceback."""
    for number in range(20):
        run.record(f"j-{number}", key=f"key_{number}")
    script = "from airflow_resumable.cli.main import main; raise SystemExit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", script, "jobs", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, said = process.communicate(timeout=50)
    assert process.returncode == 141
    assert "Traceback" not in said


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


def shown_of(run: metadata.Run, *words: str, jobs: Jobs, status: int) -> list[dict[str, Any]]:
    """Run ``jobs show`` for the task ``job`` of a run."""
    jobs._capsys.readouterr()
    ended = cli.main(["jobs", "show", run.dag_id, run.run_id, "job", "--json", *words])
    said = jobs._capsys.readouterr()
    assert ended == status, said.out + said.err
    records: list[dict[str, Any]] = json.loads(said.out)["records"]
    return records
