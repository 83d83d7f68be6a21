# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""How long a job may stay in a state that is neither running nor ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_resumable.jobs.adapter import Observation
from airflow_resumable.jobs.errors import JobNotSettled

if TYPE_CHECKING:
    from airflow_resumable.jobs.policies import ResumePolicy

_log = logging.getLogger(__name__)

_LIMITS = {Observation.STOPPING: "stopping_timeout", Observation.UNKNOWN: "unknown_status_timeout"}


class Settling:
    """Counts the time that one job spends stopping, or in a state that nobody has heard of.

    Args:
        policy: A policy without gaps.
        external_id: The job.
    """

    def __init__(self, policy: ResumePolicy, external_id: Any) -> None:
        self._policy = policy
        self._external_id = external_id
        self._state: Observation | None = None
        self._since = 0.0

    def check(self, seen: Observation, raw: str | None, now: float) -> None:
        """Take note of one look.

        Args:
            seen: What was seen.
            raw: The service's own word for it.
            now: Seconds of a clock that never goes back.

        Raises:
            JobNotSettled: It has been like this for too long.
        """
        if seen not in _LIMITS:
            self._state = None
            return
        name = _LIMITS[seen]
        limit = self._policy.seconds(name)
        if self._state is not seen:
            self._state, self._since = seen, now
            _log.warning(
                "job %r is %r (%s); waiting up to %.0f s (%s)", self._external_id, raw, seen, limit, name
            )
        elif now - self._since > limit:
            raise JobNotSettled(
                f"job {self._external_id!r} has been {raw!r} ({seen}) for {limit:.0f} s ({name}); nothing "
                "was submitted. Look at it in the service, or raise the time-out",
                external_id=self._external_id,
            )
