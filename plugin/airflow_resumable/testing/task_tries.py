# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One task instance without an Airflow: a store, the tries made of it, and how a try can be ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

from airflow_resumable.jobs.crashpoints import check_point
from airflow_resumable.jobs.policies import ResumePolicy
from airflow_resumable.jobs.record import key_for
from airflow_resumable.testing.memory_store import InMemoryTaskStateStore

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_resumable.testing.deferred_try import DeferredTry

CrashBy = Literal["exception", "sigkill"]


class Crashed(BaseException):
    """Stands for the death of the process: nothing of the protocol catches it."""


class TaskTries:
    """Makes the contexts of one task instance's tries, and runs an operator or an `ExternalJob` in them.

    Args:
        store: What the tries share; a store in memory unless given.
        run_id: The Dag run: another one is another task instance.
        retries: The task's retries, put on each operator that is run.

    Attributes:
        server_state: What the API server says of the task when it is asked why a stop came.
        xcoms: The (key, value) pairs that were pushed, in order.
    """

    def __init__(self, store: Any = None, *, run_id: str = "run", retries: int = 2) -> None:
        self.store = InMemoryTaskStateStore() if store is None else store
        self.run_id = run_id
        self.retries = self.max_tries = retries
        self.try_number = 0
        self.server_state = "running"
        self.xcoms: list[tuple[str, Any]] = []
        self._started = datetime.now(UTC)

    def context(
        self, subject: Any, *, try_number: int | None = None, ti_id: uuid.UUID | None = None
    ) -> Context:
        """Return the context of the next try.

        Args:
            subject: The operator, or a stand-in for the task of a `@task` function.
            try_number: Another number than the next one.
            ti_id: The task instance's id, for a try that goes on; a new one unless given.
        """
        self.try_number = self.try_number + 1 if try_number is None else try_number
        ti = SimpleNamespace(
            id=ti_id or uuid.uuid4(),
            dag_id="dag",
            run_id=self.run_id,
            task_id=getattr(subject, "task_id", "task"),
            map_index=-1,
            try_number=self.try_number,
            max_tries=self.max_tries,
            stats_tags={},
            task=subject,
            get_task_states=self._states,
            xcom_push=lambda key, value, **_: self.xcoms.append((key, value)),
            xcom_pull=lambda *_, key="return_value", **__: dict(self.xcoms).get(key),
        )
        context: Any = {
            "ti": ti,
            "task_instance": ti,
            "task": subject,
            "dag": SimpleNamespace(dag_id="dag"),
            "dag_run": SimpleNamespace(start_date=self._started, run_id=self.run_id, conf={}),
            "run_id": self.run_id,
            "logical_date": self._started,
            "params": {},
            "task_state_store": self.store,
        }
        return context  # type: ignore[no-any-return]

    def _states(self, *, task_ids: list[str], **_: Any) -> dict[str, dict[str, str]]:
        return {self.run_id: dict.fromkeys(task_ids, self.server_state)}

    def clear(self) -> None:
        """Clear the task as a user does: `max_tries` becomes the try number plus the retries."""
        self.max_tries = self.try_number + self.retries

    def discard(self, subject: Any) -> None:
        """Clear the task as a user does where Airflow drops the record with it, as 3.4 does by default."""
        self.clear()
        for key in (subject.external_id_key, key_for(subject.external_id_key)):
            self.store.delete(key)

    def record(self, subject: Any) -> Any:
        """Return the job record of an operator or an `ExternalJob`, or None."""
        return self.store.get(key_for(subject.external_id_key))

    def run(self, subject: Any, policy: ResumePolicy | Mapping[str, Any] | None = None, **more: Any) -> Any:
        """Run the next try to its end and return its result.

        Args:
            subject: An operator, or an `ExternalJob`, which is run as inside of a `@task` function.
            policy: Takes the place of the operator's own `resume_policy`.
            more: As for `context`.
        """
        from airflow_resumable.jobs.taskflow import ExternalJob, resumable_job

        if isinstance(subject, ExternalJob):
            task = _FunctionTask(self.retries)
            vars(subject)["_task_of_try"] = task
            return resumable_job(subject, self.context(task, **more), policy=policy)
        subject.retries = self.retries
        if policy is not None:
            subject.resume_policy = ResumePolicy.of(policy)
        return subject.execute(self.context(subject, **more))

    def defer(self, subject: Any, **more: Any) -> DeferredTry:
        """Run the next try until it has handed its job to the triggerer.

        Args:
            subject: An operator with `get_watch_arguments`; it is made ``deferrable``.
            more: As for `run`.

        Raises:
            AssertionError: It ended without having been deferred.
        """
        from airflow.sdk.exceptions import TaskDeferred

        from airflow_resumable.testing.deferred_try import DeferredTry

        subject.deferrable, ti_id = True, uuid.uuid4()
        try:
            result = self.run(subject, ti_id=ti_id, **more)
        except TaskDeferred as deferred:
            path, arguments = deferred.trigger.serialize()
            kwargs = dict(deferred.kwargs or {})
            return DeferredTry(self, self.try_number, ti_id, path, arguments, deferred.method_name, kwargs)
        raise AssertionError(f"the try was not deferred, it returned {result!r}")

    def crash(self, make: Callable[[], Any], point: str, *, by: CrashBy = "exception", **more: Any) -> bool:
        """Run the next try until it dies at a crash point; False when it ended before it came there.

        Args:
            make: Makes the operator or `ExternalJob`.
            point: One of `airflow_resumable.jobs.crashpoints.POINTS`.
            by: ``exception``: a `BaseException` at the point; what a `finally` does on its way is done.
                ``sigkill``: a forked process is killed at the point; needs a store that processes share, such
                as `FileTaskStateStore`, and a service outside of this process.
            more: As for `run`.
        """
        check_point(point)
        if by == "sigkill":
            return self._killed(make, point, **more)
        try:
            with at_point(point, _crash):
                self.run(make(), **more)
        except Crashed:
            return True
        except Exception:
            return False
        return False

    def _killed(self, make: Callable[[], Any], point: str, **more: Any) -> bool:
        def live() -> None:
            with (
                contextlib.suppress(Exception),
                at_point(point, lambda: os.kill(os.getpid(), signal.SIGKILL)),
            ):
                self.run(make(), **more)
            os._exit(0)

        with warnings.catch_warnings():
            # From Python 3.12 on a fork of a process with threads warns; this child only runs the try.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = multiprocessing.get_context("fork").Process(target=live)
            process.start()
        process.join()
        self.try_number += 1
        return process.exitcode == -signal.SIGKILL

    def stop(self, subject: Any, state: str, *, point: str = "mid_poll", **more: Any) -> str | None:
        """Run the next try and send this process SIGTERM at a crash point, as Airflow's supervisor does.

        Args:
            subject: The operator or `ExternalJob`.
            state: What the API server says of the task then: `running` for an eviction, `failed` for a user.
            point: Where the signal arrives.
            more: As for `run`.

        Returns:
            The name of the exception that ended the try, None when it returned or never came to the point.
        """
        told: list[int] = []

        # Airflow's own handler has this name; on_kill looks for the registered one on the stack.
        def _on_term(signum: int, frame: object) -> None:
            getattr(subject, "_task_of_try", subject).on_kill()

        def stop() -> None:
            if not told:
                told.append(1)
                self.server_state = state
                signal.raise_signal(signal.SIGTERM)

        before = signal.signal(signal.SIGTERM, _on_term)
        try:
            with at_point(point, stop):
                self.run(subject, **more)
        except (Exception, SystemExit) as error:
            return type(error).__name__ if told else None
        finally:
            signal.signal(signal.SIGTERM, before)
            self.server_state = "running"
        return None


class _FunctionTask:
    """What Airflow makes of a `@task` function, as far as the protocol is concerned."""

    task_id = "task"

    def __init__(self, retries: int) -> None:
        self.retries = retries

    def on_kill(self) -> None:
        """Nothing: as of Airflow's own."""


def _crash() -> None:
    raise Crashed


@contextlib.contextmanager
def at_point(point: str, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` whenever an attempt of this process passes a crash point."""
    from airflow_resumable.jobs.attempt import JobAttempt

    reach = JobAttempt.reach

    def reached(self: JobAttempt, passed: str) -> None:
        if passed == point:
            act()
        reach(self, passed)

    with mock.patch.object(JobAttempt, "reach", reached):
        yield
