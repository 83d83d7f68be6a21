# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The link from a task to its job's own page, there from the moment the job is on record.

Airflow itself stores a task's extra links when the task has ended. Here the link is pushed where Airflow
would put it (its XCom key) as soon as there is a job to link to.
See https://airflow.apache.org/docs/apache-airflow/stable/howto/define-extra-link.html
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

    from airflow_resumable.jobs.attempt import JobAttempt

_log = logging.getLogger(__name__)


class JobLink(BaseOperatorLink):
    """The button "Job": the job's page in the service's own UI, as `get_job_url` names it.

    Put it into an operator's `operator_extra_links`; without it nothing is pushed.
    """

    @property
    def name(self) -> str:
        """The button's text."""
        return "Job"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the job's URL when the task has ended; empty where the service has no page for it."""
        return getattr(operator, "_resumable_job_url", None) or ""


def show(attempt: JobAttempt) -> None:
    """Let the adapter tell others of an attempt's current job, and store the link to it.

    What fails here is said in the log and changes nothing: the job counts.
    """
    adapter = attempt.adapter
    if attempt.external_id is None:
        return
    try:
        adapter.publish_job(attempt.external_id, attempt.context)
    except Exception:
        _log.exception("job %r could not be told to others; it goes on", attempt.external_id)
    links = getattr(adapter, "operator_extra_links", ())
    link = next((one for one in links if isinstance(one, JobLink)), None)
    if link is None:
        return
    try:
        url = adapter.get_job_url(attempt.external_id, attempt.context)
        if not url or url == getattr(adapter, "_resumable_job_url", None):
            return
        vars(adapter)["_resumable_job_url"] = url
        attempt.context["ti"].xcom_push(key=link.xcom_key, value=url)
    except Exception as error:
        _log.warning(
            "the link to job %r could not be stored (%s: %s); the job goes on",
            attempt.external_id,
            type(error).__name__,
            error,
        )
