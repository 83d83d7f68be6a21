# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What is said of the arguments of `ResumableSparkConnectOperator` when a Dag is parsed."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow_resumable.operators._arguments import refusal

_SHORTEST, _LONGEST = 0.1, 60
"""Seconds between two looks."""


def check(task: Any, detached_timeout: Any) -> None:
    """Refuse wrong arguments, as far as they are known when a Dag is parsed.

    Args:
        task: The operator, with its arguments as attributes, as they were given.
        detached_timeout: How long the server keeps an operation that nobody attaches to.

    Raises:
        TypeError, ValueError: Naming the argument, the value and what is allowed.
    """
    if (task.sql is None) == (task.build is None):
        raise ValueError(f"sql={task.sql!r} and build={task.build!r}: give one of them")
    if task.build is not None and (not callable(task.build) or inspect.iscoroutinefunction(task.build)):
        raise TypeError(refusal("build", task.build, "a function that gets a session, not an async one"))
    check_template_fields(task)
    if task.op_kwargs and task.build is None:
        raise ValueError(
            f"op_kwargs={task.op_kwargs!r}: op_kwargs is for build; write the values into sql as templates"
        )
    limit, interval = task.result_rows_limit, task.poll_interval
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(refusal("result_rows_limit", limit, "a whole number"))
    if not 0 < limit < 2**31 - 1:
        raise ValueError(refusal("result_rows_limit", limit, "1 or more"))
    allowed = refusal("status_poll_interval", interval, f"seconds, from {_SHORTEST} up to {_LONGEST}")
    if isinstance(interval, bool) or not isinstance(interval, int | float):
        raise TypeError(allowed)
    if not _SHORTEST <= interval <= _LONGEST:
        raise ValueError(allowed)
    if not isinstance(detached_timeout, timedelta):
        raise TypeError(refusal("detached_timeout", detached_timeout, "a timedelta"))
    if detached_timeout.total_seconds() <= 2 * interval:
        said = f"more than twice status_poll_interval={interval!r}"
        raise ValueError(refusal("detached_timeout", detached_timeout, said))
    if not isinstance(task.deferrable, bool):
        raise TypeError(refusal("deferrable", task.deferrable, "True or False"))


def check_template_fields(task: Any) -> None:
    """Refuse wrong values of template fields: when a Dag is parsed, and once they are rendered.

    What another task returns is let through until it is there.

    Raises:
        TypeError, ValueError: Naming the argument, the value and what is allowed.
    """
    if task.sql is not None or task.build is None:
        _check_text("sql", task.sql, "a statement, or the name of a template file that ends in .sql")
    _check_text("conn_id", task.conn_id, "the id of a connection of type spark_connect")
    _check_mapping("op_kwargs", task.op_kwargs, "a dict by the names of build's arguments")
    _check_mapping("conf", task.conf, "a dict of settings, such as {'spark.sql.session.timeZone': 'UTC'}")
    for name, value in () if _is_yet_to_come(task.conf) else task.conf.items():
        if not isinstance(value, str | int | float) and not _is_yet_to_come(value):
            raise TypeError(refusal(f"conf[{name!r}]", value, "a string or a number, or leave it out"))


def _is_yet_to_come(value: Any) -> bool:
    return hasattr(value, "resolve")


def _check_text(name: str, value: Any, use: str) -> None:
    if _is_yet_to_come(value):
        return
    if not isinstance(value, str):
        raise TypeError(refusal(name, value, use))
    if not value.strip():
        raise ValueError(refusal(name, value, use))


def _check_mapping(name: str, value: Any, use: str) -> None:
    if _is_yet_to_come(value):
        return
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise TypeError(refusal(name, value, use))
    if not all(key.strip() for key in value):
        raise ValueError(refusal(name, value, use))


def copied(value: Any) -> Any:
    """Return a copy of a mapping, an empty one of None; what another task returns is none yet."""
    return dict(value) if isinstance(value, Mapping) else {} if value is None else value


def settings(conf: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as Spark writes their values."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in conf.items()
    }


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
