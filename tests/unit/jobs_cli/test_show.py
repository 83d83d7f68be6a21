# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""``airflow-resumable jobs show`` against a real metadata database and the real local job service."""

from __future__ import annotations

from tests import metadata
from tests.jobs_commands import Jobs


def test_show_prints_the_whole_record_and_asks_for_every_id(run: metadata.Run, jobs: Jobs) -> None:
    """All records of a task instance; what the service says of each job."""
    first, second = run.start(command=("true",)), run.start(generation=2)
    record = run.record(second, generation=2, ids=(first, second))
    (shown,) = jobs.show(status=0)
    assert shown["record"] == record.dump()
    assert {one["external_id"] for one in shown["service"]["jobs"]} == {first, second}
