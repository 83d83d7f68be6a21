# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Watching steps that were added together, by one request a look."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_resumable.operators import _emr_states as states
from airflow_resumable.operators._aws_errors import is_expired, is_transient
from airflow_resumable.operators._emr_cluster import MOST_IDS, EmrCluster

_log = logging.getLogger(__name__)

CLUSTER_EVERY = 10
"""Every so many looks at steps that are alive ask for the cluster instead."""


class StepsWatch:
    """What was seen of some steps; an end that was seen once is not asked for again.

    Args:
        ids: The steps, in the order in which they were added.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = tuple(ids)
        self._ended: dict[str, Mapping[str, Any]] = {}
        self._live_looks = 0
        self._live_state = states.PENDING
        self._may_ask_cluster = True

    def look(self, cluster: EmrCluster) -> str:
        """Return the state of the whole.

        Raises:
            JobNotFound: EMR knows no such cluster or steps.
        """
        if self._may_ask_cluster and self._live_looks >= CLUSTER_EVERY:
            gone = self._is_gone(cluster)
            self._live_looks = 0
            return states.CLUSTER_GONE if gone else self._live_state
        while left := [one for one in self._ids if one not in self._ended][:MOST_IDS]:
            seen = {step["Id"]: step for step in cluster.steps(left)}
            live = [str(step["Status"]["State"]) for step in seen.values() if not self._note(step)]
            if live:
                self._live_looks += 1
                self._live_state = states.together([*live, *self._states])
                return self._live_state
        return states.together(self._states)

    @property
    def _states(self) -> list[str]:
        return [str(step["Status"]["State"]) for step in self._ended.values()]

    @property
    def failures(self) -> list[str]:
        """What EMR says of each step that has ended and not well, in order."""
        ended = [self._ended[one] for one in self._ids if one in self._ended]
        return [states.why(step) for step in ended if step["Status"]["State"] in states.FAILED]

    def _note(self, step: Mapping[str, Any]) -> bool:
        state = str(step["Status"]["State"])
        if state not in states.ENDED:
            return False
        self._ended[str(step["Id"])] = step
        if state in states.FAILED:
            _log.error("%s", states.why(step))
        return True

    def _is_gone(self, cluster: EmrCluster) -> bool:
        try:
            return cluster.is_gone()
        except Exception as error:
            if is_transient(error) or is_expired(error):
                raise
            self._may_ask_cluster = False
            _log.warning(
                "cluster %s can't be described (%s: %s); the steps alone are watched. Should it be "
                "terminated, they may be listed as running for ever",
                cluster.id,
                type(error).__name__,
                error,
            )
            return False
