# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The link to a job's own page: stored while the job runs, and the same one after a reconnect."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_resumable.jobs.link import JobLink
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.local_job import LocalJobOperator
from airflow_resumable.testing.task_tries import TaskTries, at_point
from tests.attempts import SUCCEED

KEY = JobLink().xcom_key


@pytest.fixture
def task_tries() -> TaskTries:
    """One task instance."""
    return TaskTries()


class LinkedJobOperator(LocalJobOperator):
    """The local job service, as if it had a page for each job."""

    operator_extra_links = (JobLink(),)

    def get_job_url(self, external_id: Any, context: Any) -> str | None:
        return f"{self.service_url}/jobs/{external_id}"


def _operator(service: JobService, kind: type[LocalJobOperator] = LinkedJobOperator) -> LocalJobOperator:
    return kind(task_id="task", service_url=service.url, command=SUCCEED, retries=2, poll_interval=0.02)


def test_the_link_is_stored_before_the_job_has_ended(service: JobService, task_tries: TaskTries) -> None:
    """The XCom is there at the first crash point after the id is on record."""
    seen: list[Any] = []
    with at_point("after_id", lambda: seen.append(dict(task_tries.xcoms).get(KEY))):
        task_tries.run(_operator(service))

    (job,) = {entry["job"] for entry in service.requests("submit")}
    assert seen == [f"{service.url}/jobs/{job}"]


def test_a_reconnect_stores_the_same_link_once(service: JobService, task_tries: TaskTries) -> None:
    """A try that takes over the job has the link too, and Airflow's own push at the end is equal."""
    assert task_tries.crash(lambda: _operator(service), "after_id")
    first = dict(task_tries.xcoms)[KEY]
    task_tries.xcoms.clear()
    operator = _operator(service)
    task_tries.run(operator)

    assert [value for key, value in task_tries.xcoms if key == KEY] == [first]
    assert JobLink().get_link(operator, ti_key=None) == first  # type: ignore[arg-type]


def test_a_link_that_cannot_be_had_changes_nothing(
    service: JobService, task_tries: TaskTries, caplog: pytest.LogCaptureFixture
) -> None:
    """The job runs to its end, and the log names the job and the error."""

    class Broken(LinkedJobOperator):
        def get_job_url(self, external_id: Any, context: Any) -> str | None:
            raise RuntimeError("no page today")

    assert task_tries.run(_operator(service, Broken)) == {"rows": 7}
    assert "could not be stored (RuntimeError: no page today)" in caplog.text
    assert KEY not in dict(task_tries.xcoms)


def test_an_operator_without_the_link_pushes_nothing(service: JobService, task_tries: TaskTries) -> None:
    """Who didn't ask for the button gets no XCom either."""
    task_tries.run(_operator(service, LocalJobOperator))

    assert KEY not in dict(task_tries.xcoms)
