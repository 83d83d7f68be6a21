# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes cluster on this host: real etcd, API server and controllers, and a stand-in for the node."""

from __future__ import annotations

import itertools
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx
import psutil

from airflow_resumable.testing.errors import StackError
from airflow_resumable.testing.kubernetes import parts
from airflow_resumable.testing.kubernetes.audit import Audit
from airflow_resumable.testing.kubernetes.programs import Programs, find_programs
from airflow_resumable.testing.kubernetes.users import ADMIN, NODE, Users
from airflow_resumable.testing.ports import free_ports
from airflow_resumable.testing.processes import Managed, ProcessTree

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

    from airflow_resumable.testing.kubernetes.proxy import FaultProxy

_PORTS = ("etcd", "peer", "api", "controllers", "node")


class KubernetesCluster:
    """An API server on a free port of 127.0.0.1, its controllers, and one node.

    The API server, etcd and the controllers (Jobs, garbage collection, namespaces) are Kubernetes' own, of
    version 1.20. The node is a stand-in, `airflow_resumable.testing.kubernetes.node`: it runs each container
    as a process of this host and writes the pods' status as a kubelet would; it knows no images.

    Args:
        work_dir: Logs, data, kubeconfig files and the pods' folders.
        start_timeout: Seconds until it must be ready.
        environment: More variables for the containers' processes (``SPARK_HOME`` for Spark's driver).

    Attributes:
        audit: The API server's audit log.
        ports: The port of each part.

    Raises:
        SystemUnavailable: The programs aren't here; one line that says how to get them.
        StackError: A part of it died or wasn't ready in time, with the end of its log.
    """

    def __init__(
        self,
        work_dir: Path,
        *,
        start_timeout: float = 90.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.work_dir = work_dir.resolve()
        self.ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self._start_timeout = start_timeout
        self._environment = dict(environment or {})
        self._tree = ProcessTree(self.work_dir / "processes")
        self._parts: dict[str, Managed] = {}
        self._names = itertools.count(1)
        self._http: httpx.Client | None = None
        self._pki = self.work_dir / "pki"
        self._proxies: list[FaultProxy] = []
        self.audit = Audit(self.work_dir / "audit.log")

    @property
    def url(self) -> str:
        """Base URL of the API server."""
        return f"https://127.0.0.1:{self.ports['api']}"

    @property
    def certificate(self) -> Path:
        """The API server's certificate, which signs itself."""
        return self._pki / "apiserver.crt"

    @property
    def key(self) -> Path:
        """The certificate's private key."""
        return self._pki / "apiserver.key"

    def __enter__(self) -> Self:
        """Start it and wait until it runs pods."""
        programs = find_programs()
        for folder in (self._pki, self.work_dir / "pods"):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start(programs)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything, the pods' processes included."""
        self.close()

    def close(self) -> None:
        """Stop every process; a second call does nothing."""
        while self._proxies:
            self._proxies.pop().close()
        self._tree.close()
        self._parts.clear()
        if self._http is not None:
            self._http.close()

    def kubeconfig(self, user: str = ADMIN, *, namespace: str = "default", server: str | None = None) -> Path:
        """Return the path of a user's kubeconfig file.

        Args:
            user: ``admin``, who may do everything, or one of `users.ORDINARY`, who may do what is granted.
            namespace: The context's default.
            server: Another address than the API server's own: a proxy's.
        """
        return self._users.kubeconfig(user, server or self.url, self.certificate, namespace)

    def token(self, user: str = ADMIN) -> str:
        """Return a user's bearer token."""
        return self._users.tokens[user]

    def api(self, user: str = ADMIN) -> ApiClient:
        """Return a client of the official Python package; it is the caller's to close."""
        from kubernetes.config import new_client_from_config

        client: ApiClient = new_client_from_config(str(self.kubeconfig(user)))
        return client

    def request(self, method: str, path: str, body: Any = None, **query: str) -> dict[str, Any]:
        """Ask the API server as a user who is not in the audit log's counts.

        Raises:
            httpx.HTTPStatusError: It answered with an error.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        assert self._http is not None
        answer = self._http.request(
            method,
            path,
            params=query,
            content=None if body is None else json.dumps(body),
            headers={"Content-Type": kind},
        )
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def namespace(self, prefix: str = "test") -> str:
        """Make a namespace of the caller's own, and return its name."""
        name = f"{prefix}-{next(self._names)}-{uuid.uuid4().hex[:6]}"
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def grant(self, user: str, namespace: str, rules: Iterable[Mapping[str, Sequence[str]]]) -> None:
        """Allow a user exactly this within a namespace.

        Args:
            user: One of `users.ORDINARY`.
            namespace: The namespace.
            rules: Each with ``apiGroups``, ``resources`` and ``verbs``, as in a Role.
        """
        base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        role = {"metadata": {"name": user}, "rules": [dict(rule) for rule in rules]}
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        for kind, body in (("roles", role), ("rolebindings", binding)):
            found = self._http_or_fail().get(f"{base}/{kind}/{user}")
            if found.status_code == 200:
                self.request("PUT", f"{base}/{kind}/{user}", body)
            else:
                self.request("POST", f"{base}/{kind}", body)

    def pods(self, namespace: str, **labels: str) -> list[dict[str, Any]]:
        """Return the pods of a namespace that carry these labels."""
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        found = self.request("GET", f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
        items: list[dict[str, Any]] = found["items"]
        return items

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a pod, or None when there is none."""
        try:
            return self.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        except httpx.HTTPStatusError as error:
            if error.response.status_code == 404:
                return None
            raise

    def wait_for_pod(
        self, namespace: str, name: str, phases: set[str] | None = None, timeout: float = 60.0
    ) -> dict[str, Any] | None:
        """Wait until a pod is in one of these phases, or gone where `phases` is empty.

        Raises:
            TimeoutError: It isn't; the message has its status.
        """
        phases = {"Running"} if phases is None else phases
        deadline = time.monotonic() + timeout
        while True:
            found = self.pod(namespace, name)
            if (found is None and not phases) or (found and found["status"].get("phase") in phases):
                return found
            if time.monotonic() > deadline:
                status = found["status"] if found else "gone"
                raise TimeoutError(f"pod {namespace}/{name} is not {phases or 'gone'}: {status}")
            self._pause(0.1)

    def evict(self, namespace: str, name: str) -> None:
        """Have the node evict a pod for want of memory: its processes are killed, the pod stays, Failed."""
        self._node("POST", f"evict/{namespace}/{name}")

    def drain(self, namespace: str) -> None:
        """Delete the pods of a namespace by the eviction API, as ``kubectl drain`` does."""
        for pod in self.pods(namespace):
            name = pod["metadata"]["name"]
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
            try:
                self.request("POST", path, {"metadata": {"name": name, "namespace": namespace}})
            except httpx.HTTPStatusError as error:
                # It has ended by itself since the list was made.
                if error.response.status_code != 404:
                    raise

    def pause_node(self) -> None:
        """Let new pods stay Pending until `resume_node`."""
        self._node("POST", "pause")

    def resume_node(self) -> None:
        """Run pods again, those that have waited too."""
        self._node("POST", "resume")

    def proxy(self) -> FaultProxy:
        """Return a proxy in front of the API server that can be told to spoil requests; it ends with this."""
        from airflow_resumable.testing.kubernetes.proxy import FaultProxy

        proxy = FaultProxy(self.ports["api"], self.certificate, self.key)
        self._proxies.append(proxy)
        return proxy

    def processes(self) -> list[Any]:
        """List every living process of the cluster and its pods."""
        return self._tree.members()

    def kill(self, part: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill one of ``etcd``, ``kube-apiserver``, ``kube-controller-manager`` and ``node``."""
        self._parts[part].send(number)
        self._parts[part].wait(30)

    def restart_api_server(self) -> None:
        """Kill the API server and start it anew; the objects are in etcd."""
        self.kill("kube-apiserver")
        self._start_api_server(find_programs())
        self._await("kube-apiserver", self._is_ready)

    def reboot_node(self) -> None:
        """Kill the node and every container, and start the node again: pods that ran have failed then."""
        self.kill("node")
        own = {part.pid for part in self._parts.values()}
        for process in self.processes():
            if process.pid not in own:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._start_node()
        self._await("node", self._node_answers)

    def _node_answers(self) -> bool:
        try:
            self._node("POST", "resume")
        except httpx.HTTPError:
            return False
        return True

    def _http_or_fail(self) -> httpx.Client:
        assert self._http is not None
        return self._http

    def _node(self, method: str, path: str) -> None:
        url = f"https://127.0.0.1:{self.ports['node']}/stand-in/{path}"
        with httpx.Client(verify=ssl.create_default_context(cafile=str(self.certificate))) as client:
            client.request(method, url, timeout=30.0).raise_for_status()

    def _start(self, programs: Programs) -> None:
        self._users = Users(self.work_dir)
        self._make_keys()
        self._run(
            "etcd",
            programs.etcd,
            *parts.etcd(self.work_dir, self.ports),
        )
        self._start_api_server(programs)
        # The certificate is made by the API server as it starts.
        self._await("kube-apiserver", lambda: self.certificate.exists())
        self._http = httpx.Client(
            base_url=self.url,
            verify=ssl.create_default_context(cafile=str(self.certificate)),
            headers={"Authorization": f"Bearer {self._users.tokens['stand-in-controllers']}"},
            timeout=30.0,
            trust_env=False,
        )
        self._await("kube-apiserver", self._is_ready)
        self._run(
            "kube-controller-manager",
            programs.controller_manager,
            *parts.controller_manager(self.kubeconfig("stand-in-controllers"), self._pki, self.ports),
        )
        self._start_node()
        self._await("node", self._has_node)

    def _start_node(self) -> None:
        self._run(
            "node",
            Path(sys.executable),
            "-m",
            "airflow_resumable.testing.kubernetes.node",
            str(self.kubeconfig(NODE)),
            str(self.ports["node"]),
            str(self._pki),
            str(self.work_dir / "pods"),
            env={**os.environ, **self._environment},
        )

    def _start_api_server(self, programs: Programs) -> None:
        tokens = self._users.write_tokens()
        self._run(
            "kube-apiserver",
            programs.api_server,
            *parts.api_server(self.work_dir, self.ports, self._pki, tokens, self.certificate),
        )

    def _run(self, name: str, program: Path, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        environment = env or {"PATH": os.environ.get("PATH", ""), "HOME": str(self.work_dir)}
        self._parts[name] = self._tree.start(name, [program, *arguments], env=environment, cwd=self.work_dir)

    def _make_keys(self) -> None:
        for command in (
            ("genrsa", "-out", "sa.key", "2048"),
            ("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub"),
        ):
            done = subprocess.run(["openssl", *command], cwd=self._pki, capture_output=True, check=False)
            if done.returncode:
                raise StackError(f"openssl {' '.join(command)} failed: {done.stderr.decode()}")

    def _is_ready(self) -> bool:
        try:
            ready = self._http_or_fail().get("/readyz").status_code == 200
            # The namespace is made by the API server itself, a moment after it is ready.
            return ready and self._http_or_fail().get("/api/v1/namespaces/default").status_code == 200
        except httpx.HTTPError:
            return False

    def _has_node(self) -> bool:
        try:
            found = self.request("GET", "/api/v1/nodes")["items"]
        except httpx.HTTPError:
            return False
        return any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for node in found
            for condition in node["status"].get("conditions", ())
        )

    def _await(self, name: str, ready: Any) -> None:
        deadline = time.monotonic() + self._start_timeout
        while not ready():
            for part in self._parts.values():
                if not part.alive:
                    raise StackError(f"{part.name} died with exit code {part.returncode}:\n{part.tail()}")
            if time.monotonic() > deadline:
                raise StackError(
                    f"{name} was not ready within {self._start_timeout:.0f} s:\n{self._parts[name].tail()}"
                )
            self._pause(0.05)

    def _pause(self, seconds: float) -> None:
        self._tree.pause(seconds, *self._parts.values())
