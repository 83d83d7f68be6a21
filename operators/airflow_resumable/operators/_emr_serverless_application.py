# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The application in which a run is to be started: it is started first, as by the provider's operator.

See https://docs.aws.amazon.com/emr-serverless/latest/APIReference/API_StartApplication.html
"""

from __future__ import annotations

import logging
from typing import Any

from airflow_resumable.operators import _aws_errors

_log = logging.getLogger(__name__)

READY = frozenset({"CREATED", "STARTED"})
"""States in which runs are taken; an application that was only created starts by itself then."""


def state_of(client: Any, application: str) -> str:
    """Return the service's word for an application's state."""
    answer = client.get_application(applicationId=application)
    return str(_aws_errors.part_of(_aws_errors.part_of(answer, "application"), "state"))


def make_ready(hook: Any, client: Any, application: str, *, delay: float, looks: int) -> None:
    """Start an application that takes no runs, and wait until it does.

    Args:
        hook: The provider's, with its waiters.
        client: Asks the service.
        application: The application's id.
        delay: Seconds between two looks at it.
        looks: How many.

    Raises:
        AirflowException: It can't be started, or isn't in that time.
    """
    state = state_of(client, application)
    if state in READY:
        return
    from airflow.providers.amazon.aws.utils.waiter_with_logging import wait

    _log.info("Application %s is %s; starting it", application, state)
    client.start_application(applicationId=application)
    wait(
        waiter=hook.get_waiter("serverless_app_started"),
        waiter_delay=delay,  # type: ignore[arg-type]
        waiter_max_attempts=looks,
        args={"applicationId": application},
        failure_message="Serverless Application failed to start",
        status_message="Serverless Application status is",
        status_args=["application.state", "application.stateDetails"],
    )
