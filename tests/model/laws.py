# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Section 1 of the job protocol, judged from the service's own book at each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs.record import Owner
from airflow_resumable.sdk import (
    JobKept,
    JobNotCancelled,
    ResumableJobError,
    StatusBudgetExhausted,
    StoreUnavailable,
)
from tests.model.service import FAILED, MEMORY

if TYPE_CHECKING:
    from tests.model.attempts import Attempt
    from tests.model.service import Job
    from tests.model.world import World

USER = ("failed", "success", "skipped", "removed", "restarting")
LOOKS = 25
"""Looks at a stopping job, one every ten seconds, that no time-out of the model explains any more."""


class Laws:
    """Watches every request of every attempt; what breaks a law is kept in `broken`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broken: list[str] = []
        self._generations: dict[Any, Any] = {}
        self._owner_since = 0

    def break_(self, what: str) -> None:
        """Note a violation; the machine raises it, since an attempt's thread can't."""
        self.broken.append(f"{what} [tick {self.world.tick}, {self.world.now:.0f} s]")

    # --- the store ---

    def store_asked(self, caller: Attempt) -> None:
        """Note that an attempt heard from the store."""
        caller.last_store = self.world.tick

    def record_read(self, caller: Attempt, value: Any) -> None:
        """Note what an attempt knows of the record."""
        caller.last_read = self.world.tick
        if caller.first_read is None:
            caller.first_read = self.world.tick
        if value is not None and value["external_id"] is not None:
            caller.read_ids.add((value["token"], value["external_id"]))

    def before_write(self, caller: Attempt, value: Any) -> None:
        """Law: an older owner that has read a newer one's record doesn't write."""
        world = self.world
        mine, old = Owner(**value["owner"]), world.server.record
        if (
            old is not None
            and Owner(**old["owner"]).is_newer_than(mine)
            and self._owner_since < caller.last_read
        ):
            self.break_(f"attempt {caller.number} wrote over the record of a newer owner")
        elif caller.owned_by_other is not None:
            # An attempt of the same try that reads a record "of later" takes it for a clock's error.
            caller.owned_by_other = None
        if old is None or old["owner"] != value["owner"]:
            self._owner_since = world.tick
        for other in world.attempts:
            theirs = other.host.attempt.owner if other.host and other.host.attempt else None
            if other is not caller and theirs and mine.is_newer_than(theirs) and other.owned_by_other is None:
                other.owned_by_other = world.tick
        if value["external_id"] is None:
            return
        job = world.service.jobs[value["external_id"] - 1]
        job.recorded = job.recorded or world.tick
        if world.server.discards:
            return
        generation = (value["max_tries"], value["generation"])
        if self._generations.setdefault(job.number, generation) != generation:
            self.break_(
                f"job {job.number} is on record as {generation} and was as {self._generations[job.number]}"
            )

    # --- the service ---

    def before_submit(self, caller: Attempt, mark: str | None) -> None:
        """Law 5: once an id is on record, no submit for that generation; none by a superseded attempt."""
        assert caller.host is not None
        assert caller.host.attempt is not None
        token = caller.host.attempt.token or mark or ""
        if caller.first_submit is None or caller.first_submit[0] != token:
            caller.first_submit = (token, self.world.now)
        record = self.world.server.record
        if record is not None and (token, record["external_id"]) in caller.read_ids:
            self.break_(
                f"attempt {caller.number} submits {token} again: {record['external_id']} is on record"
            )
        if caller.owned_by_other is not None and caller.owned_by_other < caller.last_read:
            self.break_(f"attempt {caller.number} submits, though it has read that a newer one owns the job")

    def before_start(self, caller: Attempt, job: Job) -> None:
        """Laws 1 and 2: every job before this one has failed and was seen to, or was cleared, and is gone."""
        for earlier in self.world.service.jobs:
            if not self._excused(caller, job, earlier):
                self.break_(
                    f"attempt {caller.number} starts job {job.number}, but job {earlier.number} of attempt "
                    f"{earlier.creator} is {'live' if earlier.live else earlier.status}"
                )

    def _excused(self, caller: Attempt, job: Job, earlier: Job) -> bool:
        world = self.world
        kind, policy = world.setup.kind, world.policy
        if not earlier.live:
            if earlier.status in FAILED and earlier.failure_seen:
                return True
            if self._cleared(earlier):
                return True
            # Deleted before its id was on record: nobody can know that it ever was.
            if not earlier.known and (earlier.recorded is None or policy.on_missing == "resubmit"):
                return True
        if caller.superseded_at() is not None:
            # Paused since its own intent; the window of section 5.0, closed again by taking it back.
            job.late = True
            return True
        if earlier.late and (earlier.created > caller.looked_up or kind == "token"):
            return True
        return self._in_the_window(caller, job, earlier)

    def _cleared(self, job: Job) -> bool:
        # 3.4 lets a cleared attempt go on until it has ended: its job, too, is one of before the clear.
        since = self.world.attempts[job.creator - 1].started
        return any(clear > since for clear in self.world.server.clears)

    def _in_the_window(self, caller: Attempt, job: Job, earlier: Job) -> bool:
        world, server = self.world, self.world.server
        kind, first_read = world.setup.kind, caller.first_read or 0
        cleared = self._cleared(earlier)
        unrecorded = earlier.recorded is None or earlier.recorded > first_read
        if kind == "open":
            return unrecorded or (cleared and server.discards)
        if kind == "narrowed":
            return earlier.created > max(caller.looked_up, first_read) or (cleared and server.discards)
        if job.token == earlier.token:
            # Only a service that has forgotten; and then the first request came too late already.
            assert caller.first_submit is not None
            return caller.first_submit[1] - earlier.accepted_at > MEMORY
        # Cleared between the answer and its id, at a service that can't be searched.
        return cleared and kind == "token" and (unrecorded or server.discards)

    def before_cancel(self, caller: Attempt, job: Job) -> None:
        """Law 5: an infrastructure stop or a superseded attempt sends no cancel."""
        # Section 5.0 lets a fenced attempt take back what it has itself created, stopped or not.
        own = job.creator == caller.number and job.recorded is None and caller.superseded_at() is not None
        if caller.stopped and caller.told not in USER and not caller.is_last_try and not own:
            self.break_(f"attempt {caller.number} cancels job {job.number}, told {caller.told} when stopped")
        since = caller.superseded_at()
        if since is None or caller.told in USER or job.creator == caller.number:
            return
        if since < caller.last_store:
            self.break_(f"attempt {caller.number}, superseded at tick {since}, cancels job {job.number}")

    def look(self, caller: Attempt, job: Job) -> None:
        """Law: nobody waits for a stopping job for ever."""
        if job.status != "STOPPING":
            caller.stopping_looks = 0
            return
        caller.stopping_looks += 1
        if caller.stopping_looks == LOOKS:
            self.break_(f"attempt {caller.number} waits for the stopping job {job.number} without end")
            caller.dead = True

    def tidied(self, number: int) -> None:
        """Law: nothing is tidied up before the outcome is on record."""
        record = self.world.server.record
        if (
            record is None
            or record["external_id"] != number
            or record["phase"] not in ("succeeded", "failed")
        ):
            self.break_(f"job {number} was tidied up before its outcome was on record: {record}")

    # --- the ends ---

    def raised(self, attempt: Attempt, error: BaseException) -> None:
        """Law: an attempt ends by an error of the protocol or of the service, never by a slip."""
        if not isinstance(error, ResumableJobError | JobKept | ConnectionError | PermissionError):
            self.break_(f"attempt {attempt.number} ended by {error!r}")

    def returned(self, attempt: Attempt, result: Any) -> None:
        """Law 4: success only if a job of the current generation succeeded."""
        world = self.world
        job = world.service.jobs[result["job"] - 1]
        if job.status != "SUCCEEDED":
            self.break_(
                f"attempt {attempt.number} returned a result of job {job.number}, which is {job.status}"
            )
        if attempt.ti_id != world.server.ti_id or world.server.state != "running":
            return
        if not world.server.discards and any(clear > job.created for clear in world.server.clears):
            self.break_(f"attempt {attempt.number} succeeded by job {job.number} of before the clear")

    def ended(self, attempt: Attempt) -> None:
        """Law 3: when the last try fails by itself, its job is cancelled."""
        world = self.world
        if world.server.state != "failed" or world.server.by_user or attempt.faulted:
            return
        if attempt.ti_id != world.server.ti_id or attempt.superseded_at() is not None:
            return
        owner = (world.server.record or {}).get("external_id")
        for job in world.service.jobs:
            if job.live and not job.cancel_taken and job.number == owner and attempt.last_store > job.created:
                self.break_(
                    f"the last try failed ({attempt.ended}: {attempt.error}), and job {job.number} lives on"
                )

    def ran_out(self) -> None:
        """Law 3: nothing of the family lives after the final end, but for the exceptions that have a name."""
        for job in self.world.service.jobs:
            why = self._may_live_on(job) if job.live else "it has ended"
            if not why:
                self.break_(
                    f"job {job.number} of attempt {job.creator} lives on after the task's end as "
                    f"{self.world.server.state}"
                )

    def _may_live_on(self, job: Job) -> str:
        world = self.world
        server, kind = world.server, world.setup.kind
        creator, last = world.attempts[job.creator - 1], world.attempts[-1]
        if job.cancel_taken or job.cancel_refused:
            return "it was told to stop, and the service is slow or has refused"
        if isinstance(last.error, StatusBudgetExhausted):
            return "a used-up status budget never cancels (section 8)"
        if isinstance(last.error, StoreUnavailable):
            return "the store was down in the last try, so nobody could read whose job it is (section 9)"
        if last.faulted and "was NOT cancelled" in str(last.error):
            return "a stop has two seconds, and something was down in them (section 6)"
        current = [one for one in world.attempts if one.ti_id == server.ti_id]
        if all(one.ended == "crashed" or (server.by_user and _is_unaware(one)) for one in current):
            return "nobody is left: killed in the last try, or ended before it heard of a mark (section 6)"
        if kind != "closed" and server.discards and self._cleared(job):
            return "the clear has discarded its id, and the service lists no family (Airflow 3.4)"
        if kind == "token" and creator.superseded_at() is not None:
            return (
                "its attempt was replaced, and can't see whether another adopted it by the same token (5.0)"
            )
        lost = not job.heard or creator.ended == "crashed"
        if kind in ("open", "token") and job.recorded is None and lost:
            return "whoever started it never heard its id, and nothing can be looked up (section 11)"
        if not world.setup.installation and server.discards and isinstance(last.error, JobNotCancelled):
            return "nothing is cancelled on the strength of a family match alone (section 3)"
        return ""


def _is_unaware(attempt: Attempt) -> bool:
    # A stop asks what it means, but not from inside a call to the supervisor (section 6).
    inside = attempt.place.startswith(("get ", "set ", "delete ", "ask for"))
    return not attempt.stopped or attempt.told == "running" or (attempt.told is None and inside)
