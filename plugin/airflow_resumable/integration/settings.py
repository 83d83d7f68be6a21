# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The options of the ``[resumable]`` section: one table, and how to read a value from it.

The table is what provider info declares to Airflow and what the documentation's option reference is
generated from, so a default is written down once.
"""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple, overload

SECTION: Final = "resumable"

_FALSE = frozenset({"f", "false", "0"})
_TRUE = frozenset({"t", "true", "1"})

BooleanOption = Literal["enabled"]
TextOption = Literal["installation_id"]
PolicyOption = Literal[
    "on_infrastructure_stop",
    "on_user_stop",
    "on_timeout",
    "on_final_failure",
    "on_clear",
    "on_change",
    "on_missing",
    "on_store_down",
]
SecondsOption = Literal["status_error_budget", "unknown_status_timeout", "stopping_timeout", "cancel_timeout"]
OptionName = BooleanOption | TextOption | PolicyOption | SecondsOption


# Not a dataclass: every `import airflow` reads provider info, and making the class would cost a millisecond.
class Option(NamedTuple):
    """One option of the ``[resumable]`` section.

    Attributes:
        name: The option's name in the section.
        type: Its type, in the words of Airflow's provider info: ``boolean``, ``string`` or ``float``.
        default: The default as text, as it would stand in ``airflow.cfg``; None for "not set".
        description: What the option does, in Markdown.
        example: A value worth showing, or None.
        allowed: The words it may be; empty when it isn't a choice between words.
        version_added: The first release of this package that has the option.
    """

    name: OptionName
    type: Literal["boolean", "string", "float"]
    default: str | None
    description: str
    example: str | None = None
    allowed: tuple[str, ...] = ()
    version_added: str = "0.1.0"


OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        name="enabled",
        type="boolean",
        default="True",
        example="False",
        description=(
            "Whether airflow-resumable does anything at all. With `False` every operator of this package "
            "behaves as the operator it is derived from, and the task context is left as Airflow made it."
        ),
    ),
    Option(
        name="installation_id",
        type="string",
        default=None,
        example="analytics-production",
        description=(
            "A name for this Airflow installation, part of every job's idempotency token. Set it, and keep "
            "it, where two installations use one namespace or account. Without it the token also takes "
            "the Dag run's start date, and no job is cancelled only because it looks like this task's."
        ),
    ),
    Option(
        name="on_infrastructure_stop",
        type="string",
        default="keep",
        example="cancel",
        allowed=("keep", "cancel"),
        description=(
            "What becomes of the running job when the worker is stopped (eviction, redeployment, SIGTERM). "
            "`keep`: it runs on and the next attempt reconnects; on the last attempt `on_final_failure` "
            "decides. `cancel`: it is cancelled."
        ),
    ),
    Option(
        name="on_user_stop",
        type="string",
        default="cancel",
        example="keep",
        allowed=("cancel", "keep"),
        description=(
            "What becomes of the running job when a user marks the task failed, success or skipped, or "
            "removes it."
        ),
    ),
    Option(
        name="on_timeout",
        type="string",
        default="keep",
        example="cancel",
        allowed=("keep", "cancel"),
        description=(
            "What becomes of the running job when `execution_timeout` ends an attempt. `keep`: the next "
            "attempt reconnects; on the last attempt `on_final_failure` decides."
        ),
    ),
    Option(
        name="on_final_failure",
        type="string",
        default="cancel",
        example="keep",
        allowed=("cancel", "keep"),
        description="What becomes of a job that still runs when the task's last attempt fails.",
    ),
    Option(
        name="on_clear",
        type="string",
        default="resubmit",
        example="reconnect",
        allowed=("resubmit", "reconnect"),
        description=(
            "What a cleared task does. `resubmit`: it cancels what is left of its jobs and starts a new "
            "one. `reconnect`: it goes on with the job on record."
        ),
    ),
    Option(
        name="on_change",
        type="string",
        default="reconnect",
        example="resubmit",
        allowed=("reconnect", "resubmit"),
        description=(
            "What an attempt does when the job on record is running and the task's arguments have changed "
            "since. `reconnect`: it goes on with the job as it was submitted and logs the change. "
            "`resubmit`: it cancels that job and starts the changed one."
        ),
    ),
    Option(
        name="on_missing",
        type="string",
        default="fail",
        example="resubmit",
        allowed=("fail", "resubmit"),
        description=(
            "What an attempt does when the service no longer knows the job on record and no outcome of it "
            "was recorded. `fail`: the task fails without a retry, and a clear starts afresh. `resubmit`: "
            "a new job is started, although the old one may have done its work."
        ),
    ),
    Option(
        name="on_store_down",
        type="string",
        default="fail",
        example="submit",
        allowed=("fail", "submit"),
        description=(
            "What an attempt does when the task state store can't be reached before anything was "
            "submitted. `fail`: nothing is submitted and the attempt fails. `submit`: the job is started "
            "without a record, so a later attempt may start a second one."
        ),
    ),
    Option(
        name="status_error_budget",
        type="float",
        default="600",
        example="1800",
        description=(
            "Seconds during which calls to the service (submit, status, lookup, result) may go on failing "
            "(connection, timeout, throttling, 5xx) before the attempt fails. Each good answer resets it. A "
            "job is never cancelled because its status couldn't be read."
        ),
    ),
    Option(
        name="unknown_status_timeout",
        type="float",
        default="900",
        example="60",
        description=(
            "Seconds during which a status that this package doesn't know counts as running, before the "
            "attempt fails without submitting."
        ),
    ),
    Option(
        name="stopping_timeout",
        type="float",
        default="600",
        example="1200",
        description=(
            "Seconds to wait for a job on record that is stopping to end, before the attempt fails without "
            "submitting."
        ),
    ),
    Option(
        name="cancel_timeout",
        type="float",
        default="300",
        example="900",
        description=(
            "Seconds that a cleared task waits for its cancelled jobs to end, before it fails without "
            "submitting."
        ),
    ),
)

_BY_NAME: Final[dict[str, Option]] = {option.name: option for option in OPTIONS}


@overload
def read(option: BooleanOption) -> bool: ...
@overload
def read(option: TextOption) -> str | None: ...
@overload
def read(option: PolicyOption) -> str: ...
@overload
def read(option: SecondsOption) -> float: ...


def read(option: OptionName) -> bool | str | float | None:
    """Read one option of ``[resumable]`` from Airflow's configuration.

    Args:
        option: The option's name.

    Returns:
        The value in the option's own type; durations in seconds.

    Raises:
        ValueError: The configured value isn't allowed. The message names the section, the option, the value
            and what is allowed.
        KeyError: There is no such option.
    """
    from airflow.configuration import conf

    spec = _BY_NAME[option]
    # Up to Airflow 3.1 a task process doesn't know a provider's defaults, and raises without a fallback.
    raw = conf.get(SECTION, option, fallback=spec.default)
    return parse(spec, raw)


def parse(option: Option, raw: str | None) -> bool | str | float | None:
    """Turn a configured text into the option's own type.

    Args:
        option: The option the text was configured for.
        raw: The text, or None when nothing is configured and there is no default.

    Raises:
        ValueError: The text isn't a value of this option.
    """
    text = (raw or "").strip()
    if option.type == "boolean":
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise _refused(option, text, "True or False")
    if option.type == "float":
        return _seconds(option, text)
    if option.allowed and text not in option.allowed:
        raise _refused(option, text, " or ".join(option.allowed))
    return text or None


def enabled() -> bool:
    """Whether this package is switched on, ``[resumable] enabled``.

    Raises:
        ValueError: The configured value is neither true nor false.
    """
    return read("enabled")


def clears_on_success() -> bool:
    """Whether Airflow drops a task's state when the task succeeds, ``[state_store] clear_on_success``."""
    from airflow.configuration import conf

    return conf.getboolean("state_store", "clear_on_success", fallback=False)


def _seconds(option: Option, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    # "inf" is refused too: an attempt that may wait for ever is one that nobody is told about.
    if math.isfinite(seconds) and seconds >= 0:
        return seconds
    raise _refused(option, text, "a number of seconds, 0 or more")


def _refused(option: Option, text: str, allowed: str) -> ValueError:
    return ValueError(
        f"[{SECTION}] {option.name} is {text!r}; allowed: {allowed} (default: {option.default}). "
        f"Correct it in airflow.cfg or in the environment variable "
        f"AIRFLOW__{SECTION.upper()}__{option.name.upper()}."
    )
