# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the operators of all AWS services share: clients, credentials, errors, the region on record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs.mixin import ResumableJobMixin
from airflow_resumable.jobs.transient import patiently
from airflow_resumable.operators import _aws_errors
from airflow_resumable.operators._aws_clients import AwsClients

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

CONNECTION_ARGUMENTS = ("aws_conn_id", "region_name", "verify", "botocore_config")
"""The arguments of every AWS operator that say how its service is reached."""


class AwsAdapter(ResumableJobMixin):
    """A `ResumableJobMixin` for operators that are built on the provider's `AwsBaseOperator`.

    The region in which a job was started is recorded, and the job is looked for there, whatever the
    connection names by then. Credentials that have expired are fetched again, as often as need be.
    """

    _clients: AwsClients | None = None
    _job_region: str | None = None

    @property
    def aws(self) -> AwsClients:
        """The clients, in the region of the job at hand."""
        if self._clients is None:
            self._clients = AwsClients(self._fresh_hook, self._job_region)
        return self._clients

    def _fresh_hook(self) -> Any:
        # The provider caches its hook, and the hook its client, for as long as the operator lives.
        vars(self).pop("hook", None)
        return getattr(self, "hook")  # noqa: B009 - of the provider's class, which stands to the right

    @contextmanager
    def looking(self, context: Context) -> Iterator[None]:
        """Hold the clients for as long as the block lasts."""
        try:
            yield
        finally:
            self._let_go()

    def _let_go(self) -> None:
        clients, self._clients = self._clients, None
        if clients is not None:
            clients.close()

    def get_job_location(self, external_id: JsonValue, context: Context) -> JsonValue:
        """Return the region."""
        return {"region": self.aws.region}

    def restore_job(
        self, external_id: JsonValue, location: JsonValue, uid: str | None, context: Context
    ) -> None:
        """Take over a job that another attempt started; it is looked for in the region on record."""
        region = location.get("region") if isinstance(location, dict) else None
        if isinstance(region, str):
            self._use_region(region, external_id)

    def _use_region(self, region: str, external_id: JsonValue) -> None:
        here = self.aws.region
        if region == here:
            return
        self.log.warning(
            "Job %r was started in %s; connection %r and region_name now name %s. It is watched where it is",
            external_id,
            region,
            getattr(self, "aws_conn_id", None),
            here,
        )
        self._let_go()
        self._job_region = region

    def is_transient_error(self, error: BaseException) -> bool:
        """Say whether asking again may help; credentials that have expired are renewed for that."""
        if _aws_errors.is_expired(error):
            self.aws.renew()
            return True
        return _aws_errors.is_transient(error)

    def refresh_credentials(self, context: Context) -> bool:
        """Fetch credentials again, from the connection or wherever boto3 finds them."""
        self.aws.renew()
        return True

    def _send(self, what: str, call: Callable[[], Any]) -> Any:
        """Call for a service that knows no token: again only after errors that prove that nothing was done.

        Args:
            what: What is called, for the log.
            call: Makes one request with `self.aws.sending`.
        """

        def may_retry(error: BaseException) -> bool:
            if not _aws_errors.was_not_taken(error):
                return False
            if _aws_errors.is_expired(error):
                self.aws.renew()
            return True

        return patiently(
            what, call, budget=self.resumable_policy().seconds("status_error_budget"), may_retry=may_retry
        )

    def get_watch_arguments(self, context: Context) -> Mapping[str, JsonValue]:
        """Return how the service is reached; a subclass adds what it needs itself."""
        return {name: getattr(self, name) for name in CONNECTION_ARGUMENTS}
