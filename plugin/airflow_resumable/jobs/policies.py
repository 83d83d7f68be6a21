# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What to do when a job, its task or its service leaves the straight path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class ResumePolicy:
    """The choices of one operator; a field left at None comes from ``[resumable]`` in the configuration.

    Args:
        on_infrastructure_stop: ``keep`` (default) or ``cancel`` the job when the worker gets SIGTERM
            (eviction, redeploy).
        on_user_stop: ``cancel`` (default) or ``keep`` when a user marks the running task failed, success or
            skipped.
        on_timeout: ``keep`` (default) or ``cancel`` when `execution_timeout` strikes and tries are left.
        on_final_failure: ``cancel`` (default) or ``keep`` when the last try fails while the job is active.
        on_clear: ``resubmit`` (default: cancel what is alive, then start afresh) or ``reconnect``.
        on_change: ``reconnect`` (default, logged) or ``resubmit`` when the rendered job differs from the
            recorded one.
        on_missing: ``fail`` (default) or ``resubmit`` when the service no longer knows the job.
        on_store_down: ``fail`` (default: nothing is submitted) or ``submit`` (as if not durable, said
            loudly).
        status_error_budget: Seconds of failing status calls that are tolerated; each good answer resets it.
            Default 600.
        unknown_status_timeout: Seconds to wait on a status that nobody has heard of. Default 900.
        stopping_timeout: Seconds to wait for a stopping job to end. Default 600.
        cancel_timeout: Seconds to wait for a cleared task's job to be gone. Default 300.

    Raises:
        ValueError: Names the field, the value and what is allowed.
    """

    on_infrastructure_stop: str | None = None
    on_user_stop: str | None = None
    on_timeout: str | None = None
    on_final_failure: str | None = None
    on_clear: str | None = None
    on_change: str | None = None
    on_missing: str | None = None
    on_store_down: str | None = None
    status_error_budget: float | timedelta | None = None
    unknown_status_timeout: float | timedelta | None = None
    stopping_timeout: float | timedelta | None = None
    cancel_timeout: float | timedelta | None = None

    def __post_init__(self) -> None:
        """Check each field as soon as the Dag is parsed."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if field.name in _ALLOWED:
                if value not in _ALLOWED[field.name]:
                    allowed = " or ".join(repr(word) for word in _ALLOWED[field.name])
                    raise ValueError(f"resume_policy: {field.name}={value!r} is not allowed; use {allowed}")
                continue
            seconds = value.total_seconds() if isinstance(value, timedelta) else value
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e10:
                raise ValueError(
                    f"resume_policy: {field.name}={value!r} is not allowed; "
                    "use a number of seconds from 0 up, or a timedelta"
                )
            object.__setattr__(self, field.name, float(seconds))

    @classmethod
    def of(cls, value: ResumePolicy | Mapping[str, Any] | None) -> ResumePolicy:
        """Accept what a Dag author may write: None, a mapping (as in `default_args`) or a policy.

        Raises:
            ValueError: A field that doesn't exist, named with the ones that do.
            TypeError: Anything else than the three.
        """
        if value is None:
            return cls()
        if isinstance(value, ResumePolicy):
            return value
        if isinstance(value, Mapping):
            known = [field.name for field in fields(cls)]
            for name in value:
                if name not in known:
                    raise ValueError(
                        f"resume_policy: there is no field {name!r} (value {value[name]!r}); "
                        f"use one of {', '.join(known)}"
                    )
            return cls(**value)
        raise TypeError(
            f"resume_policy={value!r} is not allowed; use a ResumePolicy or a dict such as "
            '{"on_clear": "reconnect"}'
        )

    def seconds(self, name: str) -> float:
        """Return a field that is a number of seconds; 0 where it was left open."""
        return float(getattr(self, name) or 0.0)

    def filled(self, defaults: ResumePolicy) -> ResumePolicy:
        """Return this policy with the fields that are None taken from `defaults`."""
        gaps = {f.name: getattr(defaults, f.name) for f in fields(self) if getattr(self, f.name) is None}
        return replace(self, **gaps)


def configured() -> ResumePolicy:
    """Return the deployment's policy, read from ``[resumable]`` in Airflow's configuration.

    Raises:
        ValueError: An option holds a value that isn't allowed.
    """
    from airflow_resumable.integration import settings

    return ResumePolicy(
        on_infrastructure_stop=settings.read("on_infrastructure_stop"),
        on_user_stop=settings.read("on_user_stop"),
        on_timeout=settings.read("on_timeout"),
        on_final_failure=settings.read("on_final_failure"),
        on_clear=settings.read("on_clear"),
        on_change=settings.read("on_change"),
        on_missing=settings.read("on_missing"),
        on_store_down=settings.read("on_store_down"),
        status_error_budget=settings.read("status_error_budget"),
        unknown_status_timeout=settings.read("unknown_status_timeout"),
        stopping_timeout=settings.read("stopping_timeout"),
        cancel_timeout=settings.read("cancel_timeout"),
    )


_ALLOWED: dict[str, tuple[str, ...]] = {
    "on_infrastructure_stop": ("keep", "cancel"),
    "on_user_stop": ("cancel", "keep"),
    "on_timeout": ("keep", "cancel"),
    "on_final_failure": ("cancel", "keep"),
    "on_clear": ("resubmit", "reconnect"),
    "on_change": ("reconnect", "resubmit"),
    "on_missing": ("fail", "resubmit"),
    "on_store_down": ("fail", "submit"),
}
