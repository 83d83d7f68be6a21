# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs that may be a task's, found by the ids that they must have: BigQuery lists by no name or label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING

from airflow_resumable.jobs.adapter import FoundJob
from airflow_resumable.jobs.errors import JobNotFound, ResumableJobFatal
from airflow_resumable.jobs.token import TokenMint, family_of
from airflow_resumable.operators._bigquery_conflict import token_on
from airflow_resumable.operators._bigquery_jobs import Place, status_of

if TYPE_CHECKING:
    from airflow_resumable.operators._bigquery_jobs import JobClient
    from airflow_resumable.operators._bigquery_plan import Plan

MOST_NUMBERS = 64
"""Values of `max_tries` under which jobs are looked for, at most."""
MOST_LOOKS = 512
"""Requests of one search, at most."""


class Search:
    """Looks jobs up.

    Args:
        client: For the requests.
        plan: The jobs' name.
        place: Where they are looked for.
    """

    def __init__(self, client: JobClient, plan: Plan, place: Place) -> None:
        self._client = client
        self._plan = plan
        self._place = place

    def by_token(self, token: str, *, sent_again: bool) -> list[FoundJob]:
        """Return the job whose id ends with the token, or that carries it in its label.

        Args:
            token: The token.
            sent_again: Whether a submit with it follows if nothing is found: its 409 tells where the job is.

        Raises:
            ResumableJobFatal: Nothing was found, the location isn't known, and no submit will tell.
        """
        found = self._look_up(self._plan.named(token), token)
        if found is None and self._plan.exact:
            first = self._look_up(self._plan.prefix)
            found = first if first is not None and first.token == token else None
        if found is None and not sent_again:
            self._check_place()
        return [] if found is None else [found]

    def by_family(self, mint: TokenMint, numbers: Iterable[int]) -> list[FoundJob]:
        """Return the jobs of all generations: up to two requests for each of `numbers`, and one a job.

        Args:
            mint: The task's.
            numbers: The `max_tries` that the task instance may have had, in order: a clear raises it by the
                tries that were used.

        Raises:
            ResumableJobFatal: Nothing was found, and the location isn't known: what runs outside of US and EU
                isn't shown then. Or `MOST_LOOKS` requests were not enough.
        """
        found = list(self._generations(mint, numbers))
        if self._plan.exact:
            first = self._look_up(self._plan.prefix)
            if first is not None and first.token is not None and family_of(first.token) == mint.family:
                found.append(first)
        if not found:
            self._check_place()
        return found

    def _check_place(self) -> None:
        if self._place.location is None:
            raise ResumableJobFatal(
                f"whether a job {self._plan.prefix}_... of this task runs in project {self._place.project!r} "
                "can't be told: BigQuery shows jobs outside of US and EU only to who names their location, "
                "and didn't say where this one runs (see the warning above). Give `location`: that of the "
                "datasets"
            )

    def _generations(self, mint: TokenMint, numbers: Iterable[int]) -> Iterator[FoundJob]:
        following, looks = 1, 0
        for number in numbers:
            # After a clear the count goes on, or begins anew where the clear has discarded the record.
            for start in sorted({1, following}):
                for generation in count(start):
                    looks += 1
                    if looks > MOST_LOOKS:
                        raise ResumableJobFatal(
                            f"jobs {self._plan.prefix}_... of this task can't all be found: {MOST_LOOKS} "
                            "requests were not enough. Give another job_id, once none of them runs"
                        )
                    token = mint.token(number, generation)
                    job = self._look_up(self._plan.named(token), token)
                    if job is None:
                        break
                    yield job
                    following = max(following, generation + 1)

    def _look_up(self, job_id: str, token: str | None = None) -> FoundJob | None:
        try:
            job = self._client.get(job_id, self._place)
        except JobNotFound:
            return None
        location = Place.of_job(job).recorded
        return FoundJob(job_id, status_of(job), token=token or token_on(job), location=location)
