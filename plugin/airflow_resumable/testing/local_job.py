# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`LocalJobOperator`: the reference adapter, and the text of "write your own adapter"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import httpx
from airflow.sdk import BaseOperator

from airflow_resumable.sdk import FoundJob, JobNotFound, ResumableJobMixin, SubmitWindow, TokenConflict
from airflow_resumable.testing.jobservice.client import JobServiceClient

if TYPE_CHECKING:
    from airflow.sdk import Context


class LocalJobOperator(ResumableJobMixin, BaseOperator):
    """Run a command as a job of the local job service and return its result.

    Args:
        service_url: Where the service listens. (templated)
        command: The job's program and arguments. (templated)
        poll_interval: Seconds between two looks at the job.
        deferrable: Whether the triggerer watches the job; a worker does by default.
    """

    template_fields = ("service_url", "command")
    external_id_key = "local_job_id"
    submit_window = SubmitWindow.CLOSED  # the service starts one job per token, whatever dies here
    _client_name = ""
    _client: JobServiceClient | None = None
    _created: bool | None = None

    def __init__(
        self,
        *,
        service_url: str,
        command: Sequence[str],
        poll_interval: float = 1.0,
        deferrable: bool = False,
        **kwargs: Any,
    ) -> None:
        if isinstance(command, str):
            raise TypeError(f"command={command!r} is not allowed; use a list: [program, argument, ...]")
        super().__init__(**kwargs)
        self.service_url = service_url
        self.command = command
        self.poll_interval = poll_interval
        self.deferrable = deferrable

    def execute(self, context: Context) -> Any:
        """Start the job, or find the one that an earlier try has started, and see it to its end."""
        ti = context["ti"]
        self._client_name = f"{ti.dag_id}/{ti.run_id}/{ti.task_id}/{ti.map_index}/{ti.try_number}"
        with self.looking(context):
            return self.execute_resumable(context)

    @contextmanager
    def looking(self, context: Context) -> Iterator[None]:
        try:
            yield
        finally:
            client, self._client = self._client, None
            if client is not None:
                client.close()

    @property
    def client(self) -> JobServiceClient:
        # No cached_property: before Python 3.12 that holds a lock, and a stop that interrupts it in there
        # sends its cancel from another thread.
        if self._client is None:
            self._client = JobServiceClient(self.service_url, client_name=self._client_name)
        return self._client

    def submit_job(self, context: Context) -> Any:
        try:
            job = self.client.submit(list(self.command), token=self.idempotency_token, family=self.job_family)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != 409:
                raise
            body = error.response.json()
            raise TokenConflict(body["message"], external_id=body["job"]["id"]) from error
        self._created = job["created"]
        return job["id"]

    def get_job_status(self, external_id: Any, context: Context) -> str:
        return str(self._job(external_id).get("status", ""))

    def is_job_active(self, status: str) -> bool:
        return status in ("QUEUED", "RUNNING")

    def is_job_succeeded(self, status: str) -> bool:
        return status == "SUCCEEDED"

    def is_job_failed(self, status: str) -> bool:
        return status in ("FAILED", "CANCELLED")

    def is_job_stopping(self, status: str) -> bool:
        return status == "STOPPING"

    def get_job_result(self, external_id: Any, context: Context) -> Any:
        return self._job(external_id)["result"]

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> list[FoundJob]:
        jobs = self.client.find(token=token, since=since.timestamp())
        return [FoundJob(job["id"], job["status"], job["token"]) for job in jobs]

    def find_jobs_by_family(self, family: str, since: datetime, context: Context) -> list[FoundJob]:
        jobs = self.client.find(family=family, since=since.timestamp())
        return [FoundJob(job["id"], job["status"], job["token"]) for job in jobs]

    def cancel_job(self, external_id: Any, context: Context) -> None:
        self.client.cancel(external_id)

    def get_watch_arguments(self, context: Context) -> dict[str, Any]:
        return {"service_url": self.service_url, "poll_interval": self.poll_interval}

    @classmethod
    def for_watching(cls, arguments: Mapping[str, Any]) -> Self:
        # The command isn't stored: it may hold what nobody should read, and watching needs none.
        return super().for_watching({"command": (), **arguments})

    def was_job_created(self) -> bool | None:
        return self._created

    def refresh_credentials(self, context: Context) -> bool:
        self.client.renew_credential()
        return True

    def _job(self, external_id: Any) -> dict[str, Any]:
        try:
            return self.client.status(external_id)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == 404:
                raise JobNotFound(f"job {external_id!r}") from error
            raise
