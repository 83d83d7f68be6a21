# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""From intent to recorded id: the stretch in which a crash must not start a second job."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs import errors, link
from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.jobs.record import ANY_OTHER, JobRecord

if TYPE_CHECKING:
    from airflow_resumable.jobs.adapter import FoundJob
    from airflow_resumable.jobs.attempt import JobAttempt
    from airflow_resumable.jobs.steps import Adopt, Import, Submit

_log = logging.getLogger(__name__)


class Submission:
    """Puts a job and its id on record for one attempt: submitted, adopted or imported.

    The order of effects is section 4 of the protocol: intent, write, submit with the token, the
    parent's key, the record's id.
    """

    def __init__(self, attempt: JobAttempt) -> None:
        self._attempt = attempt
        self._id_was_told = False

    def submit(self, step: Submit) -> None:
        """Start the job that `step` names, or find out that it was started.

        Raises:
            JobSuperseded: A newer attempt took over.
            StoreUnavailable: The id could not be stored; the message says whether the next try will find the
                job.
        """
        attempt = self._attempt
        record = self._intent(step)
        attempt.reach("after_intent")
        attempt.submitting = True
        try:
            try:
                external_id = attempt.service.submit(record.token, record.intent_at, again=step.same_token)
            except errors.TokenConflict as conflict:
                external_id = self._after_conflict(conflict, record)
            except Exception as error:
                external_id = self._after_lost_reply(error, record)
            attempt.external_id, attempt.live = external_id, True
            _log.info(
                "submitted: job %r, generation %s, token %s", external_id, record.generation, record.token
            )
            attempt.reach("after_accept")
            self._put_on_record(record, external_id)
        finally:
            attempt.submitting = False
        self.settle()

    def adopt(self, step: Adopt) -> None:
        """Put a job that a lookup found on record."""
        attempt, found, now = self._attempt, step.found, datetime.now(UTC)
        record = attempt.record or self._new_record(step.generation, step.token)
        if step.max_tries is not None:
            record = record.with_(max_tries=step.max_tries)
        attempt.ledger.check_owner()
        # Known from here on, should the store fail at the writes below.
        attempt.external_id, attempt.live = found.external_id, True
        self._write_ids(
            record.with_id(
                found.external_id,
                generation=step.generation,
                token=step.token,
                location=found.location,
                uid=_text(found.uid),
                submitted_at=now,
                adoptions=record.adoptions + 1,
            )
        )
        self.settle()

    def import_(self, step: Import) -> None:
        """Put a job that the parent operator itself started on record."""
        attempt = self._attempt
        if attempt.record is None:
            token = attempt.mint.token(attempt.max_tries, step.generation)
            record = self._new_record(step.generation, token).with_(max_tries=step.max_tries)
        else:
            # Nothing that is on record of the job before may pass for this one's: its result, its place.
            old = attempt.record
            same = step.generation == old.generation
            token = old.token if same else attempt.mint.token(attempt.max_tries, step.generation)
            record = self._new_record(step.generation, token).with_(
                ids=old.ids, adoptions=old.adoptions, unsettled=old.unsettled, max_tries=step.max_tries
            )
        attempt.claim(
            record.with_id(
                step.external_id,
                location=attempt.adapter.get_job_location(step.external_id, attempt.context),
                uid=_text(attempt.adapter.get_job_uid(step.external_id, attempt.context)),
                submitted_at=datetime.now(UTC),
            )
        )

    def _new_record(self, generation: int, token: str) -> JobRecord:
        attempt = self._attempt
        return JobRecord(
            generation=generation,
            token=token,
            phase="intent",
            spec=attempt.spec,
            max_tries=attempt.max_tries,
            owner=attempt.owner,
            intent_at=datetime.now(UTC),
        )

    def _intent(self, step: Submit) -> JobRecord:
        attempt, old = self._attempt, self._attempt.record
        # What was seen belongs to the generation before.
        attempt.forget_last()
        attempt.reach("before_intent")
        if step.same_token and old is not None:
            # Whoever has sent it before may only be asleep.
            record = old.with_(resends=old.resends + 1)
        else:
            if old is not None and attempt.ledger.read_parent() is not None:
                attempt.ledger.check_owner()
                attempt.ledger.delete_parent(*attempt.adapter.parent_cache_keys)
            early, attempt.early_snapshot = attempt.early_snapshot, ()
            fresh = not early and attempt.can.snapshots
            record = self._new_record(step.generation, step.token).with_(
                ids=old.ids if old is not None else (),
                adoptions=old.adoptions if old is not None else 0,
                unsettled=self._unsettled(old),
                before=attempt.adapter.snapshot_before_submit(attempt.context)
                if fresh
                else (*early, None)[0],
            )
            # Read a moment ago, and nobody was asked anything since: no need to read the owner again.
            if old is None and not fresh:
                return attempt.claim(record, check_owner=False)
        return attempt.claim(record)

    def _unsettled(self, old: JobRecord | None) -> tuple[str, ...]:
        if old is None:
            # Not the first try, and nothing on record: a clear may have discarded what was.
            lost = self._attempt.can.find_by_family and not self._attempt.facts.plainly_first
            return (ANY_OTHER,) if lost else ()
        # Whose job was adopted, or submit sent again, may only be asleep in front of that submit.
        settled = old.phase != "intent" and not old.adoptions + old.resends
        return old.unsettled if settled or old.token in old.unsettled else (*old.unsettled, old.token)

    def _after_conflict(self, conflict: errors.TokenConflict, record: JobRecord) -> Any:
        attempt, external_id = self._attempt, conflict.external_id
        if external_id is None and attempt.can.find_by_token:
            found = attempt.service.find_by_token(record.token, attempt.search_from)
            external_id = found[0].external_id if len(found) == 1 else None
        if external_id is None:
            raise errors.ResumableJobFatal(
                f"the service holds token {record.token} for another job ({conflict}); spec on record "
                f"{record.spec}, spec now {attempt.spec}. Undo the change of the job, or clear the task",
                generation=record.generation,
            ) from conflict
        _log.warning(
            "token %s belongs to job %r with other parameters (spec on record %s, now %s); adopted",
            record.token,
            external_id,
            record.spec,
            attempt.spec,
        )
        return external_id

    def _after_lost_reply(self, error: Exception, record: JobRecord) -> Any:
        attempt = self._attempt
        if attempt.can.find_by_token and attempt.adapter.is_transient_error(error):
            _log.warning(
                "submit with token %s: %s: %s; looking whether the job was started",
                record.token,
                type(error).__name__,
                error,
            )
            found = attempt.service.find_by_token(record.token, attempt.search_from)
            if len(found) == 1:
                return found[0].external_id
        raise error

    def _put_on_record(self, record: JobRecord, external_id: Any) -> None:
        attempt = self._attempt
        if external_id is None:
            _log.error("submit_job returned no id: a crash from here on can't be recovered from")
            return
        try:
            attempt.ledger.check_owner()
            self._write_ids(
                record.with_id(
                    external_id,
                    location=attempt.adapter.get_job_location(external_id, attempt.context),
                    uid=_text(attempt.adapter.get_job_uid(external_id, attempt.context)),
                    submitted_at=datetime.now(UTC),
                )
            )
        except (errors.JobSuperseded, errors.TaskInstanceGone):
            try:
                self._retract(record, external_id)
            except Exception:
                _log.exception(
                    "job %r was started by this superseded attempt, and nobody could say whether it is one "
                    "too many; it is left alone",
                    external_id,
                )
            raise
        except errors.StoreUnavailable as error:
            if attempt.can.find_by_token:
                raise errors.StoreUnavailable(
                    f"job {external_id!r} (generation {record.generation}, token {record.token}) was "
                    f"started, but its id could not be stored: {error}. The next try finds it by its token",
                    external_id=external_id,
                    generation=record.generation,
                ) from error
            # No token to find it by: failing now would surely start a second job, watching may not.
            _log.critical(
                "job %r (generation %s) was started, but its id could not be stored: %s. Watching it on; "
                "if this worker dies, the next try will start a second job",
                external_id,
                record.generation,
                error,
            )
            attempt.record = record.with_id(external_id)

    def _write_ids(self, record: JobRecord) -> None:
        attempt = self._attempt
        attempt.ledger.write_parent(attempt.adapter.id_to_parent_value(record.external_id))
        self._id_was_told = True
        attempt.reach("between_key_writes")
        attempt.claim(record)
        link.show(attempt)
        attempt.reach("after_id")

    def settle(self) -> None:
        """End the jobs of attempts that a clear has overtaken, should they have submitted since.

        Such an attempt may have been stopped inside its submit for as long as it likes. A job of its that
        comes before ours is found here; after ours, that attempt sees our token and takes its job back.
        """
        attempt, record = self._attempt, self._attempt.record
        if record is None or not record.unsettled or not (attempt.can.find_by_token and attempt.can.cancel):
            return
        try:
            for job in self._unsettled_jobs(record):
                _log.warning(
                    "job %r was started with token %s, which a clear had overtaken; cancelling it",
                    job.external_id,
                    job.token,
                )
                attempt.service.cancel(job.external_id)
        except Exception:
            _log.exception(
                "nobody could say whether an attempt that a clear has overtaken started a job with one of "
                "the tokens %s; look for it in the service",
                ", ".join(record.unsettled),
            )

    def _unsettled_jobs(self, record: JobRecord) -> list[FoundJob]:
        attempt = self._attempt
        found = attempt.service.find_by_tokens(record.unsettled, attempt.search_from)
        # What is known by its family alone may be another installation's.
        if ANY_OTHER in record.unsettled and attempt.can.find_by_family and attempt.mint.installation:
            family = attempt.service.find_by_family(attempt.mint.family, attempt.search_from)
            found += [job for job in family if job.token not in (None, record.token)]
        classified = attempt.service.classified(found)
        return [job for job, seen in classified if seen.is_live and job.external_id != record.external_id]

    def _retract(self, record: JobRecord, external_id: Any) -> None:
        # What this attempt has created after it was replaced is deleted, but never what another may have
        # adopted by its token or its id.
        attempt = self._attempt
        if attempt.adapter.was_job_created() is not True or not attempt.can.cancel:
            return
        try:
            on_file = attempt.ledger.read()
        except errors.TaskInstanceGone:
            on_file = None
        if on_file is not None:
            mine = on_file.knows(external_id) or (
                on_file.token == record.token and on_file.external_id is None and self._can_be_adopted()
            )
            why = f"generation {on_file.generation} is job {on_file.external_id!r}"
            taken = None if mine else why
        elif self._can_be_adopted():
            taken = self._later_job(record)
        else:
            taken = "nobody else can know its id"
        if taken is None:
            _log.warning(
                "job %r (generation %s) was started by this superseded attempt; the newer one may have "
                "adopted it, so it is left alone",
                external_id,
                record.generation,
            )
            return
        _log.warning(
            "job %r (generation %s) was started by this superseded attempt, and %s; cancelling it",
            external_id,
            record.generation,
            taken,
        )
        attempt.service.cancel(external_id)

    def _can_be_adopted(self) -> bool:
        can = self._attempt.can
        closed = can.submit_window is SubmitWindow.CLOSED
        return self._id_was_told or closed or can.find_by_token or can.find_by_family

    def _later_job(self, record: JobRecord) -> str | None:
        # Up to 3.3 a replaced attempt can't read the record. A job with a token that is minted only after a
        # clear shows that the family has moved on; older ones may still be listed, and prove nothing.
        attempt = self._attempt
        if attempt.can.find_by_family:
            for job in attempt.service.find_by_family(attempt.mint.family, attempt.search_from):
                if job.token and attempt.mint.is_later(job.token, record.max_tries, record.generation):
                    return f"job {job.external_id!r} is of a later generation"
        elif attempt.can.find_by_token:
            # What a clear of this very try would have made of max_tries, and so of the next token.
            number = attempt.owner.try_number + attempt.facts.retries
            token = attempt.mint.token(number, 1)
            found = attempt.service.find_by_token(token, attempt.search_from) if token != record.token else ()
            for job in found:
                return f"job {job.external_id!r} is one of after a clear"
        return None


def _text(uid: Any) -> str | None:
    return None if uid is None else str(uid)
