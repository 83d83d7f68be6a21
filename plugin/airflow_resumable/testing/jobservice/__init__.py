# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The local job service: a separate process that runs commands as jobs which outlive their submitter.

It stands for Spark, EMR or BigQuery in tests, in the demo and in the documentation. It takes idempotency
tokens, lists by token and family, cancels, forgets on request and injects faults. Its own request log,
written before any reply is sent, is the oracle for "one job was started".

    with JobService(tmp_path / "service") as service:
        client = service.client()
        job = client.submit(["echo", "42"], token="r1")
        assert client.wait(job["id"])["result"] == 42
        assert service.jobs_started() == 1

By hand: ``python -m airflow_resumable.testing.jobservice --data-dir DIR``.

A service started again on the same data directory remembers its jobs. It doesn't take up processes it can no
longer wait for: a job that was RUNNING when the service died, however it died, is FAILED with the reason
"service restarted", even if its command had just ended well, and its process is killed first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_resumable.testing.jobservice.client import JobServiceClient
    from airflow_resumable.testing.jobservice.process import JobService, JobServiceError

__all__ = ["JobService", "JobServiceClient", "JobServiceError"]


def __getattr__(name: str) -> Any:
    # The service's own process imports this package too and must start fast, so nothing is imported eagerly.
    if name == "JobServiceClient":
        from airflow_resumable.testing.jobservice.client import JobServiceClient

        return JobServiceClient
    if name in ("JobService", "JobServiceError"):
        from airflow_resumable.testing.jobservice import process

        return getattr(process, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
