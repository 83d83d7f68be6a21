# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster policy that puts our task state store into a task's context.

This module is the ``airflow.policy`` entry point, so ``import airflow`` imports it in every Airflow process:
nothing but the standard library and Airflow's hook marker may be imported at its top, and nothing it does
may raise.
See https://airflow.apache.org/docs/apache-airflow/stable/administration-and-deployment/cluster-policies.html
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from airflow.policies import hookimpl

_log = logging.getLogger(__name__)


# The hook stops at the first answer that isn't None, and a site's airflow_local_settings runs before entry
# points: without tryfirst a site that defines this hook too would keep ours from being called.
@hookimpl(tryfirst=True)
def get_airflow_context_vars(context: MutableMapping[str, Any]) -> None:
    """Install the guarded task state store in ``context``, right before the task's ``execute``.

    Adds no context variable: None leaves the answer to the next implementation of the hook.

    Args:
        context: The running task's own context; changed in place.
    """
    try:
        from airflow_resumable.integration.settings import enabled

        if enabled():
            from airflow_resumable.store.accessor import install

            install(context)
    except Exception:
        _log.exception(
            "airflow-resumable could not install its task state store. The task goes on with the context as "
            "Airflow made it; operators of this package look for the store themselves and fail without one."
        )
