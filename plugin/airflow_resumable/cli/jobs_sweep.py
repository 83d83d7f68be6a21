# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One look at many records, each beside what its service says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from airflow_resumable.cli.jobs_dags import CannotBeChecked
from airflow_resumable.cli.jobs_findings import Finding, findings
from airflow_resumable.cli.jobs_inquiry import Inquiry
from airflow_resumable.cli.jobs_store import StoredJob


class Sweep:
    """Compares records with their services and counts.

    Args:
        ask: Makes the adapter of a record ready.
        installation: ``[resumable] installation_id``, or an empty string.
        everything: Also look at reported successes, of which a deployment has the most.

    Attributes:
        found: The findings so far.
        checked: How many records were compared in full.
        unchecked: How many could not be.
        left_out: How many reported successes were not looked at.
    """

    def __init__(self, ask: Callable[[StoredJob], Inquiry], installation: str, *, everything: bool) -> None:
        self.found: list[Finding] = []
        self.checked = self.unchecked = self.left_out = 0
        self._ask, self._installation, self._everything = ask, installation, everything

    def over(self, jobs: Iterable[StoredJob]) -> Iterator[tuple[StoredJob, str]]:
        """Compare record after record; yield each that can't be checked, with the reason."""
        for job in jobs:
            if job.is_reported_success and not self._everything:
                self.left_out += 1
                continue
            try:
                self._compare(job)
                self.checked += 1
            except CannotBeChecked as error:
                self.unchecked += 1
                yield job, str(error)

    @property
    def beside(self) -> str:
        """What the findings don't cover, in words; empty for nothing."""
        parts = []
        if self.unchecked:
            parts.append(f"{self.unchecked} can't be checked")
        if self.left_out:
            parts.append(f"{self.left_out} reported successes left out (--all)")
        return ", ".join(parts)

    def _compare(self, job: StoredJob) -> None:
        with self._ask(job) as asked:
            seen = asked.jobs()
        can_search = asked.can_search
        self.found += findings(
            job,
            seen,
            can_cancel=asked.can.cancel,
            can_search=can_search,
            installation=self._installation,
        )
        if not can_search:
            raise CannotBeChecked(
                f"{type(asked.adapter).__name__} can't list jobs (no find_jobs_by_family, no "
                "find_job_by_token): only the ids on record were asked for"
            )
