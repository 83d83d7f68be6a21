# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One pod on the node stand-in, from its start to its last status."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from airflow_resumable.testing.kubernetes.container_run import ContainerRun, now
from airflow_resumable.testing.kubernetes.mounts import Mounts

_log = logging.getLogger("node")

_DATA_EVERY = 0.3
_RESTART_AFTER = 1.0
_ASK_EVERY = 0.3

# What Spark's images do with their first argument, see
# https://github.com/apache/spark/blob/v4.0.0/resource-managers/kubernetes/docker/src/main/dockerfiles/spark/entrypoint.sh
_SPARK_DRIVER = "driver"
_SPARK_HERE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.port": "0",
    "spark.driver.blockManager.port": "0",
    "spark.blockManager.port": "0",
    "spark.ui.enabled": "false",
}


class PodRun:
    """Runs the containers of a pod and tells the API server of them.

    Args:
        api: The connection to the API server.
        pod: The pod, when it was bound.
        folder: The pod's folder: volumes and logs.
    """

    def __init__(self, api: httpx.AsyncClient, pod: dict[str, Any], folder: Path) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        self.namespace: str = meta["namespace"]
        self.name: str = meta["name"]
        self._uid: str = meta["uid"]
        self._api = api
        self._spec = spec
        self._meta = meta
        self._folder = folder
        self._policy: str = spec.get("restartPolicy", "Always")
        self._began = now()
        self._over: dict[str, Any] | None = None
        self._grace: int | None = None
        self._gone = False
        self._telling = asyncio.Lock()
        (folder / "volumes").mkdir(parents=True, exist_ok=True)
        self.containers = [self._make(one) for one in spec["containers"]]
        self._first = [self._make(one) for one in spec.get("initContainers") or ()]

    def container(self, name: str) -> ContainerRun | None:
        """Return one of its containers."""
        return next((one for one in (*self._first, *self.containers) if one.name == name), None)

    async def run(self) -> None:
        """Run it to its end, or to its deadline."""
        seconds = self._spec.get("activeDeadlineSeconds")
        if seconds is None:
            await self._run()
            return
        timer = asyncio.create_task(self._expire(seconds))
        await self._run()
        timer.cancel()

    async def _expire(self, seconds: int) -> None:
        await asyncio.sleep(seconds)
        message = "Pod was active on the node longer than the specified deadline"
        self._over = {"phase": "Failed", "reason": "DeadlineExceeded", "message": message}
        await self._stop(int(self._spec["terminationGracePeriodSeconds"]))
        await self._tell()

    async def _run(self) -> None:
        if not await self._prepare_volumes():
            return
        for one in self._first:
            await self._run_container(one)
            if one.exit_code != 0:
                break
        else:
            await asyncio.gather(*(self._run_container(one) for one in self.containers))
        await self._tell()

    async def delete(self, grace: int) -> None:
        """End its processes as a kubelet does when the pod is being deleted, then remove it."""
        if self._grace is not None:
            if grace < self._grace:
                # Deleted once more, with less time.
                self._grace = grace
                await asyncio.sleep(grace)
                self._signal(signal.SIGKILL)
            return
        self._grace = grace
        await self._stop(grace)
        await self._tell()
        await self.remove()

    async def remove(self) -> None:
        """Take it off the API server, as a kubelet does when its processes have ended."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._uid}}
        answer = await self._ask("DELETE", path, content=json.dumps(body))
        if answer.status_code not in (200, 404, 409):
            _log.warning("pod %s could not be removed: %s", self.name, answer.text[:300])

    async def evict(self) -> None:
        """End it for want of memory."""
        self._over = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}
        await self._stop(0)
        await self._tell()

    async def lose(self) -> None:
        """Tell of a pod that ran before the node was started again."""
        if self._policy != "Never":
            await self.run()
            return
        for one in (*self._first, *self.containers):
            one.lose()
            one.ended.set()
        await self._tell()

    def vanish(self) -> None:
        """Kill what is left of a pod that is gone from the API server."""
        self._gone = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for one in (*self._first, *self.containers):
            one.stop_for_good()
            one.signal(number)

    async def _stop(self, grace: int) -> None:
        containers = [*self._first, *self.containers]
        self._signal(signal.SIGTERM)
        waits = [asyncio.create_task(one.process.wait()) for one in containers if one.process]
        if waits:
            await asyncio.wait(waits, timeout=grace)
        self._signal(signal.SIGKILL)
        await asyncio.gather(*waits)
        # Who waits for the process writes its end.
        await asyncio.gather(*(one.ended.wait() for one in containers if one.process))

    def _make(self, spec: dict[str, Any]) -> ContainerRun:
        mounts = Mounts(self._folder, spec, self._spec.get("volumes") or ())
        return ContainerRun(spec, mounts, self._folder)

    async def _variables(self, spec: Mapping[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for source in spec.get("envFrom") or ():
            for kind, key in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
                if key in source:
                    data = await self._data(kind, source[key]["name"])
                    found |= {source.get("prefix", "") + name: text for name, text in data.items()}
        for variable in spec.get("env") or ():
            origin = variable.get("valueFrom") or {}
            text = variable.get("value") or self._field((origin.get("fieldRef") or {}).get("fieldPath"))
            for kind, key in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
                if key in origin:
                    text = (await self._data(kind, origin[key]["name"])).get(origin[key]["key"], "")
            found[variable["name"]] = text
        return found

    def _field(self, path: str | None) -> str:
        known = {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self._uid,
            "status.podIP": "127.0.0.1",
            "status.hostIP": "127.0.0.1",
            "spec.nodeName": "stand-in",
        }
        return known.get(path or "", "")

    async def _prepare_volumes(self) -> bool:
        for volume in self._spec.get("volumes") or ():
            place = self._folder / "volumes" / volume["name"]
            place.mkdir(exist_ok=True)
            if "configMap" in volume:
                data = await self._data("configmaps", volume["configMap"]["name"])
            elif "secret" in volume:
                data = await self._data("secrets", volume["secret"]["secretName"])
            else:
                continue
            for name, text in data.items():
                (place / name).write_text(text, encoding="utf-8")
        return not self._is_leaving()

    def _is_leaving(self) -> bool:
        return self._gone or self._grace is not None

    async def _data(self, kind: str, name: str) -> dict[str, str]:
        path = f"/api/v1/namespaces/{self.namespace}/{kind}/{name}"
        # A kubelet waits too: Spark makes the pod before the map.
        while (answer := await self._ask("GET", path)).status_code == 404 and not self._is_leaving():
            await asyncio.sleep(_DATA_EVERY)
        if self._is_leaving():
            return {}
        data = answer.raise_for_status().json().get("data") or {}
        if kind == "secrets":
            return {key: base64.b64decode(text).decode() for key, text in data.items()}
        return dict(data)

    async def _run_container(self, one: ContainerRun) -> None:
        if not one.is_pullable:
            one.fail_to_pull()
            await self._tell()
            one.ended.set()
            return
        try:
            while not one.is_stopping:
                one.environment = await self._variables(one.spec)
                await one.start(self._command(one))
                await self._tell()
                await one.wait()
                if not one.may_restart(self._policy):
                    return
                one.back_off()
                await self._tell()
                await asyncio.sleep(_RESTART_AFTER)
                one.restarts += 1
        finally:
            one.ended.set()
            await self._tell()

    def _command(self, one: ContainerRun) -> list[str]:
        command = one.command()
        if command[0] != _SPARK_DRIVER:
            return command
        # The executors would be pods with images; here the driver runs them as threads of its own.
        here = [word for name, value in _SPARK_HERE.items() for word in ("--conf", f"{name}={value}")]
        submit = f"{os.environ.get('SPARK_HOME', '/opt/spark')}/bin/spark-submit"
        words = [word for word in command[1:] if word not in ("--deploy-mode", "client")]
        return [submit, "--master", "local[1]", "--deploy-mode", "client", *here, *words]

    async def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        while True:
            try:
                answer = await self._api.request(method, path, **more)
            except httpx.TransportError as error:
                why = f"{type(error).__name__}: {error}"
            else:
                if answer.status_code < 500:
                    return answer
                why = f"HTTP {answer.status_code}"
            _log.warning("pod %s: %s %s: %s; again in %s s", self.name, method, path, why, _ASK_EVERY)
            await asyncio.sleep(_ASK_EVERY)

    async def _tell(self) -> None:
        if self._gone:
            return
        async with self._telling:
            answer = await self._ask(
                "PATCH",
                f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/status",
                content=json.dumps({"metadata": {"uid": self._uid}, "status": self._status()}),
                headers={"Content-Type": "application/merge-patch+json"},
            )
        if answer.status_code not in (200, 404, 409):
            _log.warning("status of pod %s: %s", self.name, answer.text[:300])

    def _status(self) -> dict[str, Any]:
        phase = self._phase()
        ready = "True" if phase == "Running" else "False"
        conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": self._began}]
        conditions += [
            {"type": kind, "status": ready, "lastTransitionTime": now()}
            for kind in ("Ready", "ContainersReady")
        ]
        return {
            "phase": phase,
            "startTime": self._began,
            "podIP": "127.0.0.1",
            "hostIP": "127.0.0.1",
            "conditions": conditions,
            "containerStatuses": [one.status for one in self.containers],
            "initContainerStatuses": [one.status for one in self._first],
            **(self._over or {}),
        }

    def _phase(self) -> str:
        if any(one.exit_code for one in self._first if not one.may_restart(self._policy)):
            return "Failed"
        codes = [one.exit_code for one in self.containers]
        if all(code is not None for code in codes):
            if any(one.may_restart(self._policy) for one in self.containers):
                return "Running"
            return "Failed" if any(codes) else "Succeeded"
        return "Running" if any(one.has_started for one in self.containers) else "Pending"
