# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `install` gives the context's store: async methods, and a `clear` that spares the job's record."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from airflow.sdk import BaseOperator, ResumableJobMixin
from airflow.sdk.execution_time.context import NEVER_EXPIRE, TaskStateStoreAccessor
from airflow.sdk.state import TaskScope

from airflow_resumable.integration.compat import AIRFLOW_VERSION
from airflow_resumable.jobs.record import key_for
from airflow_resumable.store.accessor import install
from airflow_resumable.testing.local_job import LocalJobOperator
from airflow_resumable.testing.memory_store import InMemoryTaskStateStore

JOB_KEYS = ("local_job_id", key_for("local_job_id"))


class RetentionStore(InMemoryTaskStateStore):
    """Remembers the retention of each write."""

    def __init__(self, before: Callable[[str, str], None] | None = None) -> None:
        super().__init__(before)
        self.retentions: dict[str, Any] = {}

    def set(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        super().set(key, value, retention=retention)
        self.retentions[key] = retention


class Gate:
    """Lets the store's calls, or the first of them, through once it is open; says when that one waits."""

    def __init__(self, *operations: str, first_only: bool = False) -> None:
        self.operations = operations
        self.first_only = first_only
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, operation: str, key: str) -> None:
        if operation in self.operations and not (self.first_only and self.reached.is_set()):
            self.reached.set()
            in_time = self.opened.wait(10)
            self.opened.set()  # the calls after it need not wait as long to fail
            assert in_time, f"{operation} {key} was never let through"


def job_task() -> LocalJobOperator:
    return LocalJobOperator(task_id="job", service_url="http://127.0.0.1:1", command=["true"], retries=1)


def installed(store: Any, task: Any = None) -> Any:
    context: dict[str, Any] = {"task_state_store": store, "task": task}
    install(context)
    return context["task_state_store"]


def native_accessor() -> TaskStateStoreAccessor:
    return TaskStateStoreAccessor(
        ti_id=uuid4(), scope=TaskScope(dag_id="dag", run_id="run", task_id="task", map_index=-1)
    )


def test_a_second_install_changes_nothing() -> None:
    """Airflow may call the policy more than once in a process; the store is extended once."""
    context: dict[str, Any] = {"task_state_store": InMemoryTaskStateStore(), "task": job_task()}

    install(context)
    first = context["task_state_store"]
    install(context)

    assert context["task_state_store"] is first


def test_a_context_without_a_store_is_left_alone() -> None:
    """Where Airflow has no store there is nothing to extend, and none is invented."""
    context: dict[str, Any] = {"task": job_task()}

    install(context)

    assert "task_state_store" not in context


def test_airflows_own_accessor_keeps_its_type_and_its_identity() -> None:
    """The extended accessor is one of Airflow's, of the same task instance, in every comparison."""
    native = native_accessor()

    extended = installed(native)

    assert isinstance(extended, TaskStateStoreAccessor)
    assert extended == native
    assert hash(extended) == hash(native)
    assert repr(extended) == repr(native)
    assert type(extended).__name__ == "TaskStateStoreAccessor"


def test_a_store_of_somebody_else_keeps_its_type_and_its_state() -> None:
    """A foreign store is extended, not replaced: same class by isinstance, same data, its own methods."""
    foreign = InMemoryTaskStateStore()
    foreign.set("before", 1)

    extended = installed(foreign)
    extended.set("after", 2)

    assert isinstance(extended, InMemoryTaskStateStore)
    assert extended.get("before") == 1
    assert foreign.get("after") == 2
    assert extended.peek("after") == 2


@dataclass(frozen=True, slots=True)
class SlottedStore:
    """A foreign store without a ``__dict__`` that refuses to be changed."""

    values: dict[str, Any]

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self.values[key] = value

    def clear(self) -> None:
        self.values.clear()


def test_a_foreign_store_may_have_slots_and_be_frozen() -> None:
    """How a foreign store keeps its attributes is its own affair."""
    extended = installed(SlottedStore({"local_job_id": "7", "mine": 1}), job_task())

    asyncio.run(extended.aclear())

    assert isinstance(extended, SlottedStore)
    assert extended.values == {"local_job_id": "7"}


