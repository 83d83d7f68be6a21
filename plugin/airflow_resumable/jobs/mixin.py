# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableJobMixin`: Airflow's own mixin, with the gaps closed."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from airflow.sdk import ResumableJobMixin as _AirflowMixin
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, BaseOperatorMeta
from airflow.sdk.exceptions import TaskDeferralError, TaskDeferralTimeout

from airflow_resumable.jobs.defaults import AdapterDefaults
from airflow_resumable.jobs.host import Host, stop_before_start
from airflow_resumable.jobs.policies import ResumePolicy, configured
from airflow_resumable.jobs.wake import Wake

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.jobs.watch import Watched


_log = logging.getLogger(__name__)


class ResumableJobMixin(AdapterDefaults, _AirflowMixin):
    """Makes an operator start its external job once, watch it to its end, and keep it over a restart.

    It takes the place of ``airflow.sdk.ResumableJobMixin``: the six methods, `durable`,
    `external_id_key` and `execute_resumable` are the same, and an operator written for Airflow's
    mixin works by changing one import, with the submit window `open`. Each optional method that is
    added narrows what can go wrong; see "write your own adapter" in the docs.

    Args:
        durable: False: as Airflow's own mixin with ``durable=False``, every try submits.
        resume_policy: A `ResumePolicy`, or a dict of its fields; what it leaves out comes from
            ``[resumable]``.

    Raises:
        TypeError, ValueError: At parse time, naming the argument, the value and what is allowed.
    """

    _resumable_host: Host | None = None
    deferrable: bool = False
    """Whether the triggerer watches the job instead of a worker; set by operators that let one choose."""
    _resumable_wake: Wake | None = None
    _resumable_stock: bool = False
    """Set once this run is known to go the way of the parent's, not ours."""

    # As on Airflow's own mixin: a mixin isn't a BaseOperator until an operator is made of it.
    @BaseOperatorMeta._apply_defaults  # type: ignore[type-var]
    def __init__(
        self,
        *,
        durable: bool = True,
        resume_policy: ResumePolicy | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(durable, bool):
            raise TypeError(f"durable={durable!r} is not allowed; use True or False")
        self.resume_policy = ResumePolicy.of(resume_policy)
        super().__init__(durable=durable, **kwargs)
        if self.durable and getattr(self, "retries", None) == 0:
            # A Dag processor that treats warnings as errors would lose the Dag, so it is one of
            # Python's own and can be filtered by its text.
            warnings.warn(
                f"task {getattr(self, 'task_id', '?')!r}: durable=True with retries=0: a crashed worker's "
                "job goes on, but no try is left to watch it; set retries to 1 or more",
                UserWarning,
                stacklevel=3,
            )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Put an operator's own `on_kill` behind the question why the task is dying."""
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("on_kill")
        if own is not None and not getattr(own, "_asks_why", False):
            setattr(cls, "on_kill", _asking_why(own))  # noqa: B010

    @property
    def _resumable_attempt(self) -> JobAttempt | None:
        return self._resumable_host.attempt if self._resumable_host else None

    @property
    def idempotency_token(self) -> str | None:
        """The token of the current generation: 33 characters, to be handed to the service.

        None where nothing is recorded: not durable, switched off, or outside `execute`.
        """
        return self._resumable_attempt.token if self._resumable_attempt else None

    @property
    def job_family(self) -> str | None:
        """The 16 hex digits that all generations of this task instance share, or None as above."""
        return self._resumable_attempt.mint.family if self._resumable_attempt else None

    def execute_resumable(self, context: Context) -> Any:
        """Carry the job to its end and return its result; call it from `execute`.

        Raises:
            ResumableJobError: One of `airflow_resumable.jobs.errors`; each says what to do.
        """
        from airflow_resumable.integration import settings

        wake, self._resumable_wake = self._resumable_wake, None
        if not self.durable or not settings.enabled():
            return self._execute_stock(context) if wake is None else self._finish_stock(wake, context)
        own = self.on_kill
        if not getattr(own, "_asks_why", False):
            # In a class in front of ours, or put on the class later: out of __init_subclass__'s reach.
            setattr(self, "on_kill", lambda: self._ask_why(own))  # noqa: B010
        self._resumable_host = Host(self, self.get_capabilities(), self.resumable_policy())
        return self._resumable_host.run(
            context,
            unrecorded=lambda: self._execute_unrecorded(context),
            deferrable=bool(self.deferrable),
            wake=wake,
        )

    def resumable_policy(self) -> ResumePolicy:
        """Return the operator's policy, its gaps filled from the configuration."""
        # Once more through `of`: a cluster policy may have put a dict there.
        return ResumePolicy.of(self.resume_policy).filled(configured())

    def resume_job(self, context: Context, event: Mapping[str, Any] | None = None, **job: Any) -> Any:
        """Go on after a deferral: `execute` runs again and finds its job, as after a reconnect.

        Args:
            context: The task's context.
            event: The trigger's event.
            job: The job that was handed over: external_id and generation.
        """
        self._resumable_wake = Wake(job, event)
        return self.execute(context)  # type: ignore[attr-defined]

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Let a failed or timed-out trigger be answered by the job's protocol before Airflow raises it."""
        from airflow_resumable.integration import settings

        resume: Any = super().resume_execution  # type: ignore[misc]
        ours = self.durable and settings.enabled()
        try:
            return resume(next_method, next_kwargs, context)
        except (TaskDeferralError, TaskDeferralTimeout) as error:
            if not ours or next_method != TRIGGER_FAIL_REPR or not self._is_on_record(context):
                raise
            self._resumable_wake = Wake(failure=error)
        return self.execute(context)  # type: ignore[attr-defined]

    def _is_on_record(self, context: Context) -> bool:
        from airflow_resumable.jobs.record import key_for

        # Not by `deferrable`: the Dag may have been edited while the task was deferred.
        store = context.get("task_state_store")
        try:
            return store is not None and store.get(key_for(self.external_id_key)) is not None
        except Exception as error:
            _log.warning("the job's record can't be read (%s); taking it that there is one", error)
            return True

    @classmethod
    def for_watching(cls, arguments: Mapping[str, Any]) -> Self:
        """Return an operator outside of any Dag, for the triggerer to ask for a job's status."""
        return cls(task_id="watched", retries=1, **arguments)

    def _execute_unrecorded(self, context: Context) -> Any:
        # Not the parent's execute_resumable: with durable=True that asks the very store that is down.
        self._go_unrecorded()
        return self._watch_unrecorded(self.submit_job(context), context)

    def _execute_stock(self, context: Context) -> Any:
        self._go_unrecorded()
        return super().execute_resumable(context)

    def _finish_stock(self, wake: Wake, context: Context) -> Any:
        # Switched off while the task was deferred: its job exists, so it is watched, not started again.
        self._go_unrecorded()
        return self._watch_unrecorded(wake.job["external_id"], context)

    def _go_unrecorded(self) -> None:
        self._resumable_host, self._resumable_stock = None, True

    def _watch_unrecorded(self, external_id: JsonValue, context: Context) -> Any:
        self.poll_until_complete(external_id, context)
        return self.get_job_result(external_id, context)

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Poll the job to its end: by the provider's loop where it has one, else by `get_job_status`."""
        parent = super().poll_until_complete  # type: ignore[safe-super]
        if not getattr(parent, "__isabstractmethod__", False):
            return parent(external_id, context)
        from airflow_resumable.jobs.watch import poll

        poll(self._attempt_for_polling(context), external_id)
        return None

    def _attempt_for_polling(self, context: Context) -> Watched:
        if self._resumable_attempt is not None:
            return self._resumable_attempt
        from airflow_resumable.jobs.unrecorded import UnrecordedAttempt

        return UnrecordedAttempt(self, context, self.resumable_policy(), self.get_capabilities())

    def on_kill(self) -> None:
        """Find out why the task is dying, and keep or cancel its job by policy."""
        parent: Callable[[], None] = getattr(super(), "on_kill", _nothing)
        self._ask_why(parent)

    on_kill._asks_why = True  # type: ignore[attr-defined]

    def _ask_why(self, tidy_up: Callable[[], None]) -> None:
        if self._resumable_host is None and (not self.durable or self._resumable_stock):
            tidy_up()
        elif self._resumable_host is not None or self._prepared_for_a_stop():
            cast(Host, self._resumable_host).on_kill(tidy_up)
        else:
            stop_before_start(tidy_up)

    def _prepared_for_a_stop(self) -> bool:
        # A stop before this try has begun may still mean the job of the try before: it is on record.
        from airflow_resumable.integration import settings

        try:
            from airflow.sdk import get_current_context

            if not settings.enabled():
                return False
            host = Host(self, self.get_capabilities(), self.resumable_policy())
            if host.prepare(get_current_context()) is None:
                return False
        except Exception as error:
            _log.warning("told to stop before this try had begun, and no record can be asked for (%s)", error)
            return False
        self._resumable_host = host
        return True


def _asking_why(own: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(own)
    def on_kill(self: ResumableJobMixin) -> None:
        self._ask_why(lambda: own(self))

    on_kill._asks_why = True  # type: ignore[attr-defined]
    return on_kill


def _nothing() -> None:
    return None
