# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The real Airflow that other tests rely on: it runs tasks, loses them on command, and goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.errors import StackError
from airflow_resumable.testing.stack import AirflowStack

pytestmark = pytest.mark.stack

# A task that passes a crash point with the facts the protocol tells, and returns its try.
DAG = """
    import datetime
    from airflow.sdk import dag, get_current_context, task
    from airflow_resumable.jobs.crashpoints import reach

    @dag("{name}", schedule=None)
    def build():
        @task(retries=2, retry_delay=datetime.timedelta(seconds=1))
        def work():
            context = get_current_context()
            ti, store = context["ti"], context.get("task_state_store")
            if store is not None:
                store.set("tried/at all", [ti.try_number])
            reach("mid_poll", dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id,
                  map_index=ti.map_index, try_number=ti.try_number)
            print("worked in try", ti.try_number)
            return ti.try_number
        work()
    build()
"""


@pytest.fixture(scope="module")
def dag(stack: AirflowStack) -> str:
    """A Dag whose only task, ``work``, passes the crash point ``mid_poll``."""
    stack.add_dag(DAG.format(name="crash_me"), "crash_me.py")
    stack.wait_for_dag("crash_me")
    return "crash_me"


def test_a_task_runs_and_tells_everything_over_rest(stack: AirflowStack, dag: str) -> None:
    """State, run, XCom, log and task state store of a finished task can be read."""
    run = stack.trigger(dag, conf={"why": "test"})
    done = stack.wait_for(dag, run, "work")

    assert (done["state"], done["try_number"]) == ("success", 1)
    assert stack.wait_for_run(dag, run)["conf"] == {"why": "test"}
    assert stack.run_state(dag, run) == "success"
    assert stack.xcom(dag, run, "work") == 1
    assert stack.xcom(dag, run, "work", "no such key") is None
    assert "worked in try 1" in stack.task_log(dag, run, "work", 1)
    assert stack.task_log(dag, run, "work", 7) == ""
    assert stack.task_states(dag, run, "work") == {"tried/at all": [1]}


def test_the_task_state_store_can_be_written_over_rest(stack: AirflowStack, dag: str) -> None:
    """A value a test plants is read back, with its retention, and can be deleted."""
    run = stack.trigger(dag)
    stack.wait_for(dag, run, "work")
    stack.set_task_state(dag, run, "work", "planted/key", {"a": 1}, expires_at=None)

    planted = stack.task_state(dag, run, "work", "planted/key")
    assert planted is not None
    assert (planted["value"], planted["expires_at"]) == ({"a": 1}, None)
    stack.delete_task_state(dag, run, "work", "planted/key")
    assert stack.task_state(dag, run, "work", "planted/key") is None
    stack.delete_task_state(dag, run, "work")
    assert stack.task_states(dag, run, "work") == {}


def test_a_task_killed_at_a_point_succeeds_in_its_second_try(
    stack: AirflowStack, crash: CrashController, dag: str
) -> None:
    """SIGKILL of the real task process makes Airflow try again, and the second try passes the point."""
    crash.on("mid_poll", "kill_task", task_id="work")
    run = stack.trigger(dag)
    done = stack.wait_for(dag, run, "work")

    assert (done["state"], done["try_number"]) == ("success", 2)
    first, second = (crash.wait("mid_poll", run_id=run, try_number=number) for number in (1, 2))
    assert (first.action, second.action) == ("kill_task", "go")
    assert second.at > first.at
    assert first.pid != second.pid
    assert not psutil.pid_exists(first.pid)
    assert [one["state"] for one in stack.tries(dag, run, "work")] == ["failed", "success"]


def test_a_killed_supervisor_leaves_its_task_alive(
    stack: AirflowStack, crash: CrashController, dag: str
) -> None:
    """The orphaned first try is still there when the second one has succeeded: two copies at once."""
    crash.on("mid_poll", "kill_supervisor", hold=True)
    run = stack.trigger(dag)
    done = stack.wait_for(dag, run, "work", timeout=90)

    assert (done["state"], done["try_number"]) == ("success", 2)
    event = crash.wait("mid_poll", run_id=run, try_number=1)
    orphan = psutil.Process(event.pid)
    assert orphan.pid in {process.pid for process in stack.processes()}
    assert not psutil.pid_exists(event.ppid)
    crash.release(event)
    orphan.wait(30)


def test_a_user_ends_and_clears_a_running_task(stack: AirflowStack, crash: CrashController, dag: str) -> None:
    """Marking a held task failed ends its process, and clearing it runs it once more."""
    crash.on("mid_poll", "hold")
    run = stack.trigger(dag)
    event = crash.wait("mid_poll", run_id=run)
    stack.mark(dag, run, "work", "failed")
    assert stack.wait_for(dag, run, "work", {"failed"})["try_number"] == 1
    psutil.wait_procs([psutil.Process(event.pid)] if psutil.pid_exists(event.pid) else [], timeout=30)
    assert not psutil.pid_exists(event.pid)

    stack.clear(dag, run, "work")
    assert stack.wait_for(dag, run, "work", {"success"})["try_number"] == 2


def test_a_restarted_scheduler_leaves_the_running_task_alone(
    stack: AirflowStack, crash: CrashController, dag: str
) -> None:
    """The task outlives the killed scheduler and ends in its first try, under its own supervisor."""
    crash.on("mid_poll", "hold")
    run = stack.trigger(dag)
    event = crash.wait("mid_poll", run_id=run)
    stack.restart("scheduler")
    assert stack.task_instance(dag, run, "work")["state"] == "running"
    crash.release(event)
    done = stack.wait_for(dag, run, "work")

    assert (done["state"], done["try_number"]) == ("success", 1)


