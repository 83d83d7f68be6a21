# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The provider's hook, whose requests have an end."""

from __future__ import annotations

from typing import Any

from airflow.providers.google.cloud.hooks.bigquery import BigQueryHook
from requests.adapters import HTTPAdapter

from airflow_resumable.operators._bigquery_jobs import REQUEST_LIMIT


class _Limit(HTTPAdapter):
    """Gives a request a time-out that has none: the hook submits without, and would wait for ever."""

    def send(self, request: Any, stream: bool = False, timeout: Any = None, *rest: Any, **more: Any) -> Any:
        """Send a request."""
        return super().send(request, stream, timeout or REQUEST_LIMIT, *rest, **more)


class LimitedHook(BigQueryHook):
    """`BigQueryHook` whose clients wait for an answer for `REQUEST_LIMIT` seconds, unless told otherwise."""

    def get_client(self, *args: Any, **kwargs: Any) -> Any:
        """Return an authenticated client."""
        client: Any = super().get_client(*args, **kwargs)
        for scheme in ("https://", "http://"):
            # Another one may be there, for certificates of a client's own.
            if type(client._http.get_adapter(scheme)) is HTTPAdapter:
                client._http.mount(scheme, _Limit())
        return client