def test_clear_spares_the_record_of_the_job() -> None:
    """User code that empties the store keeps the id and the record, so that the next try finds the job."""
    store = RetentionStore()
    extended = installed(store, job_task())
    for key in (*JOB_KEYS, "mine"):
        store.set(key, {"of": key})

    extended.clear()

    assert {key: store.peek(key) for key in store.values} == {key: {"of": key} for key in JOB_KEYS}
    assert [store.retentions[key] for key in JOB_KEYS] == [NEVER_EXPIRE, NEVER_EXPIRE]


def test_clear_spares_an_id_that_is_falsy() -> None:
    """0 is an id."""
    extended = installed(InMemoryTaskStateStore(), job_task())
    extended.set("local_job_id", 0)

    extended.clear()

    assert extended.get("local_job_id") == 0


def test_clear_spares_what_the_parent_operator_cached() -> None:
    """A provider's own cache of its job is not the user's to clear either."""

    class Cached(LocalJobOperator):
        parent_cache_keys = ("driver_status",)

    task = Cached(task_id="job", service_url="http://127.0.0.1:1", command=["true"], retries=1)
    extended = installed(InMemoryTaskStateStore(), task)
    extended.set("driver_status", "RUNNING")
    extended.set("mine", 1)

    extended.clear()

    assert extended.get("driver_status") == "RUNNING"
    assert extended.get("mine") is None


def test_clear_spares_the_id_of_a_job_of_airflows_own_mixin() -> None:
    """A stock operator's job is just as lost without its id."""

    class Stock(ResumableJobMixin, BaseOperator):
        external_id_key = "stock_id"
        submit_job = get_job_status = is_job_active = is_job_succeeded = None  # type: ignore[assignment]
        get_job_result = poll_until_complete = None  # type: ignore[assignment]

    extended = installed(InMemoryTaskStateStore(), Stock(task_id="stock"))
    extended.set("stock_id", "7")
    extended.set("mine", 1)

    extended.clear()

    assert extended.get("stock_id") == "7"
    assert extended.get("mine") is None


def test_clear_of_a_task_without_a_job_clears_everything() -> None:
    """A plain task's `clear` is Airflow's own."""
    extended = installed(InMemoryTaskStateStore(), BaseOperator(task_id="plain"))
    extended.set("local_job_id", "mine, although it is called so")
    extended.set(key_for("local_job_id"), 1)

    extended.clear()

    assert extended.values == {}


def test_a_failing_read_keeps_clear_from_deleting_the_record() -> None:
    """What can't be read can't be written back, so nothing is deleted."""

    def refuse_reads(operation: str, key: str) -> None:
        if operation == "get":
            raise ConnectionError("the store doesn't answer")

    store = InMemoryTaskStateStore()
    extended = installed(store, job_task())
    extended.set("local_job_id", "7")
    extended.before = refuse_reads

    with pytest.raises(ConnectionError, match="doesn't answer"):
        extended.clear()

    assert store.peek("local_job_id") == "7"


def test_the_async_methods_do_what_the_others_do() -> None:
    """Same arguments, same results: default, retention, deletion, and a clear that spares the job."""
    store = RetentionStore()
    extended = installed(store, job_task())

    async def use() -> None:
        assert await extended.aget("absent") is None
        assert await extended.aget("absent", default="here") == "here"
        await extended.aset("kept", {"a": [1]}, retention=timedelta(hours=1))
        await extended.aset("gone", 1)
        await extended.adelete("gone")
        await extended.adelete("never there")
        assert await extended.aget("gone") is None
        assert await extended.aget("kept") == {"a": [1]}
        await extended.aset("local_job_id", "7")
        await extended.aclear()

    asyncio.run(use())

    assert store.retentions["kept"] == timedelta(hours=1)
    assert {key: store.peek(key) for key in store.values} == {"local_job_id": "7"}


def test_an_error_of_the_store_reaches_the_coroutine() -> None:
    """None is refused in a coroutine as it is elsewhere."""
    extended = installed(InMemoryTaskStateStore())

    with pytest.raises(ValueError, match="None"):
        asyncio.run(extended.aset("key", None))


@pytest.mark.parametrize("operation", ["aget", "aset", "adelete", "aclear"])
def test_the_loop_runs_on_while_the_store_is_slow(operation: str) -> None:
    """Other coroutines go on while a call waits for the store: here they are what lets it through."""
    gate = Gate("get", "set", "delete", "clear")
    extended = installed(InMemoryTaskStateStore(gate))
    arguments = {"aget": ("key",), "aset": ("key", 1), "adelete": ("key",), "aclear": ()}[operation]

    async def use() -> int:
        call = asyncio.ensure_future(getattr(extended, operation)(*arguments))
        ticks = 0
        while not call.done():
            await asyncio.sleep(0)
            ticks += gate.reached.is_set()
            if ticks == 10:
                gate.opened.set()
        await call
        return ticks

    assert asyncio.run(use()) >= 10


