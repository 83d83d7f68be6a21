# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance suite at the reference adapter and at the lesser ones: each passes what it declares."""

from __future__ import annotations

from typing import Any

import httpx

from airflow_resumable.sdk import JobNotFound
from airflow_resumable.testing.soak.graded_jobs import OpenJobOperator
from tests.attempts import TokenOnlyJobOperator
from tests.local_conformance import LocalConformance, LocalService, NarrowedConformance
from tests.unit.test_jobs_taskflow import LocalJob


class FullLocalJob(LocalJob):
    """An `ExternalJob` that tells all that its service tells."""

    def get_job_status(self, external_id: Any, context: Any) -> str:
        try:
            return super().get_job_status(external_id, context)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == 404:
                raise JobNotFound(str(external_id)) from error
            raise

    def is_job_active(self, status: str) -> bool:
        return status in ("QUEUED", "RUNNING")

    def is_job_failed(self, status: str) -> bool:
        return status in ("FAILED", "CANCELLED")

    def is_job_stopping(self, status: str) -> bool:
        return status == "STOPPING"


class TestClosed(LocalConformance):
    """The reference adapter; each crash is a SIGKILL."""

    crash_by = "sigkill"


class TestNarrowed(NarrowedConformance):
    """Found by a mark."""


class TestOpen(LocalConformance):
    """Nothing to find a job by."""

    operator_class = OpenJobOperator


class TestTokenOnly(LocalConformance):
    """Tokens, no listing."""

    operator_class = TokenOnlyJobOperator


class TestExternalJob(LocalConformance):
    """The same service from a `@task` function."""

    def make(self, service: LocalService, outcome: Any) -> Any:
        operator = super().make(service, outcome)
        return FullLocalJob(service.client, operator.command)
