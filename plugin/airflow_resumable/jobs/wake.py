# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Why a deferred task runs again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Wake:
    """Why a deferred task runs again.

    Args:
        job: What `Deferral.hand_over` gave to Airflow to keep: external_id, generation, and whether this try
            has submitted it. Empty after a failure, since Airflow drops it then.
        event: The trigger's event, or None.
        failure: Airflow's error in place of an event: the trigger failed, or timed out.
    """

    job: Mapping[str, Any] = field(default_factory=dict)
    event: Any = None
    failure: Exception | None = None

    @property
    def told(self) -> Mapping[str, Any]:
        """The event, empty where it is none of `JobTrigger`'s."""
        return self.event if isinstance(self.event, Mapping) else {}
