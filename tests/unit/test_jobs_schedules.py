# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Random schedules of crashes, clears and ends against the laws of the protocol, at the real job service.

A schedule is a list of attempts of one task instance; each is killed with SIGKILL at a crash point, or
left to run. The laws are read from the service's own log.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_resumable.jobs.crashpoints import POINTS
from airflow_resumable.sdk import JobFailed
from airflow_resumable.testing.jobservice.process import JobService
from tests.attempts import FAIL, SUCCEED, TaskInstance, started

steps = st.tuples(st.sampled_from(POINTS), st.booleans(), st.booleans())


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(schedule=st.lists(steps, max_size=4))
def test_the_laws_hold_over_random_crashes_clears_and_failures(
    schedule: list[tuple[str, bool, bool]],
) -> None:
    """At most one job lives, none is started without a failure or a clear, and the last try has a result."""
    with tempfile.TemporaryDirectory() as place, JobService(Path(place) / "service") as service:
        instance = TaskInstance(service.url, Path(place) / "store", SUCCEED)
        failures = clears = 0
        for number, (point, fails, cleared) in enumerate(schedule, start=1):
            if cleared and instance.record is not None:
                # As Airflow's clear: max_tries = try_number + retries.
                instance.max_tries, clears = number + instance.retries, clears + 1
            instance.command = FAIL if fails else SUCCEED
            before = len(started(service))
            # A failed job, or a success on record, ends the attempt before it comes to some points.
            ended = instance.attempt_killed(point, try_number=number, may_end=("JobFailed", "returned"))
            failures += ended == "JobFailed"
            assert len(started(service)) - before <= 1
        instance.command = SUCCEED
        while True:
            try:
                assert instance.attempt(try_number=len(schedule) + 1 + failures) == {"rows": 7}
                break
            except JobFailed:
                failures += 1
        tokens = [entry["token"] for entry in started(service)]
        assert len(set(tokens)) == len(tokens)
        jobs = [service.client().status(entry["job"]) for entry in started(service)]
        ended_badly = [job for job in jobs if job["status"] == "FAILED"]
        assert len(jobs) <= 1 + len(ended_badly) + clears
        # Law 1: the next job was taken when the one before had ended; nothing is alive at the end.
        for earlier, later in pairwise(jobs):
            assert earlier["finished_at"] <= later["submitted_at"]
        assert all(job["finished_at"] for job in jobs)
