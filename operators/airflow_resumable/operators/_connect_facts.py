# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What `ResumableSparkConnectOperator` says of Spark Connect."""

from __future__ import annotations

from datetime import timedelta

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.operators._facts import Permission, ServiceFacts

FACTS: tuple[ServiceFacts, ...] = (
    ServiceFacts(
        service="Spark Connect 4.0 or newer",
        submit_window=SubmitWindow.CLOSED,
        window="Nothing, while the server runs; one that is restarted has lost every operation.",
        token="the operation's id and its session's, as a UUID",
        memory=(
            "while somebody attaches, and detachedTimeout (5 minutes) longer; the id alone for as "
            "long as the session (60 minutes)"
        ),
        cancel="an interrupt by operation id; Spark cancels the operation's jobs",
        retries=2,
        retry_delay=timedelta(seconds=30),
        retries_why="an operation that nobody attaches to for 5 minutes is cancelled by the server",
        permissions=(
            Permission(
                "spark.connect",
                "SparkConnectService",
                (
                    "ExecutePlan",
                    "ReattachExecute",
                    "GetStatus",
                    "Config",
                    "AnalyzePlan",
                    "Interrupt",
                    "ReleaseExecute",
                    "ReleaseSession",
                ),
                "the server asks for no permission; a gateway in front of it has to let these through",
            ),
        ),
    ),
)
