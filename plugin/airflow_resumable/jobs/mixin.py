# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`ResumableJobMixin`: Airflow's own mixin, with the gaps closed."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import ResumableJobMixin as _AirflowMixin
from airflow.sdk.bases.operator import BaseOperatorMeta

from airflow_resumable.jobs.adapter import Capabilities, FoundJob, Observation, SubmitWindow
from airflow_resumable.jobs.policies import ResumePolicy, configured
from airflow_resumable.jobs.transient import is_transient

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.jobs.kill import Kill

_log = logging.getLogger(__name__)


class ResumableJobMixin(_AirflowMixin):
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

    submit_window: SubmitWindow = SubmitWindow.OPEN
    """How far the service lets us close the gap between accepted and recorded."""
    token_memory: timedelta | None = None
    """How long the service remembers a token; None: for as long as it remembers the job."""
    missing_while_running_is_failure: bool = False
    """Whether a job that vanishes while it is watched was deleted (a pod on a drained node)."""
    parent_cache_keys: tuple[str, ...] = ()
    """Keys under which the parent operator caches what it saw of an earlier job."""

    poll_interval: float = 5.0
    """Seconds between two looks, for operators without a poll loop of their own."""

    _resumable_attempt: JobAttempt | None = None
    _resumable_kill: Kill | None = None
    _resumable_cancelling: bool = False

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
        from airflow_resumable.store.accessor import install

        if not self.durable or not settings.enabled():
            return self._execute_stock(context)
        policy = self.resume_policy.filled(configured())
        # The policy hook has done this already, unless a site's own hook kept it from being called.
        install(cast(MutableMapping[str, Any], context))
        store = context.get("task_state_store")
        if store is None:
            return self._without_store(context, policy, "there is no task_state_store in the context")
        return self._execute_recorded(context, store, policy)

    def _execute_recorded(self, context: Context, store: Any, policy: ResumePolicy) -> Any:
        from airflow_resumable.integration import settings
        from airflow_resumable.jobs.attempt import JobAttempt
        from airflow_resumable.jobs.errors import StoreUnavailable

        attempt = JobAttempt(
            self,
            context,
            store,
            policy=policy,
            can=self.resumable_capabilities(),
            installation=settings.read("installation_id") or "",
        )
        self._resumable_attempt = attempt
        self._resumable_kill = self._new_kill()
        try:
            return attempt.run()
        except StoreUnavailable as error:
            if attempt.external_id is None and not attempt.submitting and attempt.record is None:
                return self._without_store(context, policy, str(error))
            raise

    def _without_store(self, context: Context, policy: ResumePolicy, why: str) -> Any:
        from airflow_resumable.jobs.errors import StoreUnavailable

        if policy.on_store_down == "fail":
            raise StoreUnavailable(
                f"{why}; nothing was submitted, since a crash could not be recovered from. The next try asks "
                "again; on_store_down=submit runs the job all the same"
            )
        _log.error(
            "%s; on_store_down=submit: the job is run without a record, a crash will start it again", why
        )
        return self._execute_stock(context)

    def _execute_stock(self, context: Context) -> Any:
        self._resumable_attempt = None
        return super().execute_resumable(context)

    @classmethod
    def resumable_capabilities(cls) -> Capabilities:
        """Return what this operator can do, read from the optional methods that it defines."""
        base = ResumableJobMixin

        def has(name: str) -> bool:
            return getattr(cls, name) is not getattr(base, name)

        return Capabilities(
            submit_window=cls.submit_window,
            find_by_token=has("find_job_by_token"),
            find_by_family=has("find_jobs_by_family"),
            cancel=has("cancel_job"),
            tells_failed=has("is_job_failed"),
            token_memory=cls.token_memory,
            missing_is_failure=cls.missing_while_running_is_failure,
        )

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Poll the job to its end: by the provider's loop where it has one, else by `get_job_status`."""
        parent = super().poll_until_complete  # type: ignore[safe-super]
        if not getattr(parent, "__isabstractmethod__", False):
            return parent(external_id, context)
        from airflow_resumable.jobs.watch import poll

        poll(self._attempt_for_polling(context), external_id)
        return None

    def _attempt_for_polling(self, context: Context) -> Any:
        if self._resumable_attempt is not None:
            return self._resumable_attempt
        from airflow_resumable.jobs.unrecorded import UnrecordedAttempt

        policy = self.resume_policy.filled(configured())
        return UnrecordedAttempt(self, context, policy, self.resumable_capabilities())

    def get_poll_interval(self) -> float:
        """Return the seconds between two looks at a job: the operator's `poll_interval`."""
        return float(self.poll_interval)

    def is_job_failed(self, status: str) -> bool:
        """Say whether the status means an end without success; undefined: what is nothing else has failed."""
        return not self.is_job_active(status) and not self.is_job_succeeded(status)

    def is_job_stopping(self, status: str) -> bool:
        """Say whether the job was told to end and has not ended yet; undefined: never."""
        return False

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return the jobs that carry `token`, submitted at `since` or later; undefined: can't."""
        raise NotImplementedError

    def find_jobs_by_family(self, family: str, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return the jobs of all generations, submitted at `since` or later; undefined: can't."""
        raise NotImplementedError

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Ask the service to stop the job; undefined: can't."""
        raise NotImplementedError

    def get_job_location(self, external_id: JsonValue, context: Context) -> JsonValue:
        """Return where the job lives, as recorded beside its id; undefined: None."""
        return None

    def get_job_uid(self, external_id: JsonValue, context: Context) -> str | None:
        """Return what tells this job from a later one of the same name; undefined: None."""
        return None

    def get_job_spec(self, context: Context) -> Any:
        """Return what makes two jobs the same; undefined: the rendered template fields."""
        return {name: getattr(self, name, None) for name in sorted(getattr(self, "template_fields", ()))}

    def restore_job(
        self, external_id: JsonValue, location: JsonValue, uid: str | None, context: Context
    ) -> None:
        """Take over a job that another attempt started; undefined: nothing to fill."""

    def clean_up_job(self, external_id: JsonValue, observation: Observation, context: Context) -> None:
        """Tidy up once the outcome is on record; undefined: nothing to do."""

    def snapshot_before_submit(self, context: Context) -> JsonValue:
        """Return what the service held before the submit, kept in the intent; undefined: None."""
        return None

    def was_job_created(self) -> bool | None:
        """Say whether the last submit made a new job; undefined: can't be told."""
        return None

    def is_transient_error(self, error: BaseException) -> bool:
        """Say whether asking again may help; undefined: connection, time-out, 429, 5xx, throttling."""
        return is_transient(error)

    def refresh_credentials(self, context: Context) -> bool:
        """Fetch fresh credentials after a 401; undefined: there is nothing to refresh."""
        return False

    def id_to_parent_value(self, external_id: JsonValue) -> JsonValue:
        """Return the id in the shape that the parent operator stores; undefined: as it is."""
        return external_id

    def parent_value_to_id(self, value: JsonValue) -> JsonValue:
        """Return the id from the shape that the parent operator stores; undefined: as it is."""
        return value

    def on_kill(self) -> None:
        """Find out why the task is dying, and keep or cancel its job by policy."""
        parent: Callable[[], None] = getattr(super(), "on_kill", _nothing)
        self._ask_why(parent)

    on_kill._asks_why = True  # type: ignore[attr-defined]

    def _ask_why(self, tidy_up: Callable[[], None]) -> None:
        # Without an attempt there is nothing of ours to decide: not durable, switched off, or a mode
        # of the provider's operator that doesn't go through execute_resumable.
        if self._resumable_cancelling or self._resumable_attempt is None:
            tidy_up()
            return
        if self._resumable_kill is None:
            self._resumable_kill = self._new_kill()
        self._resumable_kill(tidy_up)

    def _new_kill(self) -> Kill:
        from airflow_resumable.integration import server  # noqa: F401 - nothing may be imported in a handler
        from airflow_resumable.jobs.kill import Kill

        return Kill(self._resumable_attempt, self._state_on_server, self._cancel_for_kill)

    def _state_on_server(self) -> str | None:
        from airflow_resumable.integration.server import task_state

        return task_state(self._resumable_attempt.context) if self._resumable_attempt else None

    def _cancel_for_kill(self, tidy_up: Callable[[], None]) -> bool:
        attempt = self._resumable_attempt
        if attempt is None:
            return False
        if not attempt.can.cancel:
            # The operator's own on_kill is all that is known about cancelling this job.
            self._resumable_cancelling = True
            try:
                tidy_up()
            finally:
                self._resumable_cancelling = False
            return True
        return attempt.cancel_current()


def _asking_why(own: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(own)
    def on_kill(self: ResumableJobMixin) -> None:
        self._ask_why(lambda: own(self))

    on_kill._asks_why = True  # type: ignore[attr-defined]
    return on_kill


def _nothing() -> None:
    return None
