# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The provider's extra links, there from the moment the job exists.

The provider pushes what a link is made of, and Airflow puts the URL in its place when the task has ended.
Here the URL is pushed at once, under the same key.
See https://airflow.apache.org/docs/apache-airflow/stable/howto/define-extra-link.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.google.cloud.links.base import BaseGoogleLink

from airflow_resumable.operators import _bigquery_parent as _parent

if TYPE_CHECKING:
    from airflow.sdk import Context

_parent.check(BaseGoogleLink, ("_format_link",))


class _Pusher:
    """A task instance that pushes URLs where the provider pushes what they are made of."""

    def __init__(self, ti: Any, links: Iterable[Any]) -> None:
        self._ti = ti
        self._links = {link.key: link for link in links if isinstance(link, BaseGoogleLink)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ti, name)

    def xcom_push(self, key: str, value: Any, **more: Any) -> None:
        """Push a value, a link's as its URL."""
        link: Any = self._links.get(key)
        if link is not None and isinstance(value, Mapping):
            value = link._format_link(**value) or value
        self._ti.xcom_push(key=key, value=value, **more)


def showing(context: Context, links: Iterable[Any]) -> Context:
    """Return a context in which the provider's links are pushed as URLs."""
    return cast("Context", {**context, "ti": _Pusher(context["ti"], links)})
