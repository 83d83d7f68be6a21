# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the API server says of the running task."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    index = ti.map_index if ti.map_index is not None else -1
    states = ti.get_task_states(
        dag_id=ti.dag_id,
        task_ids=[ti.task_id],
        run_ids=[ti.run_id],
        map_index=index if index >= 0 else None,
    )
    of_run = states.get(ti.run_id, {})
    # Mapped task instances are listed as task_id_index.
    state = of_run.get(f"{ti.task_id}_{index}", of_run.get(ti.task_id))
    return NO_STATE if state is None else str(getattr(state, "value", state))
