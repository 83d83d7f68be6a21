# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One attempt: asks what to do next, does it, writes it down, until the job has ended."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException
from opentelemetry import trace

from airflow_resumable.jobs import decision, errors
from airflow_resumable.jobs.adapter import Capabilities, FoundJob, JobAdapter, Observation
from airflow_resumable.jobs.crashpoints import reach
from airflow_resumable.jobs.decision import Facts, decide
from airflow_resumable.jobs.events import ResumeDecision, tell
from airflow_resumable.jobs.ledger import JobLedger, TaskStateStore
from airflow_resumable.jobs.outcome import Outcome
from airflow_resumable.jobs.record import JobRecord, Owner, spec_hash
from airflow_resumable.jobs.service import JobService
from airflow_resumable.jobs.submission import Submission
from airflow_resumable.jobs.token import TokenMint

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_resumable.jobs.policies import ResumePolicy

_log = logging.getLogger(__name__)
_tracer = trace.get_tracer(__name__)

STATUS_WRITE_INTERVAL = 30.0
"""Seconds between two writes of a changed status, at least."""


class JobAttempt:
    """Drives one attempt of one task instance through the job protocol.

    Args:
        adapter: The seam to the service.
        context: The task's context.
        store: ``context["task_state_store"]``.
        policy: A policy without gaps.
        can: What the adapter is able to do.
        installation: ``[resumable] installation_id``, or an empty string.
    """

    def __init__(
        self,
        adapter: JobAdapter,
        context: Context,
        store: TaskStateStore,
        *,
        policy: ResumePolicy,
        can: Capabilities,
        installation: str = "",
    ) -> None:
        ti = context["ti"]
        run_started = getattr(context.get("dag_run"), "start_date", None)
        self.adapter = adapter
        self.context = context
        self.policy = policy
        self.can = can
        self.service = JobService(adapter, context, policy, can)
        self.owner = Owner(try_number=ti.try_number, started_at=datetime.now(UTC), ti_id=str(ti.id))
        self.max_tries = int(getattr(ti, "max_tries", 0) or 0)
        self.ledger = JobLedger(store, adapter.external_id_key, self.owner)
        index = ti.map_index if ti.map_index is not None else -1
        self.mint = TokenMint(
            installation, ti.dag_id, ti.run_id, ti.task_id, index, run_started, adapter.token_scope
        )
        self.record: JobRecord | None = None
        self.external_id: Any = None
        """The current job's id, known from the moment the service answers, before it is on record."""
        self.token: str | None = None
        self.submitting = False
        self.live = False
        """Whether the current job may still be doing work, as far as this attempt knows."""
        self.seen_alive = False
        """Whether this attempt itself has seen the current job at work."""
        self.early_snapshot: tuple[Any, ...] = ()
        """What the service held before the record was read, on a first try; empty when not asked."""
        self.spec = ""
        """The hash of the rendered job."""
        self._run_started = run_started
        self._submission = Submission(self)
        self._outcome = Outcome(self)
        self._foreign: Any = None
        self._observed: dict[str, Observation] = {}
        self._by_token: tuple[tuple[FoundJob, Observation], ...] | None = None
        self._by_family: tuple[tuple[FoundJob, Observation], ...] | None = None
        self._swept: tuple[Any, ...] | None = None
        self._restored = False
        self._stood_back = False
        self._begun = False
        self._said: str | None = None
        self._last: tuple[Observation, str | None] | None = None
        self._status_written = float("-inf")
        self._scope: dict[str, Any] = {
            "dag_id": ti.dag_id,
            "run_id": ti.run_id,
            "task_id": ti.task_id,
            "map_index": index,
            "try_number": ti.try_number,
        }

    @property
    def is_last_try(self) -> bool:
        """Whether Airflow will not run another try by itself."""
        return self.owner.try_number > self.max_tries

    def run(self) -> Any:
        """Carry the job to its end and return its result.

        Raises:
            ResumableJobError: One of `airflow_resumable.jobs.errors`; each says what to do.
        """
        try:
            return self._follow()
        except errors.TaskInstanceGone as gone:
            raise self._fenced(gone) from gone
        except errors.JobSuperseded as superseded:
            if not self._stood_back:
                self._tell(
                    "Stand",
                    "superseded",
                    str(superseded),
                    external_id=self.external_id,
                    generation=self._generation,
                    token=self.token,
                )
            raise
        except Exception as error:
            self._at_failure(error)
            raise

    def _follow(self) -> Any:
        self.spec = spec_hash(self.adapter.get_job_spec(self.context))
        if self.owner.try_number <= 1 and self.can.snapshots:
            # Before the record is read: what is read must still be true when the intent is written.
            self.early_snapshot = (self.adapter.snapshot_before_submit(self.context),)
        self.record, self._begun = self.ledger.read(), True
        self._outrank()
        self._foreign = self._read_foreign()
        if self.record is not None and self.record.external_id is not None:
            self.external_id, self.token = self.record.external_id, self.record.token
        submitted = False
        while True:
            facts = self._facts()
            step = decide(facts)
            self._say(step, facts)
            match step:
                case decision.Stand():
                    self._stood_back = True
                    raise errors.JobSuperseded(f"superseded: {step.reason}; job and record are left alone")
                case decision.Fail():
                    raise getattr(errors, step.error)(
                        step.reason, external_id=step.external_id, generation=self._generation
                    )
                case decision.Import():
                    self._submission.import_(step)
                    self._foreign = None
                case decision.AskStatus():
                    self._restore()
                    self._note(step.external_id, self.service.look(step.external_id))
                case decision.LookUpToken():
                    self._by_token = self.service.find(step, self.mint.family)
                case decision.LookUpFamily():
                    self._by_family = self.service.find(step, self.mint.family)
                case decision.Sweep():
                    self._restore()
                    # Nothing is cancelled on the word of a record before a write shows that it is ours.
                    if self.record is not None:
                        self.claim(self.record)
                    self._swept = self.service.sweep(step, self.mint.family)
                case decision.Settle():
                    self._note(step.external_id, self._wait_while(step.external_id, Observation.STOPPING))
                case decision.Adopt():
                    self._submission.adopt(step)
                    self.live, self._observed = True, {}
                case decision.Finish():
                    self._restore()
                    return self._finish()
                case decision.Submit() | decision.Watch():
                    if isinstance(step, decision.Submit):
                        self._record_unseen_failure()
                        self._restored = submitted = True
                        self._submission.submit(step)
                    else:
                        self._take_over()
                    if self._watch() is Observation.SUCCEEDED:
                        return self._finish()
                    self._lost(submitted)

    def _outrank(self) -> None:
        # Whoever wrote the record started before this attempt read it. If it claims a later start in the
        # same try, its clock runs ahead, and it would lock everybody out until that time has come.
        record = self.record
        if record is None or record.owner.try_number != self.owner.try_number:
            return
        if record.owner.is_newer_than(self.owner):
            _log.warning(
                "the record's owner claims to have started at %s, later than this attempt of the same try: a "
                "worker's clock is off; taking over",
                record.owner.started_at.isoformat(),
            )
            started_at = record.owner.started_at + timedelta(microseconds=1)
            self.owner = self.owner.model_copy(update={"started_at": started_at})
            self.ledger.overtake(self.owner)

    @property
    def search_from(self) -> datetime:
        """The moment from which lookups search."""
        return decision.search_from(self._facts())

    def _record_unseen_failure(self) -> None:
        record = self.record
        if record is None or record.phase != "submitted":
            return
        if self._observed.get(repr(record.external_id)) is Observation.FAILED:
            self.record_failure(self._last[1] if self._last else None)

    def _lost(self, submitted: bool) -> None:
        self.live, self._observed = False, {repr(self.external_id): Observation.MISSING}
        if submitted and self.policy.on_missing == "resubmit":
            # A service that forgets every job at once would otherwise be sent one after another.
            self.record_failure("missing")
            raise errors.JobFailed(
                f"the service lost job {self.external_id!r} (generation {self._generation}), which this try "
                "had started; on_missing=resubmit: the next try starts the next generation",
                external_id=self.external_id,
                generation=self._generation,
            )

    @property
    def _generation(self) -> int | None:
        return self.record.generation if self.record is not None else None

    def _facts(self) -> Facts:
        return Facts(
            owner=self.owner,
            max_tries=self.max_tries,
            retries=int(getattr(self.context.get("task"), "retries", 0) or 0),
            mint=self.mint,
            spec=self.spec,
            policy=self.policy,
            can=self.can,
            now=datetime.now(UTC),
            run_started=self._run_started,
            record=self.record,
            foreign_id=self._foreign,
            observed=self._observed,
            by_token=self._by_token,
            by_family=self._by_family,
            swept=self._swept,
        )

    def _say(self, step: decision.Step, facts: Facts) -> None:
        self._tell(
            type(step).__name__,
            decision.metric_of(step, facts),
            step.reason,
            external_id=getattr(step, "external_id", self.external_id),
            generation=getattr(step, "generation", None) or self._generation,
            token=getattr(step, "token", None) or (self.record.token if self.record else None),
        )

    def _tell(self, step: str, metric: str | None, reason: str, **job: Any) -> None:
        operator = type(self.adapter).__name__
        team = getattr(self.context["ti"], "stats_tags", {}).get("team_name")
        told = ResumeDecision(step, metric, operator, **self._scope, **job, reason=reason)
        with _tracer.start_as_current_span("resumable_job.resume_decision") as span:
            span.set_attribute("operator", operator)
            span.set_attribute("resumable.external_id_key", self.adapter.external_id_key)
            span.set_attribute("resumable.decision", metric or step)
            span.set_attribute("resumable.external_id", str(told.external_id))
            tell(told, {"operator": operator, **({"team_name": team} if team else {})})

    def _read_foreign(self) -> Any:
        value = self.ledger.read_parent()
        return None if value is None else self.adapter.parent_value_to_id(value)

    def _note(self, external_id: Any, seen: tuple[Observation, str | None]) -> None:
        self._observed[repr(external_id)] = seen[0]
        self._last = seen
        self.live = seen[0].is_live
        self.seen_alive = self.seen_alive or self.live

    def reach(self, point: str) -> None:
        """Pass a named crash point, see `airflow_resumable.jobs.crashpoints`."""
        reach(point, **self._scope)

    def claim(self, record: JobRecord, *, check_owner: bool = True) -> JobRecord:
        """Write the record as its owner; it becomes the attempt's own view of the job."""
        self.record = self.ledger.write(record, check_owner=check_owner)
        self.external_id, self.token = self.record.external_id, self.record.token
        return self.record

    def _restore(self) -> None:
        record = self.record
        if record is None or record.external_id is None or self._restored:
            return
        self.adapter.restore_job(record.external_id, record.location, record.uid, self.context)
        self._restored = True

    def _take_over(self) -> None:
        if self.record is None:
            raise AssertionError("nothing on record to take over")
        self.live = True
        self._restore()
        self.claim(self.record)

    def _watch(self) -> Observation:
        from airflow_resumable.jobs.watch import Watch

        return Watch(self).until_the_end()

    def observe(self, external_id: Any) -> tuple[Observation, str | None]:
        """Look at the current job, remember what was seen, and write a changed status now and then."""
        seen = self.service.look(external_id)
        if seen[1] != self._said:
            self._said = seen[1]
            _log.info("job %r, generation %s, is %s", external_id, self._generation, seen[1])
        self._note(external_id, seen)
        self._write_status(seen[1])
        if seen[0].is_live:
            self.reach("mid_poll")
        return seen

    @property
    def last(self) -> tuple[Observation, str | None] | None:
        """The last look at the current job."""
        return self._last

    def forget_last(self) -> None:
        """Make the next reader of `last` look for itself."""
        self._last = None

    def _write_status(self, raw: str | None) -> None:
        record = self.record
        if record is None or raw is None or raw == record.last_status or record.external_id is None:
            return
        if time.monotonic() - self._status_written < STATUS_WRITE_INTERVAL:
            return
        self._status_written = time.monotonic()
        try:
            self.claim(record.with_(last_status=raw, last_seen_at=datetime.now(UTC)))
        except errors.StoreUnavailable as error:
            _log.warning(
                "job %r is %s; the store could not be told (%s), watching on", self.external_id, raw, error
            )

    def _wait_while(self, external_id: Any, state: Observation) -> tuple[Observation, str | None]:
        limit = self.policy.seconds("stopping_timeout")
        deadline = time.monotonic() + limit
        while (seen := self.service.look(external_id))[0] is state:
            if time.monotonic() >= deadline:
                raise errors.JobNotSettled(
                    f"job {external_id!r} has been {seen[1]!r} for {limit:.0f} s; nothing was submitted. "
                    "Look at it in the service, or raise stopping_timeout",
                    external_id=external_id,
                    generation=self._generation,
                )
            time.sleep(self.adapter.get_poll_interval())
        return seen

    def record_failure(self, raw: str | None) -> None:
        """Put on record that the current job ended without success."""
        self._outcome.fail(self.record, raw)

    def mark_reported(self) -> None:
        """Note that the server has the success on file; a record that Airflow drops then stays dropped."""
        from airflow_resumable.integration import settings
        from airflow_resumable.integration.server import task_state

        # The report may have been refused, and then a retry must find a success that it can return. With
        # the success on file no other attempt can be at work, so the owner needn't be read once more.
        record = self.record
        if record is None or record.phase != "succeeded" or settings.clears_on_success():
            return
        if task_state(self.context) == "success":
            self.claim(record.with_(reported=True), check_owner=False)

    def _finish(self) -> Any:
        if self.record is None:
            raise AssertionError("no record of the job that has succeeded")
        return self._outcome.succeed(self.record, self._last[1] if self._last else None)

    @property
    def may_be_live(self) -> bool:
        """Whether a job of this task instance may be at work that a stop has to think of."""
        unseen = (
            self.record is not None and self.record.phase in ("intent", "submitted") and self._last is None
        )
        return self.live or self.submitting or unseen or not self._begun

    def cancel_current(self, *, only_if_owner: bool = False) -> bool:
        """Cancel the current job, known by id, from the store, or by its token; say whether that was taken.

        Args:
            only_if_owner: Leave it alone unless a write shows that it is still this attempt's.
        """
        if not self._begun:
            self.record = self.ledger.read()
            self.external_id = self.record.external_id if self.record is not None else None
        if only_if_owner and not self._still_owns(f"job {self.external_id!r}"):
            return False
        ids = [] if self.external_id is None else [self.external_id]
        if not ids and self.record is not None and self.can.find_by_token:
            self._restore()
            ids = [job.external_id for job in self.service.find_by_token(self.record.token, self.search_from)]
        if not ids:
            _log.info("no job of this task instance is on record or found by its token; nothing to cancel")
        return all([self.service.cancel(one, patient=False) for one in ids])

    def _fenced(self, gone: errors.TaskInstanceGone) -> errors.JobSuperseded:
        from airflow_resumable.integration.server import task_state

        try:
            state = task_state(self.context)
        except Exception as error:
            state = f"nothing ({error})"
        cancelled = ""
        if (
            state == "restarting"
            and self.policy.on_clear == "resubmit"
            and self.live
            and self.external_id is not None
            and self.can.cancel
        ):
            self.service.cancel(self.external_id)
            cancelled = "; the task was cleared while running, so its job was cancelled"
        return errors.JobSuperseded(
            f"this attempt was replaced ({gone}); the server says {state!r}; job {self.external_id!r}, "
            f"generation {self._generation}{cancelled}",
            external_id=self.external_id,
            generation=self._generation,
        )

    def _still_owns(self, job: str) -> bool:
        try:
            # Up to 3.3 a replaced attempt reads "none" and only a write tells it apart.
            if self.record is not None:
                self.ledger.write(self.record)
        except Exception as error:
            _log.warning("%s is left alone: it can't be shown to be this attempt's (%s)", job, error)
            return False
        return True

    def _at_failure(self, error: Exception) -> None:
        if not self.may_be_live:
            return
        job = f"job {self.external_id!r} (generation {self._generation})"
        final = self.is_last_try or isinstance(error, AirflowFailException)
        if isinstance(error, errors.StatusBudgetExhausted):
            _log.error("%s is left alone: a used-up status budget never cancels (%s)", job, error)
        elif not final or self.policy.on_final_failure == "keep":
            why = "on_final_failure=keep" if final else "tries are left"
            _log.warning("%s is kept: %s after %s: %s", job, why, type(error).__name__, error)
        elif not self.can.cancel:
            _log.error("%s is NOT cancelled after the last try: this operator has no cancel_job", job)
        else:
            _log.warning(
                "%s: the task fails for good (%s: %s), on_final_failure=cancel",
                job,
                type(error).__name__,
                error,
            )
            try:
                self.cancel_current(only_if_owner=True)
            except Exception:
                _log.exception("%s was NOT cancelled after the last try; look at it in the service", job)
