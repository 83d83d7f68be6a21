# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the API server says of the running task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context


NO_STATE = "none"
"""What `task_state` calls a task instance that has no state: cleared, and not scheduled yet."""


def task_state(context: Context) -> str:
    """Return the state that the server holds for the context's task instance, `NO_STATE` for none.

    Asked through the supervisor (``RuntimeTaskInstance.get_task_states``), so never call it from a
    signal handler that interrupted another call to the supervisor.
    """
    ti = context["ti"]
    return _state(ti.get_task_states, ti.dag_id, ti.run_id, ti.task_id, ti.map_index)


def state_of(scope: Mapping[str, Any]) -> str:
    """Return the state that the server holds for a task instance, asked from a triggerer.

    Args:
        scope: dag_id, run_id, task_id and map_index.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    ask = RuntimeTaskInstance.get_task_states
    return _state(ask, scope["dag_id"], scope["run_id"], scope["task_id"], scope["map_index"])


def _state(ask: Callable[..., Any], dag_id: str, run_id: str, task_id: str, map_index: int | None) -> str:
    index = map_index if map_index is not None else -1
    states = ask(dag_id=dag_id, task_ids=[task_id], run_ids=[run_id], map_index=index if index >= 0 else None)
    of_run = states.get(run_id, {})
    # Mapped task instances are listed as task_id_index.
    state = of_run.get(f"{task_id}_{index}", of_run.get(task_id))
    return NO_STATE if state is None else str(getattr(state, "value", state))
