# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The Dags to copy: each is run, killed in mid-run, and ends with what an undisturbed run ends with."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.integration.examples import example_dags_folder
from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.pages import PagesServer
from airflow_resumable.testing.stack import AirflowStack
from tests.stack.kills import kill, running_process, stopped, until

pytestmark = pytest.mark.stack

ROWS = 95
# One of each kind of trouble: the page at 20 is short, so the later ones begin at 29, 39...
TROUBLE: dict[str, Any] = {"short_at": [20], "fail_at": [39], "empty_at": [49], "throttle_at": [59]}


@pytest.fixture(scope="module", autouse=True)
def examples(stack: AirflowStack) -> list[str]:
    """The example Dags in the Dags folder, as they are shipped; their ids."""
    names = [stack.add_dag(file).stem for file in sorted(example_dags_folder().glob("*.py"))]
    for name in names:
        stack.wait_for_dag(name)
    return names


@pytest.fixture(autouse=True)
def _no_run_is_left(stack: AirflowStack, examples: list[str]) -> Iterator[None]:
    """End what a failed test leaves: there is one run of an example at a time, so the next would wait."""
    yield
    for name in examples:
        active = stack.request("GET", f"/dags/{name}/dagRuns", params={"state": ["queued", "running"]})
        for run in active["dag_runs"]:
            path = f"/dags/{name}/dagRuns/{run['dag_run_id']}"
            stack.request("PATCH", path, json={"state": "failed"})


def tries(stack: AirflowStack, dag: str, run: str, task: str) -> list[int]:
    return [one["try_number"] for one in stack.tries(dag, run, task)]


# An external job


def run_external_job(stack: AirflowStack, service: JobService, script: str) -> str:
    return stack.trigger("resumable_external_job", conf={"service_url": service.url, "script": script})


def external_job_outcome(stack: AirflowStack, run: str) -> dict[str, Any]:
    return {
        "state": stack.wait_for_run("resumable_external_job", run)["state"],
        "job": stack.xcom("resumable_external_job", run, "job"),
        "report": stack.xcom("resumable_external_job", run, "report"),
    }


@pytest.mark.parametrize("point", ["after_accept", "mid_poll"])
def test_the_external_job_outlives_its_worker(
    stack: AirflowStack, jobservice: JobService, crash: CrashController, tmp_path: Path, point: str
) -> None:
    """Killed before the id was written down, or while the job runs: one job, and the same results."""
    undisturbed = run_external_job(stack, jobservice, """echo '{"rows": 42}'""")
    expected = external_job_outcome(stack, undisturbed)

    killed = tmp_path / "killed"
    crash.on(point, "kill_task", dag_id="resumable_external_job", task_id="job")
    run = run_external_job(
        stack, jobservice, f"""while [ ! -e '{killed}' ]; do sleep 0.05; done; echo '{{"rows": 42}}'"""
    )
    crash.wait(point, run_id=run)
    killed.touch()

    assert expected == {"state": "success", "job": {"rows": 42}, "report": "the job wrote 42 rows"}
    assert external_job_outcome(stack, run) == expected
    assert tries(stack, "resumable_external_job", run, "job") == [1, 2]
    submits = jobservice.requests("submit", client_contains=run)
    assert [submit["created"] for submit in submits] == [True]
    assert jobservice.requests("cancel", job=submits[0]["job"]) == []


# A paginated API


def run_pages(stack: AirflowStack, server: PagesServer, table: Path) -> str:
    return stack.trigger("paginated_api", conf={"url": server.url, "table": str(table)})


