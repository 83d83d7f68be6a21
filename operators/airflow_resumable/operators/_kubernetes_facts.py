# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the Kubernetes operators say of pods and Jobs."""

from __future__ import annotations

from datetime import timedelta

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.operators._facts import Permission, ServiceFacts

POD_FACTS: tuple[ServiceFacts, ...] = (
    ServiceFacts(
        service="Kubernetes Pod",
        submit_window=SubmitWindow.CLOSED,
        window="Nothing, while the pod of a generation exists: its name is taken.",
        token="the end of `metadata.name`, unless an exact name is asked for, and a label",
        memory="until the pod is deleted; one that others may still create is kept",
        cancel="the pod of this uid is deleted, with `termination_grace_period`",
        retries=2,
        retry_delay=timedelta(seconds=30),
        retries_why="one for a lost worker and one for a lost node; a pod may take that long to be gone",
        permissions=(
            Permission("", "pods", ("create", "get", "list", "delete", "patch"), "run, find, end the pod"),
            Permission("", "pods/log", ("get",), "`get_logs`"),
            Permission("", "pods/exec", ("create", "get"), "`do_xcom_push`"),
            Permission("", "events", ("list",), "`log_events_on_startup`, `log_events_on_failure`"),
        ),
    ),
)

JOB_FACTS: tuple[ServiceFacts, ...] = (
    ServiceFacts(
        service="Kubernetes Job",
        submit_window=SubmitWindow.CLOSED,
        window="Nothing, while the Job of a generation exists: its name is taken.",
        token="the end of `metadata.name`, unless an exact name is asked for; a label of Job and pods",
        memory="until the Job is deleted: by `ttl_seconds_after_finished`, or by hand",
        cancel="the Job of this uid is deleted, its pods with it",
        retries=2,
        retry_delay=timedelta(seconds=30),
        retries_why="one for a lost worker and one for a Job that was deleted; where "
        "`ttl_seconds_after_finished` is set, it has to be longer than this delay",
        permissions=(
            Permission("batch", "jobs", ("create", "get", "list", "delete"), "run, find, end the Job"),
            Permission("", "pods", ("list",), "what a Job that is gone or has failed left at work"),
            Permission("", "pods", ("get", "patch", "delete"), "`on_finish_action`"),
            Permission("", "pods/log", ("get",), "`get_logs`"),
            Permission("", "pods/exec", ("create", "get"), "`do_xcom_push`"),
        ),
    ),
)
