# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of a Kubernetes control plane on this host."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from airflow_resumable.testing.errors import SystemUnavailable

REMEDY = (
    "build the control plane once with scripts/kubernetes_control_plane.sh (Debian 12, as root), or name a "
    "cluster by AIRFLOW_RESUMABLE_KUBECONFIG"
)


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the programs are."""

    etcd: Path
    api_server: Path
    controller_manager: Path


def folder() -> Path:
    """Return where `scripts/kubernetes_control_plane.sh` keeps what it builds."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser() / "airflow-resumable" / "kubernetes"


def find_programs() -> Programs:
    """Return the programs.

    Raises:
        SystemUnavailable: One of them isn't here; says how to get it.
    """
    etcd = shutil.which("etcd")
    api_server, controller_manager = (
        folder() / name for name in ("kube-apiserver", "kube-controller-manager")
    )
    for program in (api_server, controller_manager):
        if not os.access(program, os.X_OK):
            raise SystemUnavailable(f"no {program}: {REMEDY}")
    if etcd is None:
        raise SystemUnavailable(f"no etcd on PATH: {REMEDY}")
    return Programs(Path(etcd), api_server, controller_manager)
