# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What is said of the arguments of `ResumableSparkConnectOperator` when a Dag is parsed."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any


def check(
    sql: Any,
    build: Any,
    op_kwargs: Any,
    result_rows_limit: Any,
    status_poll_interval: Any,
    detached_timeout: Any,
) -> None:
    """Refuse wrong ones.

    Raises:
        TypeError, ValueError: Naming the argument, the value and what is allowed.
    """
    if (sql is None) == (build is None):
        raise ValueError(f"sql={sql!r} and build={build!r}: give one of them")
    if build is not None and not callable(build):
        raise TypeError(f"build={build!r} is not allowed; use a function")
    if op_kwargs and build is None:
        raise ValueError("op_kwargs is for build; write the values into sql as templates")
    if isinstance(result_rows_limit, bool) or not isinstance(result_rows_limit, int):
        raise TypeError(f"result_rows_limit={result_rows_limit!r} is not allowed; use a whole number")
    if not 0 < result_rows_limit < 2**31 - 1:
        raise ValueError(f"result_rows_limit={result_rows_limit!r} is not allowed; use 1 or more")
    allowed = f"status_poll_interval={status_poll_interval!r} is not allowed; use seconds, up to 60"
    if isinstance(status_poll_interval, bool) or not isinstance(status_poll_interval, int | float):
        raise TypeError(allowed)
    if not 0 < status_poll_interval <= 60:
        raise ValueError(allowed)
    if not isinstance(detached_timeout, timedelta):
        raise TypeError(f"detached_timeout={detached_timeout!r} is not allowed; use a timedelta")
    if detached_timeout.total_seconds() <= 2 * status_poll_interval:
        raise ValueError(
            f"detached_timeout={detached_timeout!r} is not allowed; use more than twice "
            f"status_poll_interval={status_poll_interval!r}"
        )


def warn_of_late_retries(task: Any, detached_timeout: timedelta) -> None:
    """Warn where a retry may come when the server has dropped the operation.

    Args:
        task: The operator, once Airflow has set its retries.
        detached_timeout: How long the server keeps an operation that nobody attaches to.
    """
    if not task.durable or not task.retries:
        return
    longest: timedelta | float = task.retry_delay
    if task.retry_exponential_backoff:
        longest = task.max_retry_delay or timedelta.max
    if not isinstance(longest, timedelta):
        longest = timedelta(seconds=longest)
    if longest < detached_timeout:
        return
    delay = f"retry_delay={task.retry_delay}"
    if task.retry_exponential_backoff:
        delay = f"retry_exponential_backoff with max_retry_delay={task.max_retry_delay}"
    warnings.warn(
        f"task {task.task_id!r}: {delay}, but a Spark Connect server cancels an operation that nobody "
        f"attaches to for {detached_timeout} (spark.connect.execute.manager.detachedTimeout), so a "
        "retry would come too late to find it; set a retry_delay of seconds, or raise that setting on "
        "the server and say so by detached_timeout",
        UserWarning,
        stacklevel=4,
    )
