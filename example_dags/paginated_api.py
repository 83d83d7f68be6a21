# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Load a paginated HTTP API into a table, with a checkpoint after each page.

What happens when the task is killed: the next try goes on at the offset that was saved last. A page that was
written but not yet saved is loaded again (*at least* once); its rows replace those with the same id.

A user's clear starts afresh. That is a decision, made here by comparing `max_tries`, which a clear changes
and a retry doesn't: up to Airflow 3.3 a clear keeps the saved state, and there would be nothing left to load.
To try it: python -m airflow_resumable.testing.pages --port 8766
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

import httpx
from airflow.sdk import DAG, task
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_exponential


def may_pass(error: BaseException) -> bool:
    """Whether the page may well come when asked for again: after a 503 or a 429, not after a 404."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.is_server_error or error.response.status_code == 429
    return isinstance(error, httpx.TransportError | EOFError)


@retry(retry=retry_if_exception(may_pass), wait=wait_exponential(), stop=stop_after_attempt(5), reraise=True)
def get_page(url: str, offset: int) -> Any:
    """Return one page: its rows, and where the next one begins (None: this is the last)."""
    reply = httpx.get(f"{url}/rows", params={"offset": offset, "limit": 10}, timeout=30)
    page = reply.raise_for_status().json()
    if not page["rows"] and page["next"] is not None:
        raise EOFError(f"{reply.url} is empty, yet says there is more: to stop here would lose rows")
    return page


PARAMS = {"url": "http://127.0.0.1:8766", "table": "/tmp/paginated_api.sqlite"}
with DAG("paginated_api", schedule=None, catchup=False, max_active_runs=1, params=PARAMS, doc_md=__doc__):

    @task(retries=3, retry_delay=timedelta(seconds=2))
    def load(params: Any = None, ti: Any = None, task_state_store: Any = None) -> int:
        """Load the rows that no earlier try has loaded; return how many there are in all."""
        saved = task_state_store.get("page", {})
        offset: int = saved["offset"] if saved.get("max_tries") == ti.max_tries else 0
        while True:
            page = get_page(params["url"], offset)
            with closing(sqlite3.connect(params["table"])) as table, table:  # one transaction
                table.execute("CREATE TABLE IF NOT EXISTS api (id INTEGER PRIMARY KEY, name, amount)")
                table.executemany("REPLACE INTO api VALUES (:id, :name, :amount)", page["rows"])
            offset += len(page["rows"])  # by what came, not by the limit: a page may be short
            task_state_store.set("page", {"offset": offset, "max_tries": ti.max_tries})
            if page["next"] is None:
                return offset

    load()
