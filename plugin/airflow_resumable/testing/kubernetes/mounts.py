# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What stands in for a container's own file system and process list: other words in its command.

A container of the node stand-in is a plain process of this host, so a volume's mount path is no path there.
Wherever a mount path appears in a command, an argument, a variable or what is typed into an exec, the
volume's real folder is put in its place. And the two commands that ask for a container's own processes, with
which the Kubernetes provider ends its XCom sidecar, are given that container's process instead: here they
would find every shell of the host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# https://github.com/apache/airflow/blob/main/providers/cncf/kubernetes/src/airflow/providers/cncf/kubernetes/utils/pod_manager.py
_OWN_SHELLS = re.compile(r"\$\(pgrep -u \$\(id -u\) -f 'sh'\)")
_OWN_PROCESSES = "/proc/[0-9]*/"


class Mounts:
    """The mounts of one container.

    Args:
        folder: The pod's folder.
        container: The container, as in the pod's spec.
        volumes: The pod's volumes, likewise.
    """

    def __init__(
        self, folder: Path, container: Mapping[str, Any], volumes: Sequence[Mapping[str, Any]]
    ) -> None:
        kinds = {"emptyDir", "configMap", "secret"}
        known = {volume["name"] for volume in volumes if kinds & volume.keys()}
        places = {
            mount["mountPath"].rstrip("/"): str(folder / "volumes" / mount["name"])
            for mount in container.get("volumeMounts") or ()
            if mount["name"] in known
        }
        # The longest first: one may lie within another.
        self._places = dict(sorted(places.items(), key=lambda pair: -len(pair[0])))

    def spell(self, text: str) -> str:
        """Return a text with real folders in place of mount paths."""
        for path, place in self._places.items():
            text = re.sub(rf"{re.escape(path)}(?![\w-])", place, text)
        return text

    def typed(self, text: str, pid: int) -> str:
        """Return what is typed into an exec as it has to be on this host.

        Args:
            text: The input.
            pid: The container's process.
        """
        return _OWN_SHELLS.sub(str(pid), self.spell(text)).replace(_OWN_PROCESSES, f"/proc/{pid}/")
