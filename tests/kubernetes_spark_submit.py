# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for spark-submit to Kubernetes: makes a driver pod as Spark does, without a JVM.

Run as a program. It makes the pod first and its ConfigMap second, as Spark does, and prints what Spark prints
of a refusal. The application argument is the shell script that the driver runs. Tests with the real
spark-submit are in tests/conformance.

Environment:
    STAND_IN_SERVER, STAND_IN_CERTIFICATE, STAND_IN_TOKEN: The way to the API server.
    STAND_IN_SIDECARS: More containers, as JSON.
    STAND_IN_DIES: If set, it fails between pod and ConfigMap once, and removes the file of that name.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

_LABEL = "spark.kubernetes.driver.label."
_MAP = "spark-drv-conf-map"


def main(words: list[str]) -> int:
    """Submit."""
    conf = dict(two.split("=", 1) for one, two in pairwise(words) if one == "--conf")
    namespace, name = conf["spark.kubernetes.namespace"], conf["spark.kubernetes.driver.pod.name"]
    map_name = f"{name[:40]}-{_MAP}".strip("-")
    pod = {
        "metadata": {
            "name": name,
            "labels": {
                key.removeprefix(_LABEL): value for key, value in conf.items() if key.startswith(_LABEL)
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "spark-kubernetes-driver",
                    "image": "any",
                    "command": ["sh", "-c", words[-1]],
                    "volumeMounts": [{"name": "spark-conf-volume-driver", "mountPath": "/opt/spark/conf"}],
                },
                *json.loads(os.environ.get("STAND_IN_SIDECARS", "[]")),
            ],
            "volumes": [{"name": "spark-conf-volume-driver", "configMap": {"name": map_name}}],
        },
    }
    path = f"/api/v1/namespaces/{namespace}"
    try:
        post(f"{path}/pods", pod)
    except urllib.error.HTTPError as error:
        print(f"Exception in thread: Failure executing: POST. Message: {error.read().decode()}")
        return 1
    dies = Path(os.environ.get("STAND_IN_DIES", "/nowhere"))
    if dies.exists():
        dies.unlink()
        return 1
    post(f"{path}/configmaps", {"metadata": {"name": map_name}, "data": {"spark.properties": ""}})
    return 0


def post(path: str, body: dict[str, Any]) -> None:
    """Send an object to the API server; one that is there already is an error."""
    headers = {
        "Authorization": f"Bearer {os.environ['STAND_IN_TOKEN']}",
        "Content-Type": "application/json",
    }
    server = os.environ["STAND_IN_SERVER"]
    request = urllib.request.Request(f"{server}{path}", json.dumps(body).encode(), headers, method="POST")
    context = ssl.create_default_context(cafile=os.environ["STAND_IN_CERTIFICATE"])
    urllib.request.urlopen(request, context=context, timeout=20).close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
