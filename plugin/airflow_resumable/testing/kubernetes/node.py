# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a Kubernetes node: it takes every pod and runs its containers as processes of this host.

It knows no images, limits or networks. What it writes of a pod's status is ours, after what a kubelet does:
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/

Run as ``python -m airflow_resumable.testing.kubernetes.node KUBECONFIG PORT PKI FOLDER``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import ssl
import sys
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from airflow_resumable.testing.kubernetes.pod_run import PodRun

NAME = "stand-in"

_log = logging.getLogger("node")


class Node:
    """The node: watches pods, binds them to itself, runs them.

    Args:
        api: The connection to the API server.
        port: Where this node's own server listens.
        folder: Where each pod gets a folder.
    """

    def __init__(self, api: httpx.AsyncClient, port: int, folder: Path) -> None:
        self.api = api
        self.runs: dict[str, PodRun] = {}
        self._port = port
        self._folder = folder
        self._paused = False
        self._waiting: dict[str, dict[str, Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        """Take care of every pod until cancelled."""
        await self._register()
        while True:
            try:
                await self._watch_once()
            except (httpx.HTTPError, OSError, ValueError) as error:
                _log.warning("watching pods: %s: %s; again", type(error).__name__, error)
                await asyncio.sleep(0.5)

    async def pause(self) -> None:
        """Bind no more pods."""
        self._paused = True

    async def resume(self) -> None:
        """Bind pods again."""
        self._paused = False
        waiting, self._waiting = self._waiting, {}
        for pod in waiting.values():
            await self._bind(pod)

    def find(self, namespace: str, name: str) -> PodRun | None:
        """Return the pod that has this name now, or had it last."""
        found = [run for run in self.runs.values() if (run.namespace, run.name) == (namespace, name)]
        return found[-1] if found else None

    async def _register(self) -> None:
        made = await self.api.post("/api/v1/nodes", json={"metadata": {"name": NAME}})
        if made.status_code not in (201, 409):
            made.raise_for_status()
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "StandIn", "message": "a stand-in"}
        room = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
        status = {
            "capacity": room,
            "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "conditions": [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}],
        }
        await self._patch(f"/api/v1/nodes/{NAME}/status", {"status": status})
        await self._patch(f"/api/v1/nodes/{NAME}", {"spec": {"taints": None}})

    async def _patch(self, path: str, body: dict[str, Any]) -> None:
        answer = await self.api.patch(
            path, content=json.dumps(body), headers={"Content-Type": "application/merge-patch+json"}
        )
        answer.raise_for_status()

    async def _watch_once(self) -> None:
        listed = (await self.api.get("/api/v1/pods")).raise_for_status().json()
        alive = {pod["metadata"]["uid"] for pod in listed["items"]}
        for uid in self.runs.keys() - alive:
            self.runs[uid].vanish()
        for pod in listed["items"]:
            await self._take(pod)
        query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
        timeout = httpx.Timeout(30.0, read=None)
        async with self.api.stream("GET", "/api/v1/pods", params=query, timeout=timeout) as stream:
            stream.raise_for_status()
            async for line in stream.aiter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                if event["type"] == "DELETED":
                    self._vanish(event["object"])
                else:
                    await self._take(event["object"])

    def _vanish(self, pod: dict[str, Any]) -> None:
        self._waiting.pop(pod["metadata"]["uid"], None)
        run = self.runs.get(pod["metadata"]["uid"])
        if run is not None:
            run.vanish()

    async def _take(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        run = self.runs.get(meta["uid"])
        if run is not None:
            if meta.get("deletionTimestamp"):
                self._spawn(run.delete(int(meta.get("deletionGracePeriodSeconds") or 0)))
            return
        if not pod["spec"].get("nodeName"):
            await self._bind(pod)
        elif pod["spec"]["nodeName"] == NAME:
            run = self.runs[meta["uid"]] = PodRun(self.api, pod, self._folder / meta["uid"])
            # A pod that has a start already ran on this node before it was started again.
            if meta.get("deletionTimestamp"):
                self._spawn(run.remove())
            elif not pod["status"].get("startTime"):
                self._spawn(run.run())
            elif pod["status"].get("phase") not in ("Succeeded", "Failed"):
                self._spawn(run.lose())

    async def _bind(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        if self._paused or pod["spec"].get("nodeSelector"):
            self._waiting[meta["uid"]] = pod
            return
        answer = await self.api.post(
            f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding",
            json={
                "metadata": {"name": meta["name"], "uid": meta["uid"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NAME},
            },
        )
        if answer.status_code not in (201, 404, 409):
            _log.warning("pod %s could not be bound: %s", meta["name"], answer.text[:300])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a pod's run broke off", exc_info=task.exception())


async def _main(kubeconfig: Path, port: int, pki: Path, folder: Path) -> None:
    from airflow_resumable.testing.kubernetes.node_server import make_app

    config = json.loads(kubeconfig.read_text(encoding="utf-8"))
    certificate, key = (pki / f"apiserver.{kind}" for kind in ("crt", "key"))
    async with httpx.AsyncClient(
        base_url=config["clusters"][0]["cluster"]["server"],
        headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
        verify=ssl.create_default_context(cafile=str(certificate)),
        timeout=30.0,
        trust_env=False,
        limits=httpx.Limits(max_connections=None),
    ) as api:
        node = Node(api, port, folder)
        server = uvicorn.Server(
            uvicorn.Config(
                make_app(node),
                host="127.0.0.1",
                port=port,
                ssl_certfile=str(certificate),
                ssl_keyfile=str(key),
                log_level="warning",
                ws="websockets-sansio",
            )
        )
        await asyncio.gather(node.watch(), server.serve())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # Containers inherit what is ignored, and the XCom sidecar waits for an interrupt.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _kubeconfig, _port, _pki, _folder = sys.argv[1:]
    asyncio.run(_main(Path(_kubeconfig), int(_port), Path(_pki), Path(_folder)))
