# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""``airflow-resumable jobs list`` against a real metadata database."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_resumable.cli import jobs_store
from tests import metadata
from tests.jobs_commands import Jobs


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
