# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance suite fails on every variant of the protocol that is broken on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_resumable.testing.conformance import JobConformance
from airflow_resumable.testing.file_store import FileTaskStateStore
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.task_tries import TaskTries
from airflow_resumable.testing.variants import VARIANTS, broken
from tests.local_conformance import LocalConformance, LocalService, NarrowedConformance

CAUGHT_BY: dict[str, tuple[type[LocalConformance], str, tuple[object, ...]]] = {
    "no intent": (NarrowedConformance, "test_a_crash_starts_no_second_job", ("after_accept",)),
    "a token per attempt": (LocalConformance, "test_an_overtaken_try_writes_nothing", ()),
    "a token that never rotates": (LocalConformance, "test_a_failed_job_is_followed_by_another", ()),
    "no lookup before a second submit": (
        NarrowedConformance,
        "test_a_crash_starts_no_second_job",
        ("after_accept",),
    ),
    "lookup that takes the first match": (
        NarrowedConformance,
        "test_of_several_jobs_the_live_one_is_watched",
        (False,),
    ),
    "unbounded wait on stopping": (
        LocalConformance,
        "test_a_stopping_job_is_waited_for_and_not_for_ever",
        (),
    ),
    "blind write without reading the owner": (LocalConformance, "test_an_overtaken_try_writes_nothing", ()),
    "cancel on SIGTERM": (LocalConformance, "test_an_eviction_keeps_the_job", ()),
    "not found read as resubmit": (
        LocalConformance,
        "test_a_missing_job_is_not_started_again_by_itself",
        (),
    ),
    "clean-up before the outcome": (LocalConformance, "test_tidying_up_comes_after_the_outcome", ()),
    "unknown status read as failed": (LocalConformance, "test_a_status_never_heard_of_starts_nothing", ()),
    "generation + 1 on every attempt": (LocalConformance, "test_a_running_job_is_watched_on", ()),
}


def test_every_variant_has_its_behaviour() -> None:
    """Section 10 names twelve."""
    assert CAUGHT_BY.keys() == VARIANTS.keys()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_behaviour_fails_on_a_broken_protocol(service: JobService, tmp_path: Path, variant: str) -> None:
    """Whole, the behaviour holds; broken, it fails by its own assertion and not by a slip or a skip."""
    suite, behaviour, arguments = CAUGHT_BY[variant]

    def behave(place: Path) -> None:
        place.mkdir()
        seen = LocalService(service, place / "gate")
        tries = TaskTries(FileTaskStateStore(place / "store"))
        try:
            getattr(suite(), behaviour)(seen, tries, *arguments)
        finally:
            seen.client.clear_faults()
            seen.release()

    behave(tmp_path / "whole")
    with broken(variant), pytest.raises(BaseException) as caught:  # noqa: PT011 - any way of not holding will do
        behave(tmp_path / "broken")
    assert not isinstance(
        caught.value,
        KeyboardInterrupt | pytest.skip.Exception | NotImplementedError | NameError | AttributeError,
    )
    assert "pytest-timeout" not in str(caught.value)


def test_an_author_who_gives_no_service_is_told() -> None:
    """The error names the class and what is missing."""

    class Nothing(JobConformance):
        def make(self, service: object, outcome: object) -> object:
            return None

    with pytest.raises(NotImplementedError, match="Nothing needs a fixture service"):
        Nothing.service.__wrapped__(Nothing())  # type: ignore[attr-defined]
