# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Pods and Jobs as short as a test wants them."""

from __future__ import annotations

from typing import Any


def container(script: str, name: str = "base", **more: Any) -> dict[str, Any]:
    """Return a container that runs a shell script."""
    return {"name": name, "image": "any", "command": ["sh", "-c", script], **more}


def pod(name: str, *containers: dict[str, Any] | str, labels: Any = None, **spec: Any) -> dict[str, Any]:
    """Return a pod of these containers, or shell scripts, that is never restarted."""
    made = [one if isinstance(one, dict) else container(one) for one in containers]
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": made, **spec},
    }


def job(name: str, script: str, **spec: Any) -> dict[str, Any]:
    """Return a Job of one pod."""
    template = {"spec": {"restartPolicy": "Never", "containers": [container(script)]}}
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template, **spec}}
