# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The one trigger of all adapters: it looks at a job from the triggerer until the job has ended.

It never cancels because it is being cancelled: a triggerer that restarts, or that hands its triggers to
another one, cancels them too. Only `on_kill`, and only when the server says that a user has ended the task,
ends the job.
See https://airflow.apache.org/docs/apache-airflow/stable/authoring-and-scheduling/deferring.html
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import operator
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, cast

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_resumable.integration.server import NO_STATE, state_of
from airflow_resumable.jobs.adapter import Observation
from airflow_resumable.jobs.crashpoints import listens, reach
from airflow_resumable.jobs.errors import ResumableJobError, ResumableJobFatal
from airflow_resumable.jobs.kill import KillReason, reason_for
from airflow_resumable.jobs.policies import ResumePolicy
from airflow_resumable.jobs.service import JobService
from airflow_resumable.jobs.settling import Settling

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_resumable.jobs.adapter import JobAdapter
    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.jobs.record import JobRecord

_log = logging.getLogger(__name__)

CANCEL_BUDGET = 10.0
"""Seconds of retries for a cancel; ``[triggerer] on_kill_timeout`` gives `on_kill` 30 in all."""

ASK_LIMIT = 18.0
"""Seconds of those for the question what the server says of the task."""

PAUSE_LIMIT = 15.0
"""Seconds beyond the poll interval between two looks, after which a trigger takes it that it was stopped."""

_LOOKING_THREADS = 32

# Of our own: a service that doesn't answer must use up neither the threads that Airflow's triggerer shares,
# nor those of another kind of job, nor those that answer a user's stop.
_looking: dict[str, ThreadPoolExecutor] = {}
_stopping = ThreadPoolExecutor(max_workers=16, thread_name_prefix="resumable-stop")
_is_warm = False


