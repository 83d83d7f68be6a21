# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The API server's own audit log: what it was asked, by whom, and what it answered."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_resumable.testing.kubernetes.users import ADMIN, NODE, ORDINARY

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "users": ["stand-in-controllers", "system:apiserver"]},
        {"level": "None", "nonResourceURLs": ["*"]},
        {
            "level": "RequestResponse",
            "verbs": ["create", "delete", "deletecollection", "patch", "update"],
            "resources": [
                {"group": "", "resources": ["pods", "pods/eviction", "services", "configmaps"]},
                {"group": "batch", "resources": ["jobs"]},
            ],
        },
        {"level": "Metadata"},
    ],
}
"""See https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/."""

_CLIENTS = frozenset({ADMIN, *ORDINARY})


@dataclass(frozen=True, slots=True)
class Request:
    """One request that the API server has answered.

    Attributes:
        verb: As RBAC names it: get, list, watch, create, update, patch, delete, deletecollection.
        resource: The plural, with the subresource after a slash: ``pods/log``.
        namespace, name, uid: Of the object; of a created one as the server named it.
        user: Who asked.
        agent: The client's ``User-Agent``.
        code: The HTTP status.
        uri: Path and query.
        sent, answer: The bodies, where the audit policy keeps them.
    """

    verb: str
    resource: str
    namespace: str
    name: str
    uid: str
    user: str
    agent: str
    code: int
    uri: str
    sent: dict[str, Any]
    answer: dict[str, Any]


class Audit:
    """The log as the oracle of a test: it counts what clients did, not what the node or controllers did.

    Args:
        file: The log.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self._known: list[Request] = []
        self._reading = threading.Lock()

    def requests(
        self,
        verb: str | None = None,
        resource: str | None = None,
        namespace: str | None = None,
        *,
        name: str | None = None,
        user: str | None = None,
        code: int | None = None,
        by_node: bool = False,
    ) -> list[Request]:
        """Return what was asked, oldest first, as far as it has each of the given values.

        Args:
            verb: See `Request`, as for the next five.
            resource: Likewise.
            namespace: Likewise.
            name: Likewise.
            user: Likewise.
            code: Likewise.
            by_node: Whether what the stand-in for the node asked counts too.
        """
        users = _CLIENTS | ({NODE} if by_node else set())
        wanted = {
            "verb": verb,
            "resource": resource,
            "namespace": namespace,
            "name": name,
            "user": user,
            "code": code,
        }
        given = {key: value for key, value in wanted.items() if value is not None}
        return [
            one
            for one in self._all()
            if (one.user in users or one.user == user)
            and all(getattr(one, key) == value for key, value in given.items())
        ]

    def created(self, resource: str, namespace: str) -> list[Request]:
        """Return the requests that made an object."""
        return self.requests("create", resource, namespace, code=201)

    def deleted(self, resource: str, namespace: str) -> list[Request]:
        """Return the delete requests, whatever was answered."""
        verbs = ("delete", "deletecollection")
        return [one for one in self.requests(None, resource, namespace) if one.verb in verbs]

    def count(self, verb: str, resource: str, namespace: str, **more: Any) -> int:
        """Return how many requests there were."""
        return len(self.requests(verb, resource, namespace, **more))

    def _all(self) -> list[Request]:
        with self._reading:
            if self._file.exists():
                with self._file.open("rb") as log:
                    log.seek(self._read)
                    for line in log:
                        # The last line may be half written.
                        if line.endswith(b"\n"):
                            self._known.append(_request(json.loads(line)))
                            self._read += len(line)
            return list(self._known)


def _request(event: dict[str, Any]) -> Request:
    about = event.get("objectRef") or {}
    answer = event.get("responseObject") or {}
    made = answer.get("metadata") or {}
    resource = about.get("resource", "")
    return Request(
        verb=event["verb"],
        resource=f"{resource}/{about['subresource']}" if about.get("subresource") else resource,
        namespace=about.get("namespace", ""),
        name=about.get("name") or made.get("name", ""),
        uid=made.get("uid") or about.get("uid", ""),
        user=event["user"]["username"],
        agent=event.get("userAgent", ""),
        code=int((event.get("responseStatus") or {}).get("code", 0)),
        uri=event["requestURI"],
        sent=event.get("requestObject") or {},
        answer=answer,
    )
