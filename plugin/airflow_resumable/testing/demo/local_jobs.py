# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One job of the local job service, through Airflow's own mixin (`stock`) and through ours (`ours`).

Each case of the demo is a run of one of these Dags. The run's conf has, for each of the two tasks, the
service's URL and the shell script that is the job.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import httpx
from airflow.sdk import DAG, BaseOperator, ResumableJobMixin
from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.crashpoints import reach
from airflow_resumable.testing.jobservice.client import JobServiceClient
from airflow_resumable.testing.local_job import LocalJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

_STATUS_ATTEMPTS = 3


class StockLocalJobOperator(ResumableJobMixin, BaseOperator):
    """Run a command as a job of the local job service, resumable by Airflow's own mixin.

    Written as its documentation says, with care: the job is cancelled when the task is killed, a status
    call is tried three times, and a resumed job returns its result. The two calls of `reach` are where the
    demo kills; they do nothing else.

    Args:
        service_url: Where the service listens. (templated)
        command: The job's program and arguments. (templated)
        poll_interval: Seconds between two looks at the job.
    """

    template_fields = ("service_url", "command")
    external_id_key = "stock_job_id"
    _job_id: Any = None
    _client_name = ""

    def __init__(
        self, *, service_url: str, command: Sequence[str], poll_interval: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.service_url = service_url
        self.command = command
        self.poll_interval = poll_interval

    def execute(self, context: Context) -> Any:
        """Start the job, or go on with the one whose id an earlier try has stored."""
        ti = context["ti"]
        self._client_name = f"{ti.dag_id}/{ti.run_id}/{ti.task_id}/{ti.map_index}/{ti.try_number}"
        return self.execute_resumable(context)

    @cached_property
    def client(self) -> JobServiceClient:
        """The connection to the service."""
        return JobServiceClient(self.service_url, client_name=self._client_name)

    def submit_job(self, context: Context) -> Any:
        """Start the job and return its id."""
        self._job_id = self.client.submit(list(self.command))["id"]
        reach("after_accept")
        return self._job_id

    def get_job_status(self, external_id: Any, context: Context) -> str:
        """Return the job's status."""
        return str(self._job(external_id)["status"])

    def is_job_active(self, status: str) -> bool:
        """Say whether the job has yet to end."""
        return status in ("QUEUED", "RUNNING", "STOPPING")

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether the job has succeeded."""
        return status == "SUCCEEDED"

    def poll_until_complete(self, external_id: Any, context: Context) -> Any:
        """Look at the job until it has ended; return its result, as what is resumed returns no other."""
        self._job_id = external_id
        while self.is_job_active(status := self.get_job_status(external_id, context)):
            reach("mid_poll")
            time.sleep(self.poll_interval)
        if not self.is_job_succeeded(status):
            raise AirflowException(f"job {external_id} ended as {status}")
        return self.get_job_result(external_id, context)

    def get_job_result(self, external_id: Any, context: Context) -> Any:
        """Return what the job printed last."""
        return self._job(external_id)["result"]

    def on_kill(self) -> None:
        """Cancel the job."""
        if self._job_id is not None:
            self.log.info("Cancelling job %s", self._job_id)
            self.client.cancel(self._job_id)

    def _job(self, external_id: Any) -> dict[str, Any]:
        for _ in range(_STATUS_ATTEMPTS - 1):
            try:
                return self.client.status(external_id)
            except httpx.HTTPError as error:
                self.log.warning("Status of job %s: %s; asking again", external_id, error)
                time.sleep(self.poll_interval)
        return self.client.status(external_id)


def _arguments(side: str) -> dict[str, Any]:
    conf = f"dag_run.conf['{side}']"
    return {
        "task_id": side,
        "service_url": f"{{{{ {conf}['service_url'] }}}}",
        "command": ["sh", "-c", f"{{{{ {conf}['script'] }}}}"],
    }


def _make_dag(dag_id: str, **task: Any) -> DAG:
    with DAG(
        dag_id,
        schedule=None,
        max_active_runs=100,
        max_active_tasks=100,
        default_args={"retries": 2, "retry_delay": timedelta(seconds=1), **task},
    ) as dag:
        StockLocalJobOperator(**_arguments("stock"))
        LocalJobOperator(**_arguments("ours"))
    return dag


demo_local = _make_dag("demo_local")
demo_local_time_out = _make_dag("demo_local_time_out", execution_timeout=timedelta(seconds=4))
