# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The users of a test cluster: one who may do everything, and some who may do what a test grants."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path

ADMIN = "admin"
NODE = "stand-in-node"
_MASTERS = frozenset({ADMIN, NODE, "stand-in-controllers"})
ORDINARY = ("ann", "ben", "cleo", "dan", "eve", "finn")
"""Users who may do nothing until a test grants it."""


class Users:
    """Names and tokens, and the kubeconfig file of each.

    Args:
        folder: Where the files are kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tokens = {name: secrets.token_hex(16) for name in (*sorted(_MASTERS), *ORDINARY)}

    def write_tokens(self) -> Path:
        """Write the file that the API server reads, and return its path.

        See https://kubernetes.io/docs/reference/access-authn-authz/authentication/#static-token-file
        """
        file = self._folder / "tokens.csv"
        lines = [
            f'{token},{name},{name},"{"system:masters" if name in _MASTERS else ""}"'
            for name, token in self.tokens.items()
        ]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        file.chmod(0o600)
        return file

    def kubeconfig(self, user: str, server: str, certificate: Path, namespace: str = "default") -> Path:
        """Write a user's kubeconfig file for one address of the API server, and return its path.

        Raises:
            ValueError: There is no such user.
        """
        if user not in self.tokens:
            raise ValueError(f"user={user!r} is not known; known: {', '.join(self.tokens)}")
        authority = base64.b64encode(certificate.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": server, "certificate-authority-data": authority}}
            ],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [
                {"name": "test", "context": {"cluster": "test", "user": user, "namespace": namespace}}
            ],
            "current-context": "test",
        }
        file = self._folder / f"kubeconfig-{user}-{server.rsplit(':', 1)[-1]}-{namespace}.yaml"
        # JSON is YAML too.
        file.write_text(json.dumps(config, indent=1), encoding="utf-8")
        file.chmod(0o600)
        return file