def table_rows(table: Path) -> list[tuple[int, str, int]]:
    with closing(sqlite3.connect(f"file:{table}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT id, name, amount FROM api ORDER BY id").fetchall()


@pytest.fixture(scope="module")
def undisturbed_rows(stack: AirflowStack, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The table after a run that nobody killed."""
    table = tmp_path_factory.mktemp("undisturbed") / "table"
    with PagesServer(rows=ROWS, **TROUBLE) as server:
        run = run_pages(stack, server, table)
        done = stack.wait_for("paginated_api", run, "load")
        offsets = [request["offset"] for request in server.log()]

    assert (done["state"], done["try_number"]) == ("success", 1)
    assert offsets == [0, 10, 20, 29, 39, 39, 49, 49, 59, 59, 69, 79, 89]
    assert stack.xcom("paginated_api", run, "load") == ROWS
    rows = table_rows(table)
    assert [row[0] for row in rows] == list(range(ROWS))
    return rows


def test_one_failing_page_is_asked_for_once_more(stack: AirflowStack, tmp_path: Path) -> None:
    """Ten pages of which the seventh answers 500 once: eleven requests, one try."""
    with PagesServer(rows=100, fail_at=[60]) as server:
        run = run_pages(stack, server, tmp_path / "table")
        done = stack.wait_for("paginated_api", run, "load")

        assert (done["state"], done["try_number"]) == ("success", 1)
        assert [request["offset"] for request in server.log()] == [0, 10, 20, 30, 40, 50, 60, 60, 70, 80, 90]
    assert [row[0] for row in table_rows(tmp_path / "table")] == list(range(100))


def test_a_killed_load_asks_only_for_the_pages_that_are_left(
    stack: AirflowStack, tmp_path: Path, undisturbed_rows: list[Any]
) -> None:
    """Killed while a page is on its way: the second try begins with that page."""
    table = tmp_path / "table"
    with PagesServer(rows=ROWS, **TROUBLE) as server:
        server.hold(rows_from=59)
        run = run_pages(stack, server, table)
        server.wait_held()
        kill(running_process(stack, "paginated_api", run, "load"))
        first = server.log()
        server.release()

        done = stack.wait_for("paginated_api", run, "load")
        second = server.log()[len(first) :]

    assert (done["state"], done["try_number"]) == ("success", 2)
    assert [request["offset"] for request in first] == [0, 10, 20, 29, 39, 39, 49, 49, 59]
    assert [request["offset"] for request in second if request["status"] == 200] == [59, 69, 79, 89]
    assert stack.xcom("paginated_api", run, "load") == ROWS
    assert table_rows(table) == undisturbed_rows


def test_a_page_that_was_written_but_not_saved_is_loaded_again(
    stack: AirflowStack, tmp_path: Path, undisturbed_rows: list[Any]
) -> None:
    """Task and supervisor die between the effect and the checkpoint: the page comes twice, its rows once."""
    table = tmp_path / "table"
    with PagesServer(rows=ROWS, **TROUBLE) as server:
        server.hold(rows_from=69)
        run = run_pages(stack, server, table)
        server.wait_held()
        process = running_process(stack, "paginated_api", run, "load")
        supervisor = process.parent()
        assert supervisor is not None
        # Without its supervisor the task gets as far as the save, and no further.
        with stopped(supervisor):
            server.release()
            until("page 69 written", lambda: table_rows(table)[-1][0] >= 78)
            kill(supervisor, process)
        first = server.log()
        written, saved = table_rows(table), stack.task_states("paginated_api", run, "load")

        done = stack.wait_for("paginated_api", run, "load", try_number=2)
        second = server.log()[len(first) :]

    assert first[-1]["offset"] == 69
    assert [row[0] for row in written] == list(range(79))
    assert saved["page"]["offset"] == 69
    assert done["state"] == "success"
    assert [request["offset"] for request in second] == [69, 79, 89]
    assert table_rows(table) == undisturbed_rows


def test_a_users_clear_loads_everything_afresh(
    stack: AirflowStack, tmp_path: Path, undisturbed_rows: list[Any]
) -> None:
    """The saved offset outlives the clear, and the Dag decides not to use it."""
    table = tmp_path / "table"
    with PagesServer(rows=ROWS) as server:
        run = run_pages(stack, server, table)
        stack.wait_for("paginated_api", run, "load")
        first = server.log()
        assert stack.task_states("paginated_api", run, "load")["page"]["offset"] == ROWS
        stack.clear("paginated_api", run)
        done = stack.wait_for("paginated_api", run, "load", try_number=2)

        assert done["state"] == "success"
        assert [request["offset"] for request in server.log()[len(first) :]] == list(range(0, ROWS, 10))
    assert table_rows(table) == undisturbed_rows


# Items fetched at once

# With eight at once: 3 and 40 to 46 are on their way and stay there, and all others below 40 come in.
HELD: dict[str, Any] = {"items": [3], "items_from": 40}
FETCHED = [number for number in range(40) if number != 3]
LEFT = [3, *range(40, ROWS)]


def run_items(stack: AirflowStack, server: PagesServer, folder: Path, save_every: float) -> str:
    conf = {"url": server.url, "folder": str(folder), "items": ROWS, "save_every": save_every}
    return stack.trigger("async_checkpoint", conf=conf)


def files(folder: Path) -> dict[str, Any]:
    return {file.name: json.loads(file.read_text()) for file in folder.iterdir()}


def saved_items(stack: AirflowStack, run: str) -> list[int]:
    found = stack.task_state("async_checkpoint", run, "fetch", "fetched")
    return list(found["value"]["items"]) if found else []


@pytest.fixture(scope="module")
def undisturbed_files(stack: AirflowStack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The files of a run that nobody killed."""
    folder = tmp_path_factory.mktemp("undisturbed") / "items"
    with PagesServer(rows=ROWS, delay=0.05) as server:
        run = run_items(stack, server, folder, save_every=0.2)
        done = stack.wait_for("async_checkpoint", run, "fetch")
        items = [request["item"] for request in server.log()]

    assert (done["state"], done["try_number"]) == ("success", 1)
    assert sorted(items) == list(range(ROWS))
    assert saved_items(stack, run) == list(range(ROWS))
    found = files(folder)
    assert sorted(found) == sorted(f"{number}.json" for number in range(ROWS))
    return found


def test_a_killed_fetch_asks_for_exactly_what_is_not_in_the_saved_set(
    stack: AirflowStack, tmp_path: Path, undisturbed_files: dict[str, Any]
) -> None:
    """Items came back in another order than they were asked for; none is lost, none asked for twice."""
    with PagesServer(rows=ROWS, delay=0.05) as server:
        server.hold(**HELD)
        run = run_items(stack, server, tmp_path, save_every=0.2)
        server.wait_held(8)
        until("all that came in is saved", lambda: saved_items(stack, run) == FETCHED)
        kill(running_process(stack, "async_checkpoint", run, "fetch"))
        first = server.log()
        server.release()

        done = stack.wait_for("async_checkpoint", run, "fetch")
        second = server.log()[len(first) :]

    assert (done["state"], done["try_number"]) == ("success", 2)
    assert sorted(request["item"] for request in first if request["status"] == 200) == FETCHED
    assert sorted(request["item"] for request in second) == LEFT
    assert stack.xcom("async_checkpoint", run, "fetch") == ROWS
    assert files(tmp_path) == undisturbed_files


def test_what_came_in_since_the_last_save_is_fetched_again(
    stack: AirflowStack, tmp_path: Path, undisturbed_files: dict[str, Any]
) -> None:
    """Killed before anything was saved: the second try fetches everything, and the files are the same."""
    with PagesServer(rows=ROWS) as server:
        server.hold(**HELD)
        run = run_items(stack, server, tmp_path, save_every=3600)
        server.wait_held(8)
        kill(running_process(stack, "async_checkpoint", run, "fetch"))
        assert saved_items(stack, run) == []
        first = server.log()
        server.release()

        done = stack.wait_for("async_checkpoint", run, "fetch")
        second = server.log()[len(first) :]

    assert (done["state"], done["try_number"]) == ("success", 2)
    assert sorted(request["item"] for request in second) == list(range(ROWS))
    assert files(tmp_path) == undisturbed_files


def test_a_fetch_that_fails_saves_what_is_done(
    stack: AirflowStack, tmp_path: Path, undisturbed_files: dict[str, Any]
) -> None:
    """The API goes down in mid-run, long before the next save is due: the next try fetches the rest."""
    with PagesServer(rows=ROWS) as server:
        server.hold(**HELD)
        run = run_items(stack, server, tmp_path, save_every=3600)
        server.wait_held(8)
        port = int(server.url.rpartition(":")[2])
    until("what is done is saved", lambda: saved_items(stack, run) == FETCHED)
    with PagesServer(rows=ROWS, port=port) as server:
        done = stack.wait_for("async_checkpoint", run, "fetch")
        items = [request["item"] for request in server.log()]

    assert done["state"] == "success"
    assert done["try_number"] > 1
    assert sorted(items) == LEFT
    assert files(tmp_path) == undisturbed_files


# By hand


@pytest.mark.parametrize(
    "dag",
    ["resumable_external_job", pytest.param("paginated_api", marks=pytest.mark.slow), "async_checkpoint"],
)
def test_an_example_runs_by_hand(
    stack: AirflowStack, jobservice: JobService, tmp_path: Path, dag: str
) -> None:
    """`airflow dags test` runs each of them in one process, as one does with a Dag just copied."""
    with PagesServer(rows=ROWS) as server:
        conf = {
            "resumable_external_job": {"service_url": jobservice.url, "script": """echo '{"rows": 42}'"""},
            "paginated_api": {"url": server.url, "table": str(tmp_path / "table")},
            "async_checkpoint": {"url": server.url, "folder": str(tmp_path / "items"), "items": ROWS},
        }[dag]
        done = stack.cli("dags", "test", dag, "--conf", json.dumps(conf), env=stack.apart())

    assert "state=success" in done.stdout + done.stderr
    if dag == "paginated_api":
        assert [row[0] for row in table_rows(tmp_path / "table")] == list(range(ROWS))
    if dag == "async_checkpoint":
        assert len(files(tmp_path / "items")) == ROWS
