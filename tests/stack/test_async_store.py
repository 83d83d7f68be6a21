# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The async methods of the task state store in a real `async def` task."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from airflow_resumable.testing.stack import AirflowStack
from tests.stack.kills import running_process, stopped, until

pytestmark = pytest.mark.stack

DAG = '''
    import asyncio
    from datetime import timedelta
    from pathlib import Path

    from airflow.sdk import NEVER_EXPIRE, dag, get_current_context, task
    from airflow_resumable.testing.local_job import LocalJobOperator

    class ClearsInExecute(LocalJobOperator):
        """User code that empties the store in the middle of a job's task."""

        def execute(self, context):
            store = context["task_state_store"]
            store.set("local_job_id", "job-7")
            store.set("resumable.local_job_id", {"id": "job-7"})
            store.set("mine", 1)
            asyncio.run(store.aclear())
            store.set("after", 1)

    @dag("async_store", schedule=None, params={"folder": ""})
    def build():
        @task
        async def at_once(task_state_store=None):
            store = task_state_store
            assert store is get_current_context()["task_state_store"]
            await asyncio.gather(*(store.aset(f"n {n}", {"n": n}) for n in range(15)))
            read = await asyncio.gather(*(store.aget(f"n {n}") for n in range(15)))
            mixed = await asyncio.gather(
                *(store.adelete(f"n {n}") for n in range(5)),
                *(store.aget(f"n {n}") for n in range(5, 10)),
                *(store.aset(f"n {n}", "written") for n in range(10, 15)),
            )
            gone = await store.aget("n 0", "gone")
            await store.aset("brief", 1, retention=timedelta(minutes=1))
            await store.aset("for ever", 1, retention=NEVER_EXPIRE)
            return {"read": read, "mixed": mixed, "gone": gone, "sync": store.get("n 14")}

        @task
        async def emptied(task_state_store=None):
            await asyncio.gather(*(task_state_store.aset(f"n {n}", n) for n in range(3)))
            await task_state_store.aclear()

        @task
        async def ticking(params=None, task_state_store=None):
            folder = Path(params["folder"])
            (folder / "ready").touch()
            while not (folder / "go").exists():
                await asyncio.sleep(0.01)
            call = asyncio.create_task(task_state_store.aset("slow", 1))
            ticks = 0
            while not call.done():
                await asyncio.sleep(0.01)
                ticks += 1
                (folder / "ticks").write_text(str(ticks))
            return await task_state_store.aget("slow")

        at_once()
        emptied()
        ticking()
        ClearsInExecute(task_id="clears", service_url="http://127.0.0.1:1", command=["true"], retries=1)

    build()
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("async_store")


@pytest.fixture(scope="module")
def run(stack: AirflowStack, folder: Path) -> str:
    """One run of all the tasks above."""
    stack.add_dag(DAG, "async_store.py")
    stack.wait_for_dag("async_store")
    return stack.trigger("async_store", conf={"folder": str(folder)})


def test_the_loop_runs_on_while_the_supervisor_does_not_answer(
    stack: AirflowStack, run: str, folder: Path
) -> None:
    """A coroutine goes on ticking for as long as a write waits for a supervisor that was stopped."""
    until("the task is ready", (folder / "ready").exists)
    supervisor = running_process(stack, "async_store", run, "ticking").parent()
    assert supervisor is not None
    with stopped(supervisor):
        (folder / "go").touch()
        ticks = folder / "ticks"
        until("it has ticked", lambda: ticks.exists() and int(ticks.read_text() or 0) >= 20)
        unwritten = stack.task_state("async_store", run, "ticking", "slow")

    assert unwritten is None
    assert stack.wait_for("async_store", run, "ticking")["state"] == "success"
    assert stack.xcom("async_store", run, "ticking") == 1
    state = stack.task_state("async_store", run, "ticking", "slow")
    assert state is not None
    assert state["value"] == 1


def test_fifteen_operations_at_once_get_their_own_answers(stack: AirflowStack, run: str) -> None:
    """Gathered reads, writes and deletions of one task don't mix, and sync ones agree with them."""
    assert stack.wait_for("async_store", run, "at_once")["state"] == "success"

    assert stack.xcom("async_store", run, "at_once") == {
        "read": [{"n": number} for number in range(15)],
        "mixed": [None] * 5 + [{"n": number} for number in range(5, 10)] + [None] * 5,
        "gone": "gone",
        "sync": "written",
    }
    assert stack.task_states("async_store", run, "at_once") == {
        **{f"n {number}": {"n": number} for number in range(5, 10)},
        **{f"n {number}": "written" for number in range(10, 15)},
        "brief": 1,
        "for ever": 1,
    }


def test_aset_takes_the_retention_that_set_takes(stack: AirflowStack, run: str) -> None:
    """A duration, for ever, and the configured 30 days when nothing is said."""
    stack.wait_for("async_store", run, "at_once")
    keys = ("brief", "for ever", "n 5")
    states = {key: stack.task_state("async_store", run, "at_once", key) for key in keys}

    def lifetime(key: str) -> timedelta | None:
        state = states[key]
        assert state is not None
        if state["expires_at"] is None:
            return None
        written, expires = (datetime.fromisoformat(state[name]) for name in ("updated_at", "expires_at"))
        return timedelta(minutes=round((expires - written) / timedelta(minutes=1)))

    assert {key: lifetime(key) for key in states} == {
        "brief": timedelta(minutes=1),
        "for ever": None,
        "n 5": timedelta(days=30),
    }


def test_aclear_empties_the_store_of_a_plain_task(stack: AirflowStack, run: str) -> None:
    """Nothing of the task is left in the database."""
    assert stack.wait_for("async_store", run, "emptied")["state"] == "success"

    assert stack.task_states("async_store", run, "emptied") == {}


def test_clearing_the_store_in_a_jobs_task_spares_the_job(stack: AirflowStack, run: str) -> None:
    """The id and the record are there after user code has cleared the store; its own keys are not."""
    assert stack.wait_for("async_store", run, "clears")["state"] == "success"

    assert stack.task_states("async_store", run, "clears") == {
        "local_job_id": "job-7",
        "resumable.local_job_id": {"id": "job-7"},
        "after": 1,
    }
    kept = stack.task_state("async_store", run, "clears", "resumable.local_job_id")
    assert kept is not None
    assert kept["expires_at"] is None
