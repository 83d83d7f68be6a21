# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the operators of EMR Serverless and of EMR on EKS share: one job run, in an application or a cluster.

Both services take an idempotency token, and both list runs by the time at which they were created; see
https://docs.aws.amazon.com/emr-serverless/latest/APIReference/API_StartJobRun.html and
https://docs.aws.amazon.com/emr-on-eks/latest/APIReference/API_StartJobRun.html
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.adapter import FoundJob, SubmitWindow
from airflow_resumable.jobs.errors import JobNotFound, JobNotSettled
from airflow_resumable.jobs.policies import ResumePolicy, configured
from airflow_resumable.jobs.token import family_of
from airflow_resumable.operators import _aws_errors
from airflow_resumable.operators._aws_adapter import AwsAdapter
from airflow_resumable.operators._emr_run_search import RunStates, carrying_tokens

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

STARTED = "started, not waited for"
"""The status of a run of which no more is wanted than that it was started."""

NOT_FOUND = "ResourceNotFoundException"
INVALID = "ValidationException"

_WHOLE_SECONDS = timedelta(seconds=1)
"""What a time that is told in whole seconds may lack."""


class JobRunAdapter(AwsAdapter):
    """One job run that is started once, found by its token, and watched to its end.

    A subclass says how its service is asked. `_place` is where the run at hand lives: the application or the
    virtual cluster.
    """

    submit_window: SubmitWindow = SubmitWindow.CLOSED
    states: ClassVar[RunStates]
    place_argument: ClassVar[str]
    """The argument that names the application or the virtual cluster; also its name in a location."""
    place_name: ClassVar[str]
    """What such a place is called, for messages."""

    _job_place: str | None = None
    """Where the run at hand lives, when that isn't where the operator would start one."""
    _give_up_at: float | None = None
    """Seconds since 1970, in the triggerer."""
    _taken_since: datetime | None = None
    """The first moment, by the service's clock, at which it can have taken the last submit."""
    _why: str = ""
    """What the service said of the last look's state."""

    if TYPE_CHECKING:
        job_id: str | None
        wait_for_completion: bool
        cancel_on_kill: bool
        configuration_overrides: Any
        openlineage_inject_parent_job_info: bool
        openlineage_inject_transport_info: bool

    # --- what a subclass says of its service ---

    def _start(self, token: str | None, context: Context) -> str:
        """Start a run with the token, or with one of its own for None; return its id."""
        raise NotImplementedError

    def _describe(self, client: Any, run: str) -> Mapping[str, Any]:
        """Return what the service says of a run."""
        raise NotImplementedError

    def _pages(self, client: Any, since: datetime) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yield the runs that were created since, a page at a time."""
        raise NotImplementedError

    def _stop(self, client: Any, run: str) -> None:
        """Ask for a run's end."""
        raise NotImplementedError

    def _token_of(self, run: Mapping[str, Any]) -> str | None:
        """Return the token that a listed run shows, if it is one of ours."""
        raise NotImplementedError

    def _failure_of(self, run: Mapping[str, Any]) -> str:
        """Return why a run has failed, in the service's words."""
        return str(run.get("stateDetails") or "")

    @property
    def _most_looks(self) -> int | None:
        """How often one try looks at a run before it gives up; None: as long as it takes."""
        raise NotImplementedError

    @property
    def _waits(self) -> bool:
        """Whether the task ends with the run, not with its start."""
        return self.wait_for_completion

    # --- run ---

    def resumable_policy(self) -> ResumePolicy:
        """Return the operator's policy; the parent's ``cancel_on_kill=False`` is part of it.

        As in the parent it speaks of a deferred task, and a policy that is given has the last word.
        """
        own = ResumePolicy.of(self.resume_policy)
        if self.deferrable and not self.cancel_on_kill and own.on_user_stop is None:
            own = replace(own, on_user_stop="keep")
        return own.filled(configured())

    def snapshot_before_submit(self, context: Context) -> JsonValue:
        """Return where the run will be started: it is looked for there, also if the Dag is edited by then."""
        return self._here()

    def submit_job(self, context: Context) -> str:
        """Start the run with the token and return its id.

        Raises:
            TokenConflict: The service holds the token for a run with other parameters.
        """
        self._go_to(None)
        self.job_id = self._start(self.idempotency_token, context)
        return self.job_id

    def _sent(self, send: Callable[[], Any]) -> Any:
        """Send a submit, and note by the service's clock how long ago it can have been taken."""
        began, self._taken_since = time.monotonic(), None
        answer = send()
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        if told := headers.get("date"):
            took = timedelta(seconds=time.monotonic() - began)
            self._taken_since = parsedate_to_datetime(told) - took
        return answer

    def was_job_created(self) -> bool | None:
        """Say whether the last submit made its run; both services answer alike for one that the token had.

        A run that is older than the request was there before. One that is not may be another attempt's with
        the same token, of the same moment: who ends a run on this word has to know that nobody watches it.
        """
        if self._taken_since is None or self.job_id is None:
            return None
        created = self._describe(self.aws.reading, self.job_id).get("createdAt")
        return None if created is None else bool(created >= self._taken_since - _WHOLE_SECONDS)

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the service's word for the run's state.

        Raises:
            JobNotFound: It has no such run.
            JobNotSettled: In the triggerer, when the run goes on for longer than a try may wait.
        """
        if self._only_starts:
            return STARTED
        try:
            run = self._describe(self.aws.reading, str(external_id))
        except Exception as error:
            if _aws_errors.code_of(error) == NOT_FOUND:
                raise JobNotFound(_aws_errors.message_of(error)) from error
            raise
        status = str(_aws_errors.part_of(run, "state"))
        self._why = self._failure_of(run)
        if status in self.states.failed:
            self.log.error("Job run %s is %s: %s", external_id, status, self._why or "no reason given")
        elif status != self.states.succeeded and self._is_too_late():
            raise self._given_up(external_id, status)
        return status

    def _overrides(self, context: Context) -> dict[str, Any] | None:
        """Return the `configuration_overrides`, with what OpenLineage is to add to them."""
        from airflow.providers.common.compat.openlineage.utils import spark

        overrides: dict[str, Any] | None = self.configuration_overrides
        if self.openlineage_inject_parent_job_info:
            self.log.info("Injecting OpenLineage parent job information into the run's configuration")
            overrides = spark.inject_parent_job_information_into_emr_serverless_properties(overrides, context)
        if self.openlineage_inject_transport_info:
            self.log.info("Injecting OpenLineage transport information into the run's configuration")
            overrides = spark.inject_transport_information_into_emr_serverless_properties(overrides, context)
        return overrides

    @property
    def _only_starts(self) -> bool:
        """Whether a run that is on record is all that this attempt wants of it."""
        attempt = self._resumable_attempt
        return not self._waits and attempt is not None and not attempt.service.is_sweeping

    def is_job_active(self, status: str) -> bool:
        """Say whether the run is yet to start or at work."""
        return status in self.states.active

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether the run has succeeded, or was started where nobody waits for its end."""
        return status in (self.states.succeeded, STARTED)

    def is_job_failed(self, status: str) -> bool:
        """Say whether the run has failed or was cancelled."""
        return status in self.states.failed

    def is_job_stopping(self, status: str) -> bool:
        """Say whether the run was told to end and has not ended yet."""
        return status == self.states.stopping

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Look at the run until it has ended, or as often as the parent's arguments allow.

        Raises:
            AirflowException: It failed; with the service's own reason.
            JobNotSettled: It goes on; so it does, and the next try watches it.
        """
        from airflow_resumable.jobs.watch import poll

        looks = 0

        def pause(status: str | None) -> None:
            nonlocal looks
            looks += 1
            if self._most_looks is not None and looks >= self._most_looks:
                raise self._given_up(external_id, status)
            time.sleep(self.get_poll_interval())

        ended = poll(self._attempt_for_polling(context), external_id, pause)
        if ended in self.states.failed:
            raise AirflowException(
                f"job run {external_id} of {self.place_name} {self._place} ended as {ended}: "
                f"{self._why or 'no reason given'}"
            )
        return None

    def _given_up(self, external_id: JsonValue, status: str | None) -> JobNotSettled:
        return JobNotSettled(
            f"job run {external_id} of {self.place_name} {self._place} is still {status} after "
            f"{self._most_looks} looks, {self.get_poll_interval():g} s apart: this try waits no longer. The "
            "run was left alone, and the next try watches it again",
            external_id=external_id,
        )

    def _is_too_late(self) -> bool:
        return self._give_up_at is not None and time.time() >= self._give_up_at

    def get_job_result(self, external_id: JsonValue, context: Context) -> str:
        """Return the run's id, as the parent does."""
        return str(external_id)

    def _watch_unrecorded(self, external_id: JsonValue, context: Context) -> Any:
        self.publish_job(external_id, context)
        if not self._waits:
            return str(external_id)
        try:
            return super()._watch_unrecorded(external_id, context)
        except JobNotSettled:
            # Nobody comes back to this run.
            self.cancel_job(external_id, context)
            raise

    # --- find ---

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> list[FoundJob]:
        """Return the runs that carry `token`.

        Raises:
            ResumableJobFatal: There are too many runs to read them all.
        """
        return self._find(lambda carried: carried == token, since)

    def find_jobs_by_family(self, family: str, since: datetime, context: Context) -> list[FoundJob]:
        """Return the runs of every generation; raises as `find_job_by_token`."""
        return self._find(lambda carried: family_of(carried) == family, since)

    def _find(self, is_wanted: Callable[[str], bool], since: datetime) -> list[FoundJob]:
        found: list[FoundJob] = []
        for location in self._locations():
            with self._at(location):
                found += self._find_here(is_wanted, since)
        return found

    def _find_here(self, is_wanted: Callable[[str], bool], since: datetime) -> Iterator[FoundJob]:
        where = f"{self.place_name} {self._place}"
        try:
            pages = self._pages(self.aws.reading, since)
            for run, token in carrying_tokens(pages, self._token_of, f"{where} since {since.isoformat()}"):
                if is_wanted(token):
                    yield FoundJob(run["id"], str(run["state"]), token=token, location=self._here())
        except Exception as error:
            if _aws_errors.code_of(error) != NOT_FOUND:
                raise
            self.log.info("There is no %s, so no run in it", where)

    def _locations(self) -> list[JsonValue]:
        """Where this task's runs may be: where one would be started, and where one was or was to be."""
        attempt = self._resumable_attempt
        record = attempt.record if attempt is not None else None
        known = [self._here(), *((record.before, record.location) if record is not None else ())]
        usable = [one for one in known if isinstance(one, dict) and self.place_argument in one]
        return [one for number, one in enumerate(usable) if one not in usable[:number]]

    # --- where ---

    @property
    def _place(self) -> str:
        return self._job_place or str(getattr(self, self.place_argument))

    def _here(self) -> JsonValue:
        return {"region": self.aws.region, self.place_argument: self._place}

    def get_job_location(self, external_id: JsonValue, context: Context) -> JsonValue:
        """Return the region, and the application or virtual cluster."""
        return self._here()

    def restore_job(
        self, external_id: JsonValue, location: JsonValue, uid: str | None, context: Context
    ) -> None:
        """Take over a run that another attempt started; it is looked for where it was started."""
        self.job_id = str(external_id)
        super().restore_job(external_id, location, uid, context)
        place = location.get(self.place_argument) if isinstance(location, dict) else None
        if place is not None and place != self._place:
            self.log.warning(
                "Job run %s was started in %s %s; %s now says %s. It is watched where it is",
                external_id,
                self.place_name,
                place,
                self.place_argument,
                self._place,
            )
            self._job_place = str(place)

    def _go_to(self, location: Mapping[str, Any] | None) -> None:
        """Ask somewhere else from now on; None is where the operator would start a run."""
        region = None if location is None else str(location["region"])
        if self._job_region != region:
            self._let_go()
            self._job_region = region
        self._job_place = None if location is None else str(location[self.place_argument])

    @contextmanager
    def _at(self, location: Any) -> Iterator[None]:
        if location == self._here():
            yield
            return
        region, place = self._job_region, self._job_place
        self._go_to(location)
        try:
            yield
        finally:
            if self._job_region != region:
                self._let_go()
            self._job_region, self._job_place = region, place

    # --- end ---

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Ask for the run's end, within 1.5 s; one that has ended is none to end.

        Raises:
            JobNotFound: The service has no such run.
        """
        client, run = self.aws.stopping, str(external_id)
        try:
            self._stop(client, run)
        except Exception as error:
            code = _aws_errors.code_of(error)
            if code == NOT_FOUND:
                raise JobNotFound(_aws_errors.message_of(error)) from error
            if code != INVALID or self._goes_on(client, run):
                raise
            self.log.info("Job run %s has ended, so there is nothing to cancel", run)

    def _goes_on(self, client: Any, run: str) -> bool:
        state = str(_aws_errors.part_of(self._describe(client, run), "state"))
        return not (self.is_job_succeeded(state) or self.is_job_failed(state) or self.is_job_stopping(state))

    # --- the triggerer ---

    def get_watch_arguments(self, context: Context) -> Mapping[str, JsonValue]:
        """Return what the triggerer needs: how the service is reached, how often to look, and until when."""
        looks, interval = self._most_looks, self.get_poll_interval()
        return {
            **super().get_watch_arguments(context),
            self.place_argument: self._place,
            "interval": interval,
            "most_looks": looks,
            "give_up_at": None if looks is None else time.time() + looks * interval,
        }

    @classmethod
    def for_watching(cls, arguments: Mapping[str, Any]) -> Self:
        """Return an operator that looks at a run and can't start one."""
        known = dict(arguments)
        interval, looks, until = (known.pop(name) for name in ("interval", "most_looks", "give_up_at"))
        watcher = cls._watcher(known, interval, looks)
        watcher._give_up_at = until
        return watcher

    @classmethod
    def _watcher(cls, known: Mapping[str, Any], interval: float, looks: int | None) -> Self:
        """Make such an operator of what says how and where the service is reached."""
        raise NotImplementedError
