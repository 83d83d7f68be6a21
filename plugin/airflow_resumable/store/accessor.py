# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What this package adds to ``context["task_state_store"]``: async methods, a `clear` that spares jobs."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Hashable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pydantic import JsonValue


class _SparesJobs:
    """Placed before Airflow's accessor class: `clear` keeps the keys of a running job's record."""

    _job_keys: tuple[str, ...] = ()
    _thread: ThreadPoolExecutor | None = None

    def clear(self) -> None:
        """Delete all keys of this task instance but the job record's own.

        Between the delete and the write-back a crash loses the record; a service that can be
        searched still gives the job back then.
        """
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        native: Any = super()
        kept = {key: native.get(key) for key in self._job_keys}
        native.clear()
        for key, value in kept.items():
            if value is not None:
                native.set(key, value, retention=NEVER_EXPIRE)

    async def aclear(self) -> None:
        """Like `clear`, without blocking the event loop."""
        await self._in_thread(self.clear)

    async def _in_thread(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # One thread of our own, not asyncio.to_thread: calls take effect in the order in which they were
        # made, so that a write whose caller was cancelled can't undo a later one; and while the store is
        # slow, its callers don't use up the loop's own threads, which look up host names.
        if self._thread is None:
            object.__setattr__(self, "_thread", ThreadPoolExecutor(1, thread_name_prefix="task_state_store"))
        run = functools.partial(contextvars.copy_context().run, call, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)


class _Async(_SparesJobs):
    """The async methods that Airflow's accessor has from 3.4 on, for 3.3.

    Each hands the call to a thread: Airflow's channel to the supervisor serialises threads and
    coroutines (``CommsDecoder``), while a sync call on the loop's own thread would freeze the loop.
    """

    async def aget(self, key: str, default: JsonValue = None) -> JsonValue:
        """Return the value under `key`, or `default`, without blocking the event loop."""
        native: Any = self
        value: JsonValue = await self._in_thread(native.get, key, default)
        return value

    async def aset(self, key: str, value: JsonValue, *, retention: timedelta | None = None) -> None:
        """Write `value` under `key` without blocking the event loop; `retention` as in `set`."""
        native: Any = self
        await self._in_thread(native.set, key, value, retention=retention)

    async def adelete(self, key: str) -> None:
        """Delete `key` without blocking the event loop."""
        native: Any = self
        await self._in_thread(native.delete, key)


@functools.cache
def _extended(native: Hashable) -> Any:
    bases: Any = (_SparesJobs, native) if hasattr(native, "aget") else (_Async, native)
    return type(bases[-1].__name__, bases, {"__doc__": native.__doc__, "__module__": __name__})


def install(context: MutableMapping[str, Any]) -> None:
    """Give the context's store what it lacks; done before the task's `execute`, and only once.

    Args:
        context: The task's context; a store put there by anybody else is extended, not replaced.
    """
    store = context.get("task_state_store")
    if store is None or isinstance(store, _SparesJobs):
        return
    kind = _extended(cast(Hashable, type(store)))
    extended: Any = store
    try:
        # The same object: whoever holds it already, and what it keeps to itself, stay in step.
        object.__setattr__(store, "__class__", kind)
    except TypeError:
        extended = _copy_as(kind, store)
    object.__setattr__(extended, "_job_keys", tuple(_keys_of(context.get("task"))))
    context["task_state_store"] = extended


def _copy_as(kind: Any, store: Any) -> Any:
    """Return a copy of a store whose class has slots, so that it can't take another one."""
    copy = object.__new__(kind)
    state: Any = object.__getstate__(store)
    for part in state if isinstance(state, tuple) else (state,):
        for name, value in (part or {}).items():
            object.__setattr__(copy, name, value)
    return copy


def _keys_of(task: Any) -> Iterable[str]:
    key = getattr(task, "external_id_key", None)
    if isinstance(key, str) and hasattr(task, "execute_resumable"):
        from airflow_resumable.jobs.record import key_for

        yield key
        yield key_for(key)
        yield from getattr(task, "parent_cache_keys", ())
