# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Pods on the test cluster: the operators that make them, and an operator whose process is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

from airflow_resumable.operators.kubernetes import ResumableKubernetesPodOperator
from airflow_resumable.testing.task_tries import TaskTries
from tests.kubernetes_service import KubernetesService, until

PATIENCE = 60.0
PARENTS = {"get_logs": True, "log_events_on_startup": True, "on_finish_action": "delete_pod"}
"""Defaults of the provider's operator that `pod_arguments` has otherwise."""
RESULT = "mkdir -p /airflow/xcom; echo '{\"rows\": 7}' > /airflow/xcom/return.json"


def pod_arguments(
    service: KubernetesService, outcome: str = "succeeds", user: str = "admin", **more: Any
) -> dict[str, Any]:
    """Return the arguments of an operator, ours or the provider's.

    Args:
        service: Where the pod is to run.
        outcome: ``runs`` (until the gate is opened), ``succeeds`` or ``fails``.
        user: Who asks the API server.
        more: Other arguments.
    """
    commands = {"runs": until(service.gate), "succeeds": ["true"], "fails": ["sh", "-c", "exit 3"]}
    return {
        "task_id": "task",
        "name": "work",
        "namespace": service.namespace,
        "image": "any",
        "cmds": commands[outcome],
        "config_file": service.kubeconfig(user),
        "kubernetes_conn_id": None,
        "get_logs": False,
        "log_events_on_startup": False,
        "log_events_on_failure": False,
        "on_finish_action": "keep_pod",
        "termination_grace_period": 1,
        "startup_check_interval_seconds": 0.05,
        "base_container_status_polling_interval": 0.05,
        "poll_interval": 0.05,
        "retries": 2,
        **more,
    }


def make_pod(
    service: KubernetesService, outcome: str = "succeeds", user: str = "admin", **more: Any
) -> ResumableKubernetesPodOperator:
    """Make an operator of ours."""
    return ResumableKubernetesPodOperator(**pod_arguments(service, outcome, user, **more))


def stock_pod(service: KubernetesService, outcome: str = "succeeds", **more: Any) -> KubernetesPodOperator:
    """Make the provider's operator."""
    return KubernetesPodOperator(**pod_arguments(service, outcome, **more))


def ours(
    service: KubernetesService, cmds: list[str], user: str = "admin", **more: Any
) -> ResumableKubernetesPodOperator:
    """Make an operator of ours that runs a command, as a Dag would."""
    return make_pod(service, user=user, **{"cmds": cmds, **PARENTS, **more})


def stock(service: KubernetesService, cmds: list[str], **more: Any) -> KubernetesPodOperator:
    """Make the provider's operator that runs a command, as a Dag would."""
    return stock_pod(service, **{"cmds": cmds, **PARENTS, **more})


def await_that(holds: Callable[[], Any], what: str) -> Any:
    """Wait until something at the API server holds, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:.0f} s"
        time.sleep(0.05)
    return found


def kill_at_work(
    tries: TaskTries, make: Callable[[], Any], service: KubernetesService, then: Callable[[], Any]
) -> None:
    """Run the next try in a process of its own and kill that, once its pod runs and `then` holds."""

    def live() -> None:
        operator = make()
        operator.execute(tries.context(operator))
        os._exit(0)

    with warnings.catch_warnings():
        # From Python 3.12 on a fork of a process with threads warns; this child only runs the try.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = multiprocessing.get_context("fork").Process(target=live)
        process.start()
    try:
        await_that(lambda: running_pods(service) and then(), "a pod runs and is on record")
    finally:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        tries.try_number += 1


def running_pods(service: KubernetesService) -> list[dict[str, Any]]:
    """Return the pods that run."""
    return [one for one in service.cluster.pods(service.namespace) if one["status"].get("phase") == "Running"]