def test_a_killed_api_server_is_missed_and_comes_back(stack: AirflowStack, dag: str) -> None:
    """Requests fail while it is down, and the same URL and token answer once it has started again."""
    stack.kill("api-server")
    with pytest.raises(StackError, match=r"GET http://127\.0\.0\.1"):
        stack.dag(dag)
    stack.start("api-server")

    assert stack.dag(dag) is not None


def test_an_import_error_is_raised_with_its_text_until_the_file_is_mended(stack: AirflowStack) -> None:
    """A test with a broken Dag file ends at once with the file's own error, and not once it is repaired."""
    stack.add_dag("import no_such_module_of_mine\n", "mended.py")
    with pytest.raises(StackError, match="No module named 'no_such_module_of_mine'"):
        stack.wait_for_dag("mended")
    stack.add_dag(DAG.format(name="mended"), "mended.py")

    assert stack.wait_for_dag("mended")["dag_id"] == "mended"


def test_a_clear_right_after_the_last_task_is_not_lost(stack: AirflowStack, dag: str) -> None:
    """A task that is cleared the moment it succeeded runs again, however the scheduler is timed."""
    for _ in range(3):
        run = stack.trigger(dag)
        stack.wait_for(dag, run, "work")
        stack.clear(dag, run)
        assert stack.wait_for(dag, run, "work", try_number=2)["state"] == "success"


def test_a_changed_dag_file_is_waited_for(stack: AirflowStack) -> None:
    """After a second `add_dag` under the same name the new version is the one that runs."""
    for value in ("one", "two"):
        source = DAG.format(name="changing").replace("return ti.try_number", f"return '{value}'")
        stack.add_dag(source, "changing.py")
        stack.wait_for_dag("changing")
        run = stack.trigger("changing")
        stack.wait_for("changing", run, "work")
        assert stack.xcom("changing", run, "work") == value


def test_the_command_line_talks_to_the_same_deployment(stack: AirflowStack, dag: str) -> None:
    """``airflow dags list`` sees the Dags of the stack, and a failing command raises its output."""
    assert dag in stack.cli("dags", "list", "--output", "plain").stdout
    with pytest.raises(StackError, match="dags details no_such_dag ended with"):
        stack.cli("dags", "details", "no_such_dag")


def test_waiting_in_vain_shows_states_and_log(stack: AirflowStack, crash: CrashController, dag: str) -> None:
    """The error of a wait that ran out tells where the task is."""
    crash.on("mid_poll", "hold")
    run = stack.trigger(dag)
    crash.wait("mid_poll", run_id=run)
    with pytest.raises(TimeoutError, match=r"states seen: running \(try 1\)"):
        stack.wait_for(dag, run, "work", timeout=0.5)
    crash.release()
    stack.wait_for(dag, run, "work")


def test_a_component_that_dies_is_named_with_its_log(tmp_path: Path, template_db: Path) -> None:
    """A stack that can't start says which part died and shows its last lines, and leaves nothing behind."""
    stack = AirflowStack(
        tmp_path, env={"AIRFLOW__CORE__EXECUTOR": "no.such.Executor"}, template_db=template_db
    )
    with pytest.raises(StackError, match=r"the scheduler of (?s:.*) died with exit code 1(?s:.*)no\.such"):
        stack.__enter__()

    assert stack.processes() == []


HARNESS = """
import os, signal, sys
from pathlib import Path
from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.stack import AirflowStack

home, dag, template, database, ending = sys.argv[1:]
with CrashController() as crash, AirflowStack(
    Path(home), [Path(dag)], env=crash.env, triggerer=True, database=database,
    template_db=Path(template), parallelism=2,
) as stack:
    stack.wait_for_dag("crash_me")
    crash.on("mid_poll", "kill_supervisor", hold=True)
    crash.on("mid_poll", "hold")
    runs = [stack.trigger("crash_me") for _ in range(2)]
    events = [crash.wait("mid_poll", run_id=run, try_number=1) for run in runs]
    stack.kill("scheduler")
    print(*(process.pid for process in stack.processes()), *(event.pid for event in events), flush=True)
    if ending == "signal":
        signal.pause()
    if ending == "error":
        raise KeyError("a test failed")
"""


def _living(pids: list[str]) -> Iterator[psutil.Process]:
    """Give the processes that are still there: a Dag processor's child lives for a moment only."""
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(int(pid))


@pytest.mark.parametrize(
    ("database", "ending", "number"),
    [
        ("sqlite", "signal", signal.SIGKILL),
        ("postgres", "error", None),
    ],
)
def test_nothing_of_the_stack_outlives_its_harness(
    database: str,
    ending: str,
    number: signal.Signals | None,
    tmp_path: Path,
    template_db: Path,
    require: Callable[[str], Path],
) -> None:
    """Components, executor workers without a scheduler, a running and an orphaned task: all are gone."""
    if database == "postgres":
        require("postgres")
    dag = tmp_path / "crash_me.py"
    dag.write_text("import textwrap\n" + f"exec(textwrap.dedent({DAG.format(name='crash_me')!r}))\n")
    arguments = [str(tmp_path / "home"), str(dag), str(template_db), database, ending]
    with subprocess.Popen(
        [sys.executable, "-c", HARNESS, *arguments],
        # The killed controller's socket lies in TMPDIR; PostgreSQL's user can't enter pytest's directories.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        | ({"TMPDIR": str(tmp_path)} if database == "sqlite" else {}),
        stdout=subprocess.PIPE,
        text=True,
    ) as harness:
        assert harness.stdout is not None
        started = list(_living(harness.stdout.readline().split()))
        assert len({process.pid for process in started}) >= 8
        if number is not None:
            harness.send_signal(number)
        assert harness.wait(60) == (1 if number is None else -number)

    _, alive = psutil.wait_procs(started, timeout=30)
    assert alive == []
