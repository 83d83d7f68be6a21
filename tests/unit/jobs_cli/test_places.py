# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the jobs commands say when the store, the database or Airflow isn't as they need it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from airflow_resumable.cli import jobs_dags, jobs_store
from airflow_resumable.cli import main as cli
from airflow_resumable.cli.jobs_store import Filters, StoredJob
from tests import metadata
from tests.jobs_commands import Jobs


@pytest.mark.parametrize("command", ["list", "reconcile"])
def test_a_store_that_cannot_list_is_named(jobs: Jobs, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """``[state_store] backend`` of a site's own: status 3, with the option and its value."""
    monkeypatch.setenv("AIRFLOW__STATE_STORE__BACKEND", "tests.metadata.ElsewhereBackend")
    error = jobs.json(command, status=3)["error"]
    assert "[state_store] backend is 'tests.metadata.ElsewhereBackend'" in error


def test_nothing_can_be_written_through_the_tasks_supervisor(dag: str) -> None:
    """A template that sets a Variable is refused by name."""
    from airflow.sdk import Variable

    with jobs_dags.supervised():
        assert Variable.get("no such variable", default="none") == "none"
        with pytest.raises(PermissionError, match="PutVariable"):
            Variable.set("written", "1")


SHOW = ["show", "nightly", "run", "job"]


@pytest.fixture
def unmigrated(dag: str) -> Iterator[None]:
    """The database lacks the table of the records, as before ``airflow db migrate``."""
    from airflow.utils.session import create_session

    def rename(old: str, new: str) -> None:
        with create_session() as session:
            session.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))

    rename("task_state_store", "elsewhere")
    yield
    rename("elsewhere", "task_state_store")


@pytest.mark.parametrize("words", [["list"], SHOW, ["reconcile"], ["reconcile", "--forget", "j"]])
def test_a_database_that_fails_is_told_without_a_traceback(
    unmigrated: None, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 3, not 1, which means findings; in one line, and in the JSON."""
    assert cli.main(["jobs", *words]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "no such table: task_state_store" in said.err
    assert said.err.count("\n") == 1
    assert cli.main(["jobs", *words, "--json"]) == 3
    assert "no such table" in json.loads(capsys.readouterr().out)["error"]


def test_a_database_that_fails_halfway_leaves_whole_json(
    run: metadata.Run, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before is there, with the error beside it."""
    run.record("j-1")
    run.record("j-2", task="mapped", map_index=0)
    read = jobs_store._read

    def fails_later(session: Session, filters: Filters, *, after: int = 0) -> list[StoredJob]:
        if after:
            session.execute(text("SELECT * FROM nowhere"))
        return read(session, filters, after=after)

    monkeypatch.setattr(jobs_store, "PAGE", 1)
    monkeypatch.setattr(jobs_store, "_read", fails_later)
    report = jobs.json("list", status=3)
    assert [one["external_id"] for one in report["records"]] == ["j-1"]
    assert "no such table: nowhere" in report["error"]


@pytest.mark.parametrize(
    "name",
    [
        "airflow.sdk.execution_time.supervisor.InProcessTestSupervisor",
        "airflow.sdk.execution_time.supervisor.InProcessTestSupervisor._api_client",
        "airflow.cli.commands.task_command._get_template_context",
        "airflow.models.task_state_store.TaskStateStoreModel",
    ],
)
def test_what_airflow_no_longer_has_is_named(
    run: metadata.Run, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An Airflow whose inside has changed: status 3 and the name of what is missing."""
    run.record("j")
    monkeypatch.delattr(name)
    error = jobs.json("reconcile", status=3)["error"]
    assert name.rsplit(".", 1)[-1] in error
    assert "missing" in error
