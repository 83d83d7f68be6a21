# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Fetch many items at once in an `async def` task, and save which of them are done.

What happens when the task is killed: the next try fetches what is not in the saved set. (A set: "all up to
number n" would skip those still on their way.) It is saved every `save_every` seconds at most; what came in
since is fetched again: *at least* once, and its file, written whole, is replaced. A user's clear starts
afresh, see paginated_api.py. `aget` and `aset` leave the event loop free, which `get` and `set` would block;
airflow-resumable adds them on Airflow 3.3. To try it: python -m airflow_resumable.testing.pages --port 8766
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from airflow.sdk import DAG, task

PARAMS = {"url": "http://127.0.0.1:8766", "folder": "/tmp/items", "items": 100, "at_once": 8, "save_every": 2}
with DAG("async_checkpoint", schedule=None, catchup=False, max_active_runs=1, params=PARAMS, doc_md=__doc__):

    @task(retries=3, retry_delay=timedelta(seconds=2))
    async def fetch(params: Any = None, ti: Any = None, task_state_store: Any = None) -> int:
        """Fetch the items that no earlier try has fetched; return how many there are in all."""
        saved = await task_state_store.aget("fetched", {})
        done = set(saved["items"]) if saved.get("max_tries") == ti.max_tries else set()
        todo = iter([n for n in range(params["items"]) if n not in done])
        stop = asyncio.get_running_loop().create_future()

        async def save() -> None:  # the one writer: of two, the slower would undo what the other saved
            last: Any = ()
            while not last:
                last, _ = await asyncio.wait([stop], timeout=params["save_every"])
                await task_state_store.aset("fetched", {"items": sorted(done), "max_tries": ti.max_tries})

        async def work(client: httpx.AsyncClient) -> None:
            for n in todo:  # shared by all workers: whoever is free takes the next
                reply = (await client.get(f"/items/{n}", timeout=30)).raise_for_status()
                part = Path(params["folder"], f"{n}.part")
                part.write_bytes(reply.content)
                part.replace(part.with_suffix(".json"))
                done.add(n)
                if saving.done():
                    saving.result()  # the store's error: to go on unsaved would be in vain

        Path(params["folder"]).mkdir(parents=True, exist_ok=True)
        saving = asyncio.create_task(save())
        try:
            async with httpx.AsyncClient(base_url=params["url"]) as client, asyncio.TaskGroup() as workers:
                for _ in range(params["at_once"]):
                    workers.create_task(work(client))
        finally:  # what is done is saved, after an error too
            stop.set_result(None)
            await saving
        return len(done)

    fetch()