def test_many_calls_at_once_do_not_starve_the_loops_own_threads() -> None:
    """Host names are looked up in the loop's threads: calls waiting for the store must not hold them all."""
    gate = Gate("set")
    store = InMemoryTaskStateStore(gate)
    extended = installed(store)

    async def use() -> None:
        calls = [asyncio.ensure_future(extended.aset(f"key {number}", number)) for number in range(100)]
        await asyncio.sleep(0)
        await asyncio.to_thread(gate.reached.wait)
        gate.opened.set()
        await asyncio.gather(*calls)

    asyncio.run(asyncio.wait_for(use(), 20))

    assert len(store.values) == 100


def test_calls_take_effect_in_the_order_in_which_they_were_made() -> None:
    """Of writes that are made at once, the last one stands."""
    store = InMemoryTaskStateStore()
    extended = installed(store)

    async def use() -> None:
        await asyncio.gather(*(extended.aset("key", number) for number in range(200)))

    asyncio.run(use())

    assert store.peek("key") == 199


def test_a_cancelled_write_does_not_undo_a_later_one() -> None:
    """A writer is cancelled in the middle of a save, and the last save is what the store holds in the end."""
    gate = Gate("set", first_only=True)
    store = InMemoryTaskStateStore(gate)
    extended = installed(store)

    async def use() -> None:
        first = asyncio.ensure_future(extended.aset("done", [1]))
        await asyncio.to_thread(gate.reached.wait)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        last = asyncio.ensure_future(extended.aset("done", [1, 2]))
        await asyncio.wait([last], timeout=0.3)  # it has its chance to overtake
        gate.opened.set()
        await last

    asyncio.run(use())

    assert [operation for operation, _ in store.operations] == ["set", "set"]
    assert store.peek("done") == [1, 2]


def test_the_store_is_called_in_the_context_of_its_caller() -> None:
    """Context variables, tracing among them, reach the thread that carries a call out."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []
    extended = installed(InMemoryTaskStateStore(lambda operation, key: seen.append(variable.get())))

    async def use() -> None:
        variable.set("mine")
        await extended.aget("key")

    asyncio.run(use())

    assert seen == ["mine"]


def test_one_store_serves_one_loop_after_the_other() -> None:
    """A sync task may call `asyncio.run` several times with the same store."""
    extended = installed(InMemoryTaskStateStore())

    asyncio.run(extended.aset("key", 1))

    assert asyncio.run(extended.aget("key")) == 1


class NativeAsync(InMemoryTaskStateStore):
    """A store with async methods of its own, as Airflow's from 3.4 on."""

    async def aget(self, key: str, default: Any = None) -> Any:
        return ("native", self.get(key, default))

    async def aset(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        self.set(key, value, retention=retention)

    async def adelete(self, key: str) -> None:
        self.delete(key)

    async def aclear(self) -> None:
        self.clear()


def test_async_methods_that_are_there_already_are_used() -> None:
    """Airflow's own are preferred; only `aclear` is ours, since it must spare the job's record."""
    extended = installed(NativeAsync(), job_task())

    async def use() -> Any:
        await extended.aset("mine", 1)
        await extended.aset("local_job_id", "7")
        answer = await extended.aget("mine")
        await extended.aclear()
        return answer

    assert asyncio.run(use()) == ("native", 1)
    assert extended.values == {"local_job_id": '"7"'}


@pytest.mark.parametrize("method", ["aget", "aset", "adelete"])
def test_airflows_own_async_methods_are_not_replaced(method: str) -> None:
    """From 3.4 on the accessor has them: whoever calls one calls Airflow's own. Up to 3.3 it gets ours."""
    there = getattr(TaskStateStoreAccessor, method, None)

    extended = type(installed(native_accessor(), job_task()))

    assert (there is None) == (AIRFLOW_VERSION < (3, 4))
    assert (getattr(extended, method) is there) == (there is not None)
    assert inspect.iscoroutinefunction(getattr(extended, method))
