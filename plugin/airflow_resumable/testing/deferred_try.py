# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One deferred try without an Airflow: what Airflow would keep of it, its trigger, and how it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pkgutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_resumable.jobs.trigger import JobTrigger
    from airflow_resumable.testing.task_tries import TaskTries

LOOK_INTERVAL = 0.01
"""Seconds between two looks whether the trigger is where a test wants it."""


@dataclass(frozen=True, slots=True)
class DeferredTry:
    """A try that has handed its job over.

    Args:
        tries: The task instance.
        try_number: The try.
        ti_id: Its id, which is the same before and after a deferral.
        trigger_path: The trigger's class, as it serialized itself.
        trigger_arguments: The trigger's arguments, not yet JSON.
        method: The operator's method with which Airflow goes on.
        kwargs: What that method is given beside the event, not yet JSON.
    """

    tries: TaskTries
    try_number: int
    ti_id: uuid.UUID
    trigger_path: str
    trigger_arguments: dict[str, Any]
    method: str
    kwargs: dict[str, Any]

    def trigger(self) -> JobTrigger:
        """Return the trigger as a triggerer makes it: from what was serialized.

        Raises:
            TypeError: The arguments are no JSON.
        """
        kind: type[JobTrigger] = pkgutil.resolve_name(self.trigger_path)
        return kind(**json.loads(json.dumps(self.trigger_arguments)))

    def event(self, seconds: float) -> dict[str, Any]:
        """Run a trigger to its end and return its event's payload.

        Args:
            seconds: How long that may take.

        Raises:
            TimeoutError: The trigger told of no end.
        """

        async def first_event() -> Any:
            trigger = self.trigger()
            try:
                return await asyncio.wait_for(anext(trigger.run()), seconds)
            finally:
                await trigger.cleanup()

        return dict(asyncio.run(first_event()).payload)

    def cut_short(self, arrived: Callable[[], bool]) -> None:
        """Run a trigger until `arrived` says so, and then cancel it, as a triggerer that goes down does.

        Raises:
            AssertionError: The trigger ended by itself before.
        """

        async def cancelled_in_mid_run() -> None:
            trigger = self.trigger()
            running = asyncio.ensure_future(anext(trigger.run()))
            try:
                while not arrived():
                    if running.done():
                        raise AssertionError(f"the trigger ended by itself: {running.result().payload!r}")
                    await asyncio.sleep(LOOK_INTERVAL)
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
            finally:
                await trigger.cleanup()

        asyncio.run(cancelled_in_mid_run())

    def resume(self, subject: Any, event: dict[str, Any]) -> Any:
        """Go on after an event, as Airflow does: in a fresh operator, with what it has kept.

        Args:
            subject: The operator.
            event: The event's payload.
        """
        subject.retries, subject.deferrable = self.tries.retries, True
        kwargs = json.loads(json.dumps({**self.kwargs, "event": event}))
        context = self.tries.context(subject, try_number=self.try_number, ti_id=self.ti_id)
        return subject.resume_execution(self.method, kwargs, context)
