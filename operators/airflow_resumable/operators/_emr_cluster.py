# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Reading the steps of one EMR cluster.

See https://docs.aws.amazon.com/emr/latest/APIReference/API_ListSteps.html: newest first, 50 a page, or at
most ten by their ids.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_resumable.jobs.errors import JobNotFound, ResumableJobError, ResumableJobFatal
from airflow_resumable.operators import _emr_states as states
from airflow_resumable.operators._aws_errors import AnswerCutOff, code_of, message_of, part_of
from airflow_resumable.operators._emr_names import Mark

_log = logging.getLogger(__name__)

MOST_IDS = 10
"""Ids of steps that one request may ask for."""
MOST_PAGES = 100
"""Pages of a lookup, each of 50 steps, before it is given up."""
_GONE = ("TERMINATED", "TERMINATED_WITH_ERRORS")
_ENDING = ("TERMINATING", *_GONE)


@dataclass(frozen=True, slots=True)
class MarkedSteps:
    """Steps that one request has added, found by their mark.

    Args:
        token: What they were marked with.
        ids: Their ids, in the order in which they were added.
        state: The state of the whole, see `_emr_states.together`.
        created: When the first was created, by EMR's clock.
    """

    token: str
    ids: tuple[str, ...]
    state: str
    created: datetime


class EmrCluster:
    """One cluster, asked through one client.

    Args:
        client: A client of ``emr``.
        id: The cluster's id.
    """

    def __init__(self, client: Any, id: str) -> None:
        self._client = client
        self.id = id

    def steps(self, ids: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the summaries of at most ten steps.

        Raises:
            JobNotFound: EMR knows no such cluster, or not all of the steps.
        """
        try:
            answer = self._client.list_steps(ClusterId=self.id, StepIds=list(ids))
        except Exception as error:
            if code_of(error) == "InvalidRequestException":
                raise JobNotFound(f"steps {list(ids)} of cluster {self.id}: {message_of(error)}") from error
            raise
        found = {step["Id"]: step for step in part_of(answer, "Steps")}
        if lost := [one for one in ids if one not in found]:
            raise JobNotFound(f"cluster {self.id} lists no steps {lost}")
        return [found[one] for one in ids]

    def cancel(self, ids: Sequence[str]) -> None:
        """Ask EMR to cancel steps; each that EMR refuses is logged.

        Raises:
            JobNotFound: EMR knows no such cluster or steps.
            ResumableJobError: Steps that EMR refused to cancel are alive.
        """
        try:
            answer = self._client.cancel_steps(ClusterId=self.id, StepIds=list(ids))
        except Exception as error:
            if code_of(error) == "InvalidRequestException":
                raise JobNotFound(f"steps {list(ids)} of cluster {self.id}: {message_of(error)}") from error
            raise
        refused = {
            str(one["StepId"]): str(one.get("Reason", "no reason given"))
            for one in part_of(answer, "CancelStepsInfoList")
            if one.get("Status") != "SUBMITTED"
        }
        for step, reason in refused.items():
            _log.warning("EMR does not cancel step %s: %s", step, reason)
        if refused and (alive := self._alive(list(refused))):
            raise ResumableJobError(f"EMR refused to cancel {alive}, which are alive: {refused}")

    def _alive(self, ids: list[str]) -> list[str]:
        groups = [ids[start : start + MOST_IDS] for start in range(0, len(ids), MOST_IDS)]
        steps = [step for group in groups for step in self.steps(group)]
        return [str(step["Id"]) for step in steps if step["Status"]["State"] not in states.ENDED]

    def end(self) -> str:
        """Return why the cluster takes no steps any more; empty while it does."""
        cluster = part_of(self._client.describe_cluster(ClusterId=self.id), "Cluster")
        status = cluster.get("Status", {})
        if status.get("State") not in _ENDING:
            return ""
        reason = status.get("StateChangeReason", {})
        said = " ".join(str(reason[key]) for key in ("Code", "Message") if reason.get(key))
        return f"cluster {self.id} is {status['State']}" + (f" ({said})" if said else "")

    def is_gone(self) -> bool:
        """Say whether the cluster is terminated, so that no step of it can be at work."""
        cluster = part_of(self._client.describe_cluster(ClusterId=self.id), "Cluster")
        return cluster.get("Status", {}).get("State") in _GONE

    def marked(self, wanted: Callable[[Mark], bool], since: datetime) -> list[MarkedSteps]:
        """Return what was added with a wanted mark at `since` or later, the lowest start first.

        Raises:
            AnswerCutOff: Not all steps of a request are listed yet.
            ResumableJobFatal: The list is too long.
        """
        requests: dict[tuple[str, str], list[tuple[Mark, Mapping[str, Any]]]] = defaultdict(list)
        for step in self._newest(since):
            mark = Mark.read(str(step.get("Name", "")))
            if mark is not None and wanted(mark):
                requests[mark.token, mark.call].append((mark, step))
        return sorted(map(_whole, requests.values()), key=lambda one: (one.created, one.ids))

    def _newest(self, since: datetime) -> Iterator[Mapping[str, Any]]:
        more: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            answer = self._client.list_steps(ClusterId=self.id, **more)
            for step in part_of(answer, "Steps"):
                if _created(step) < since:
                    return
                yield step
            marker = answer.get("Marker")
            if not marker:
                return
            more = {"Marker": marker}
        raise ResumableJobFatal(
            f"cluster {self.id} lists more than {MOST_PAGES} pages of steps since {since.isoformat()}, so "
            "nobody can say whether this task has added its own already; look for them in the cluster by the "
            "end of their names, then clear the task"
        )


def _created(step: Mapping[str, Any]) -> datetime:
    created = step["Status"]["Timeline"]["CreationDateTime"]
    if not isinstance(created, datetime):
        raise AnswerCutOff(f"step {step.get('Id')} is listed without its creation time")
    return created


def _whole(found: list[tuple[Mark, Mapping[str, Any]]]) -> MarkedSteps:
    found.sort(key=lambda pair: pair[0].place)
    mark = found[0][0]
    if len(found) != mark.of:
        raise AnswerCutOff(
            f"of {mark.of} steps that were added with token {mark.token}, {len(found)} are listed so far"
        )
    return MarkedSteps(
        mark.token,
        tuple(str(step["Id"]) for _, step in found),
        states.together(str(step["Status"]["State"]) for _, step in found),
        min(_created(step) for _, step in found),
    )
