# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What is said of the Kubernetes operators' arguments: when a Dag is parsed, and once they are rendered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from airflow_resumable.operators._arguments import check_seconds, check_whole, is_yet_to_come, refusal

RESERVED = "airflow-resumable/"
"""How the names of this package's own labels and annotations begin."""

_INTERVALS = ("poll_interval", "startup_check_interval_seconds", "base_container_status_polling_interval")
_TIMEOUTS = ("startup_timeout_seconds", "schedule_timeout_seconds")
_JOB_NUMBERS = ("parallelism", "completions", "backoff_limit", "ttl_seconds_after_finished")
_PROPAGATION = ("Foreground", "Background", "Orphan")


def check_pod(operator: Any) -> None:
    """Refuse wrong arguments of the pod operator, as far as they are known.

    Raises:
        TypeError, ValueError: Naming the argument, the value and what is allowed.
    """
    for name in _INTERVALS:
        check_seconds(name, getattr(operator, name))
    for name in _TIMEOUTS:
        check_seconds(name, getattr(operator, name), zero=True)
    _check_codes(operator.skip_on_exit_code)
    check_template(operator)


def check_job(operator: Any) -> None:
    """Refuse wrong arguments of the Job operator, as far as they are known.

    Raises:
        TypeError, ValueError: Naming the argument, the value and what is allowed.
    """
    check_seconds("job_poll_interval", operator.job_poll_interval)
    for name in _JOB_NUMBERS:
        check_whole(name, getattr(operator, name))
    if (asked := operator.on_kill_propagation_policy) not in _PROPAGATION:
        allowed = " or ".join(repr(word) for word in _PROPAGATION)
        raise ValueError(refusal("on_kill_propagation_policy", asked, allowed))
    check_template(operator)


def check_template(operator: Any, *, rendered: bool = False) -> None:
    """Refuse wrong arguments that shape a pod.

    Args:
        operator: The operator.
        rendered: Whether its template fields are rendered by now; before that a string may become anything.

    Raises:
        TypeError, ValueError: Naming the argument, the value and what is allowed.
    """
    check_whole("termination_grace_period", operator.termination_grace_period)
    for name in ("cmds", "arguments"):
        _check_words(name, getattr(operator, name), rendered)
    _check_labels(operator.labels, rendered)


def _check_words(name: str, value: Any, rendered: bool) -> None:
    if value is None or (not rendered and is_yet_to_come(value)):
        return
    words = isinstance(value, list | tuple) and all(
        isinstance(one, str) or (not rendered and is_yet_to_come(one)) for one in value
    )
    if not words:
        raise TypeError(refusal(name, value, "a list of strings"))


def _check_labels(value: Any, rendered: bool) -> None:
    if not rendered and is_yet_to_come(value):
        return
    if not isinstance(value, Mapping):
        raise TypeError(refusal("labels", value, "a dict of strings"))
    for name in value:
        if isinstance(name, str) and name.startswith(RESERVED):
            raise ValueError(
                f"labels: {name!r} (value {value[name]!r}) is not allowed; use a name that doesn't begin "
                f"with {RESERVED!r}: by such labels the operator finds its own pods and Jobs"
            )


def _check_codes(value: Any) -> None:
    # A string contains strings only, so it would never skip, and asking it for a number raises.
    wrong = isinstance(value, str | bytes)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | range):
        wrong = not all(isinstance(one, Real) for one in value)
    if wrong:
        raise TypeError(refusal("skip_on_exit_code", value, "an exit code, or a list of them, such as [99]"))
