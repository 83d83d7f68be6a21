# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One attempt: asks what to do next, does it, writes it down, until the job has ended."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs import decision, errors, link, steps
from airflow_resumable.jobs.adapter import Capabilities, FoundJob, JobAdapter, Observation
from airflow_resumable.jobs.crashpoints import reach
from airflow_resumable.jobs.decision import Facts, decide
from airflow_resumable.jobs.deferral import Deferral
from airflow_resumable.jobs.ending import Ending
from airflow_resumable.jobs.events import ResumeDecision, announce
from airflow_resumable.jobs.ledger import JobLedger, TaskStateStore
from airflow_resumable.jobs.metric import metric_of
from airflow_resumable.jobs.outcome import Outcome
from airflow_resumable.jobs.record import JobRecord, Owner, spec_hash
from airflow_resumable.jobs.service import JobService
from airflow_resumable.jobs.submission import Submission
from airflow_resumable.jobs.token import TokenMint
from airflow_resumable.jobs.wake import Wake
from airflow_resumable.jobs.watch import Watch

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_resumable.jobs.policies import ResumePolicy

_log = logging.getLogger(__name__)

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
        deferrable: Whether the triggerer is to watch the job.
        wake: Why a deferred task runs again; None when this isn't one.
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
        deferrable: bool = False,
        wake: Wake | None = None,
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
        self.mint = TokenMint.for_task(ti, installation, run_started, adapter.token_scope)
        self.record: JobRecord | None = None
        self.external_id: Any = None
        """The current job's id, known from the moment the service answers, before it is on record."""
        self.token: str | None = None
        self.submitting = False
        self.live = False
        """Whether the current job may still be doing work, as far as this attempt knows."""
        self.seen_alive = False
        """Whether this attempt itself has seen the current job at work."""
        self.has_submitted = False
        """Whether this try has started a job, in this process or before it was deferred."""
        self.early_snapshot: tuple[Any, ...] = ()
        """What the service held before the record was read, on a first try; empty when not asked."""
        self.spec = ""
        """The hash of the rendered job."""
        self._run_started = run_started
        self._submission = Submission(self)
        self._outcome = Outcome(self)
        self.ending = Ending(self)
        self._deferral = Deferral(self, wake, deferrable) if deferrable or wake is not None else None
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
        self.scope: dict[str, Any] = {
            "dag_id": ti.dag_id,
            "run_id": ti.run_id,
            "task_id": ti.task_id,
            "map_index": self.mint.map_index,
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
            return self._guarded()
        except errors.ResumableJobError as error:
            error.complete(self.external_id, self.generation, self._last_status)
            raise

    @property
    def _last_status(self) -> str | None:
        seen = self._last[1] if self._last else None
        return seen if seen is not None or self.record is None else self.record.last_status

    def _guarded(self) -> Any:
        try:
            return self._follow()
        except errors.TaskInstanceGone as gone:
            raise self.ending.after_fencing(gone) from gone
        except errors.JobSuperseded as superseded:
            if not self._stood_back:
                self.announce("Stand", "superseded", str(superseded))
            raise
        except Exception as error:
            self.ending.after_failure(error)
            raise

    def _follow(self) -> Any:
        self.spec = spec_hash(self.adapter.get_job_spec(self.context))
        if self.owner.try_number <= 1 and self.can.snapshots:
            # Before the record is read: what is read must still be true when the intent is written.
            self.early_snapshot = (self.adapter.snapshot_before_submit(self.context),)
        self.record, self._begun = self.ledger.read(), True
        self.owner = self.ledger.outrank(self.record)
        self._foreign = self.ledger.read_foreign(self.adapter, self.record)
        if self.record is not None and self.record.external_id is not None:
            self.external_id, self.token = self.record.external_id, self.record.token
        match self._deferral.take_back() if self._deferral else None:
            case Observation.SUCCEEDED:
                return self._finish()
            case Observation.MISSING:
                self._lost()
        while True:
            facts = self.facts
            step = decide(facts)
            self._say(step, facts)
            match step:
                case steps.Stand():
                    self._stood_back = True
                    raise errors.JobSuperseded(f"superseded: {step.reason}; job and record are left alone")
                case steps.Fail():
                    raise getattr(errors, step.error)(
                        step.reason, external_id=step.external_id, generation=self.generation
                    )
                case steps.Import():
                    self.import_job(step)
                case steps.AskStatus():
                    self.restore()
                    self._note(step.external_id, self.service.look(step.external_id))
                case steps.LookUpToken():
                    self._by_token = self.service.find(step, self.mint.family)
                case steps.LookUpFamily():
                    self._by_family = self.service.find(step, self.mint.family)
                case steps.Sweep():
                    self.restore()
                    # Nothing is cancelled on the word of a record before a write shows that it is ours.
                    if self.record is not None:
                        self.claim(self.record)
                    self._swept = self.service.sweep(step, self.mint.family)
                case steps.Settle():
                    settled = self.service.wait_while_stopping(step.external_id)
                    if settled[0] is Observation.MISSING and self.can.missing_is_failure:
                        settled = (Observation.FAILED, "deleted")
                    self._note(step.external_id, settled)
                case steps.Adopt():
                    self._submission.adopt(step)
                    self.live, self._observed = True, {}
                case steps.Finish():
                    self.restore()
                    return self._finish()
                case steps.Submit() | steps.Watch():
                    if isinstance(step, steps.Submit):
                        if self._deferral is not None:
                            self._deferral.check()
                        self._record_unseen_failure()
                        self._restored = self.has_submitted = True
                        self._submission.submit(step)
                        self._swept = None
                    else:
                        self.take_over()
                    if self._watch() is Observation.SUCCEEDED:
                        return self._finish()
                    self._lost()

    @property
    def token_may_be_contested(self) -> bool:
        """Whether another attempt, asleep by now, may yet send a submit with this token or one before it."""
        record = self.record
        return record is not None and bool(record.adoptions + record.resends or record.unsettled)

    @property
    def search_from(self) -> datetime:
        """The moment from which lookups search."""
        return decision.search_from(self.facts)

    def _record_unseen_failure(self) -> None:
        record = self.record
        if record is None or record.phase != "submitted":
            return
        if self._observed.get(repr(record.external_id)) is Observation.FAILED:
            self.record_failure(self._last[1] if self._last else None)

    def _lost(self) -> None:
        self.live, self._observed = False, {repr(self.external_id): Observation.MISSING}
        if self.has_submitted and self.policy.on_missing == "resubmit":
            # A service that forgets every job at once would otherwise be sent one after another.
            self.record_failure("missing")
            raise errors.JobFailed(
                f"the service lost job {self.external_id!r} (generation {self.generation}), which this try "
                "had started; on_missing=resubmit: the next try starts the next generation",
                external_id=self.external_id,
                generation=self.generation,
            )

    @property
    def generation(self) -> int | None:
        """The current job's generation, counted from 1, or None."""
        return self.record.generation if self.record is not None else None

    @property
    def facts(self) -> Facts:
        """What the decision may look at now."""
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

    def _say(self, step: steps.Step, facts: Facts) -> None:
        self.announce(
            type(step).__name__,
            metric_of(step, facts),
            step.reason,
            external_id=getattr(step, "external_id", self.external_id),
            generation=getattr(step, "generation", None) or self.generation,
            token=getattr(step, "token", None) or self.token,
        )

    def announce(self, step: str, metric: str | None, reason: str, **job: Any) -> None:
        """Tell what was decided; `job` may differ from the current external_id, generation and token."""
        current = {"external_id": self.external_id, "generation": self.generation, "token": self.token}
        operator = type(self.adapter).__name__
        decided = ResumeDecision(step, metric, operator, **self.scope, **{**current, **job}, reason=reason)
        announce(decided, self.adapter.external_id_key, getattr(self.context["ti"], "stats_tags", {}))

    def _note(self, external_id: Any, seen: tuple[Observation, str | None]) -> None:
        self._observed[repr(external_id)] = seen[0]
        self._last = seen
        self.live = seen[0].is_live
        self.seen_alive = self.seen_alive or self.live

    def reach(self, point: str) -> None:
        """Pass a named crash point, see `airflow_resumable.jobs.crashpoints`."""
        reach(point, **self.scope)

    def claim(self, record: JobRecord, *, check_owner: bool = True) -> JobRecord:
        """Write the record as its owner; it becomes the attempt's own view of the job."""
        self.record = self.ledger.write(record, check_owner=check_owner)
        self.external_id, self.token = self.record.external_id, self.record.token
        return self.record

    def restore(self) -> None:
        """Let the adapter take over the job on record, once, and tell others of it."""
        if self.equip():
            link.show(self)

    def equip(self) -> bool:
        """Tell the adapter of the job on record; False where it knows."""
        record = self.record
        if record is None or record.external_id is None or self._restored:
            return False
        self.adapter.restore_job(record.external_id, record.location, record.uid, self.context)
        self._restored = True
        return True

    def take_over(self) -> None:
        """Go on with the job on record, as its owner."""
        if self.record is None:
            raise AssertionError("nothing on record to take over")
        self.live = True
        self.restore()
        self.claim(self.record)

    def import_job(self, step: steps.Import) -> None:
        """Put a job that somebody else has started on record."""
        self._submission.import_(step)
        self._foreign = None

    def _watch(self) -> Observation:
        if self._deferral is not None and self._deferral.may_hand_over:
            self._deferral.hand_over()
        return Watch(self).until_the_end()

    def observe(self, external_id: Any) -> tuple[Observation, str | None]:
        """Look at the current job, remember what was seen, and write a changed status now and then."""
        seen = self.service.look(external_id)
        if seen[1] != self._said:
            self._said = seen[1]
            _log.info("job %r, generation %s, is %s", external_id, self.generation, seen[1])
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

    def record_failure(self, raw: str | None) -> None:
        """Put on record that the current job ended without success."""
        self._outcome.fail(self.record, raw)

    def mark_reported(self) -> None:
        """Note that the server has the success on file; a record that Airflow drops then stays dropped."""
        self._outcome.report(self.record)

    def _finish(self) -> Any:
        self._submission.settle()
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

    def recall(self) -> None:
        """Read the record, for an attempt that ends before it has begun."""
        if not self._begun:
            self.record = self.ledger.read()
            self.external_id = self.record.external_id if self.record is not None else None
