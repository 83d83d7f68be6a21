# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One pod, through the provider's operator (`stock`) and through ours (`ours`).

Each case of the demo is a run of one of these Dags. The run's conf has, for each of the two tasks, the
namespace, the kubeconfig file and the file whose appearance ends the pod. Finished pods are kept, so that
every delete request is a cancel.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG

from airflow_resumable.jobs.crashpoints import reach
from airflow_resumable.operators.kubernetes import ResumableKubernetesPodOperator

if TYPE_CHECKING:
    from airflow.providers.cncf.kubernetes.utils.pod_manager import PodManager


class StockKubernetesPodOperator(KubernetesPodOperator):
    """The provider's operator, with nothing added but the two points at which the demo kills."""

    @cached_property
    def pod_manager(self) -> PodManager:
        """The provider's, which says that a pod was created and that it runs."""
        manager: PodManager = super().pod_manager
        create, read, wait = manager.create_pod, manager.read_pod, manager.await_container_completion

        def create_and_reach(pod: Any) -> Any:
            created = create(pod)
            reach("after_accept")
            return created

        def read_and_reach(pod: Any) -> Any:
            found = read(pod)
            if found.status.phase == "Running":
                reach("mid_poll")
            return found

        def wait_and_reach(*args: Any, **options: Any) -> None:
            # The loop that waits for the container is one method; it reads the pod once a round.
            setattr(manager, "read_pod", read_and_reach)  # noqa: B010
            wait(*args, **options)

        setattr(manager, "create_pod", create_and_reach)  # noqa: B010
        setattr(manager, "await_container_completion", wait_and_reach)  # noqa: B010
        return manager


def _arguments(side: str) -> dict[str, Any]:
    conf = f"dag_run.conf['{side}']"
    return {
        "task_id": side,
        "name": "demo",
        "image": "any",
        "namespace": f"{{{{ {conf}['namespace'] }}}}",
        "config_file": f"{{{{ {conf}['kubeconfig'] }}}}",
        "kubernetes_conn_id": None,
        "cmds": ["sh", "-c", f"while [ ! -e {{{{ {conf}['gate'] }}}} ]; do sleep 0.3; done"],
        "get_logs": False,
        "on_finish_action": "keep_pod",
        "startup_check_interval_seconds": 1,
    }


def _make_dag(dag_id: str, **task: Any) -> DAG:
    with DAG(
        dag_id,
        schedule=None,
        max_active_runs=100,
        max_active_tasks=100,
        default_args={"retries": 2, "retry_delay": timedelta(seconds=1), **task},
    ) as dag:
        StockKubernetesPodOperator(**_arguments("stock"))
        ResumableKubernetesPodOperator(**_arguments("ours"))
    return dag


demo_kubernetes = _make_dag("demo_kubernetes")
demo_kubernetes_time_out = _make_dag("demo_kubernetes_time_out", execution_timeout=timedelta(seconds=15))
