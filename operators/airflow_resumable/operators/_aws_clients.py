# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The clients of one AWS service that an operator uses, all made by the provider's hook.

See https://docs.aws.amazon.com/botocore/latest/reference/config.html for what they are told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

_log = logging.getLogger(__name__)

STOP_LIMIT = 1.5
"""Seconds for which a cancel waits for a connection, and for an answer: a task that dies has 2 in all."""


class AwsClients:
    """One service in one region, asked in three ways.

    Args:
        make_hook: Makes the provider's hook, with all that its Airflow connection holds.
        region: Where a job lives; None for where the hook would put one.
    """

    def __init__(self, make_hook: Callable[[], Any], region: str | None = None) -> None:
        self._make_hook = make_hook
        self._region = region

    @cached_property
    def hook(self) -> Any:
        """The provider's hook; made again when credentials have expired."""
        return self._make_hook()

    @cached_property
    def reading(self) -> Any:
        """A client with the retries that the user has set; the hook's own from then on."""
        client = self._client()
        # Nothing that the provider asks for by its hook needs another session, and other credentials.
        self.hook.conn = client
        return client

    @cached_property
    def sending(self) -> Any:
        """A client that sends each request once: botocore would send a submit again after a time-out."""
        return self._client(retries={"total_max_attempts": 1})

    @cached_property
    def stopping(self) -> Any:
        """A client for cancels: one try each, short time limits, no connection that another one may hold."""
        return self._client(
            retries={"total_max_attempts": 1}, connect_timeout=STOP_LIMIT, read_timeout=STOP_LIMIT
        )

    def elsewhere(self, region: str) -> Any:
        """Return the client for reading, or one like it for another region."""
        if region == self.region:
            return self.reading
        return self.hook.get_client_type(region_name=region)

    @property
    def region(self) -> str:
        """The region of the clients, also where only boto3's own defaults name it."""
        return str(self.reading.meta.region_name)

    @cached_property
    def _session(self) -> Any:
        # One for all, since each session of a role that is assumed asks for credentials of its own.
        return self.hook.get_session(region_name=self._region or self.hook.region_name)

    def _client(self, **config: Any) -> Any:
        from botocore.config import Config  # type: ignore[import-untyped]

        hook = self.hook
        return self._session.client(
            hook.service_name,
            endpoint_url=hook.conn_config.get_service_endpoint_url(service_name=hook.service_name),
            config=hook.config.merge(Config(**config)),
            verify=hook.verify,
        )

    def renew(self) -> None:
        """Make hook, session and clients anew at the next use, with credentials that are fetched then."""
        _log.info("fetching credentials again for AWS connection %r", self.hook.aws_conn_id)
        self.close()

    def close(self) -> None:
        """Let go of all connections."""
        for name in ("reading", "sending", "stopping", "_session", "hook"):
            made = vars(self).pop(name, None)
            if name not in ("_session", "hook") and made is not None:
                made.close()