class JobTrigger(BaseTrigger):
    """Watches one job of one generation.

    Args:
        adapter: The adapter's class, as ``module:name``.
        arguments: What its `for_watching` is given.
        job: The job: external_id, generation, location, uid.
        scope: The task instance: dag_id, run_id, task_id, map_index, try_number.
        policy: The fields of a `ResumePolicy` without gaps.
        installed: Whether ``[resumable] installation_id`` is set: then a cleared task's next try ends the
            job, also where the clear has discarded its record.
    """

    def __init__(
        self,
        adapter: str,
        arguments: dict[str, Any],
        job: dict[str, Any],
        scope: dict[str, Any],
        policy: dict[str, Any],
        installed: bool,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.adapter = adapter
        self.arguments = arguments
        self.job = job
        self.scope = scope
        self.policy = policy
        self.installed = installed
        self._service: JobService | None = None
        self._looking = ExitStack()
        self._warming: asyncio.Task[None] | None = None
        self._last: Observation | None = None
        self._looked_at: float | None = None
        self._was_paused = False

    @classmethod
    def for_attempt(cls, attempt: JobAttempt, record: JobRecord) -> Self:
        """Return the trigger that watches an attempt's current job."""
        job = record.model_dump(mode="json", include={"external_id", "generation", "location", "uid"})
        arguments = dict(attempt.adapter.get_watch_arguments(attempt.context))
        return cls(
            path_of(attempt.adapter),
            arguments,
            job,
            attempt.scope,
            asdict(attempt.policy),
            bool(attempt.mint.installation),
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which the triggerer makes the trigger anew."""
        own = {
            name: getattr(self, name)
            for name in ("adapter", "arguments", "job", "scope", "policy", "installed")
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", own

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event when the job has ended, is missing, or could not be asked for too long."""
        event: dict[str, Any] = {"generation": self.job["generation"], "seen_alive": False}
        self._warming = asyncio.create_task(_warm_up(self.scope))
        try:
            event["status"] = await self._until_the_end(event)
        except ResumableJobError as error:
            event |= {"error": type(error).__name__, "message": str(error)}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def _until_the_end(self, event: dict[str, Any]) -> str | None:
        service, job = await self._watching(), self.job["external_id"]
        settling = Settling(ResumePolicy(**self.policy), job)
        said: str | None = None
        while True:
            seen, raw = await service.alook(job, self._in_thread)
            self._note_pause(service.poll_interval)
            if raw != said:
                said = raw
                _log.info("job %r, generation %s, is %s", job, self.job["generation"], raw)
            self._last = seen
            if not seen.is_live:
                return raw
            event["seen_alive"] = True
            settling.check(seen, raw, time.monotonic())
            if listens():
                await self._in_thread(lambda: reach("in_trigger", **self.scope))
            await asyncio.sleep(service.poll_interval)

    async def _watching(self, policy: ResumePolicy | None = None) -> JobService:
        if self._service is None or policy is not None:
            self._service = await _to_stop(lambda: self._build(policy or ResumePolicy(**self.policy)))
        return self._service

    def _build(self, policy: ResumePolicy) -> JobService:
        # In a thread: hooks look up connections and read files when they are made.
        adapter = _find(self.adapter).for_watching(self.arguments)
        context = cast("Context", {"ti": SimpleNamespace(**self.scope), "task": adapter})
        self._looking.enter_context(adapter.looking(context))
        adapter.restore_job(self.job["external_id"], self.job["location"], self.job["uid"], context)
        return JobService(adapter, context, policy, adapter.get_capabilities())

    async def on_kill(self) -> None:
        """Cancel the job if a user has ended the task; called by Airflow 3.3 and later."""
        job = f"job {self.job['external_id']!r}, generation {self.job['generation']}"
        policy = ResumePolicy(**self.policy)
        try:
            state = await asyncio.wait_for(self._ask_for_state(), ASK_LIMIT)
        except Exception as error:
            # A triggerer that was thought dead gets this too when its triggers were given to another one.
            _log.error(
                "%s is NOT cancelled: its trigger is removed, and the server can't be asked why (%s: %s). "
                "If a user has ended the task, stop the job in the service",
                job,
                type(error).__name__,
                error,
            )
            return
        if not self._is_to_be_cancelled(state, policy):
            _log.warning("%s is kept: its trigger is removed, the task is %r on the server", job, state)
            return
        _log.warning("%s is being cancelled: a user has ended the deferred task (%s)", job, state)
        service = await self._watching(replace(policy, status_error_budget=CANCEL_BUDGET))
        if not service.can_cancel:
            _log.error("%s is NOT cancelled: this operator has no cancel_job", job)
            return
        await _to_stop(lambda: service.cancel(self.job["external_id"]))

    def _is_to_be_cancelled(self, state: str, policy: ResumePolicy) -> bool:
        from airflow_resumable.integration.compat import AIRFLOW_VERSION

        if reason_for(state) is KillReason.USER:
            return policy.on_user_stop == "cancel"
        # Cleared, maybe. Where the next try finds the job by itself it ends it. From 3.4 on a clear may have
        # discarded the record; but the same is seen by a triggerer that was stopped for so long that another
        # one has handed the job back to a worker.
        if self._service is not None:
            self._note_pause(self._service.poll_interval)
        return (
            AIRFLOW_VERSION >= (3, 4)
            and not self.installed
            and not self._was_paused
            and state in (NO_STATE, "scheduled", "queued", "running", "restarting", "deferred")
            and policy.on_clear == "resubmit"
            and self._last is Observation.ACTIVE
        )

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        pool = _looking.get(self.adapter)
        if pool is None:
            prefix = f"resumable-look-{len(_looking)}"
            pool = _looking[self.adapter] = ThreadPoolExecutor(_LOOKING_THREADS, thread_name_prefix=prefix)

        return await _hop(call, pool)

    def _note_pause(self, poll_interval: float) -> None:
        now = time.monotonic()
        if self._looked_at is not None and now - self._looked_at > poll_interval + PAUSE_LIMIT:
            self._was_paused = True
        self._looked_at = now

    async def _ask_for_state(self) -> str:
        return str(await _to_stop(lambda: state_of(self.scope)))

    async def cleanup(self) -> None:
        """Let go of connections; called by Airflow whenever the trigger leaves this triggerer."""
        if self._warming is not None:
            self._warming.cancel()
        await _to_stop(self._looking.close)


async def _to_stop(call: Callable[[], Any]) -> Any:
    return await _hop(call, _stopping)


async def _hop(call: Callable[[], Any], pool: ThreadPoolExecutor) -> Any:
    def guarded() -> Any:
        try:
            return call()
        except (StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            # The first is lost on its way out of a thread, the others would end the whole triggerer.
            raise RuntimeError(f"an adapter raised {error!r} in the triggerer") from error

    # By asgiref, so that what asks the supervisor from the thread finds its way back to the loop.
    return await sync_to_async(guarded, thread_sensitive=False, executor=pool)()


async def _warm_up(scope: Mapping[str, Any]) -> None:
    # A triggerer builds its way to the server at the first question, which takes seconds, on a busy host more
    # than on_kill is given.
    global _is_warm
    if _is_warm:
        return
    _is_warm = True
    try:
        await _to_stop(lambda: state_of(scope))
    except Exception as error:
        _is_warm = False
        _log.warning("the task's state could not be asked for (%s); watching on", error)


def path_of(adapter: JobAdapter) -> str:
    """Return where the triggerer finds an adapter's class, as ``module:name``.

    Raises:
        ResumableJobFatal: It can't find it there.
    """
    kind = type(adapter)
    path = f"{kind.__module__}:{kind.__qualname__}"
    # A Dag file's module is known in this process only, under a name that Airflow makes up.
    in_dag_file = kind.__module__ == "__main__" or kind.__module__.startswith("unusual_prefix_")
    try:
        found = None if in_dag_file else _find(path)
    except (ImportError, AttributeError):
        found = None
    if found is not kind:
        raise ResumableJobFatal(
            f"deferrable=True: the triggerer can't import {path} (a class of a Dag file, or made in a "
            "function); move it to a module that worker and triggerer can import, or set deferrable=False"
        )
    return path


def _find(path: str) -> Any:
    module, _, name = path.partition(":")
    return operator.attrgetter(name)(importlib.import_module(module))
