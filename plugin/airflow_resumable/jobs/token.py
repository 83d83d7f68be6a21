# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The idempotency token: which task instance, and which of its generations."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID


def _digest(*parts: object) -> str:
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True, slots=True)
class TokenMint:
    """Makes the tokens of one task instance within one run.

    A token is 33 characters, ``r`` + 16 hex digits *family* + 16 hex digits *generation*: a valid
    Kubernetes label value and DNS label, and short enough for every service's client token.

    Args:
        installation: ``[resumable] installation_id``; empty when it isn't configured. Then the run's start
            date joins the family, which tells two installations with equal names apart.
        dag_id, run_id, task_id, map_index: The full scope of the task instance in the state store.
        region: On 3.4, the rest of that scope, see `region_of`; None everywhere else.
        job: Tells the jobs of one task instance apart; empty for an operator, which has one.
        run_started: The Dag run's start date: stable over retries, new when a finished run is cleared.
    """

    installation: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    run_started: datetime | None
    job: str = ""
    region: tuple[str, int] | None = None

    @classmethod
    def for_task(cls, ti: Any, installation: str, run_started: datetime | None, job: str) -> TokenMint:
        """Return the mint of a task instance, whose scope in the state store it reads from `ti`."""
        index = ti.map_index if ti.map_index is not None else -1
        return cls(installation, ti.dag_id, ti.run_id, ti.task_id, index, run_started, job, region_of(ti))

    @property
    def family(self) -> str:
        """The 16 hex digits that all generations of this task instance share."""
        scope: tuple[object, ...] = (
            self.installation,
            self.dag_id,
            self.run_id,
            self.task_id,
            self.map_index,
        )
        if self.region:
            scope = (*scope, self.region)
        if self.job:
            scope = (*scope, self.job)
        return _digest(*scope) if self.installation else _digest(*scope, _stamp(self.run_started))

    def token(self, max_tries: int, generation: int) -> str:
        """Return the token of `generation` (from 1) in the sequence of tries marked by `max_tries`."""
        return f"r{self.family}{_digest(self.family, _stamp(self.run_started), max_tries, generation)}"

    def generation_of(self, token: str, max_tries: int, limit: int = 1024) -> int | None:
        """Return which of the first `limit` generations of this sequence `token` is, or None."""
        for generation in range(1, limit + 1):
            if self.token(max_tries, generation) == token:
                return generation
        return None

    def is_later(self, token: str, max_tries: int, generation: int) -> bool:
        """Say whether `token` is one that is minted after that of `generation` under `max_tries`.

        A clear makes `max_tries` larger; no more than 64 clears, of 64 generations each, are thought of.
        """
        later = any(
            self.generation_of(token, number, limit=64) for number in range(max_tries + 1, max_tries + 65)
        )
        return later or (self.generation_of(token, max_tries) or 0) > generation


def region_of(ti: Any) -> tuple[str, int] | None:
    """Return where the state store keeps a task instance besides its map index: region id and index.

    From Airflow 3.4 on, an expansion of a mapped task and each pass of a loop is a region with an id of its
    own (``TaskScope`` in ``airflow.sdk.state``). None outside any region: on earlier versions, for a plain
    task, and for what was expanded before the upgrade, so that their tokens are the same on each version.
    """
    region, index = getattr(ti, "region_id", None), getattr(ti, "region_index", None)
    if region is None or UUID(str(region)).int == 0:
        return None
    return str(region), -1 if index is None else int(index)


def family_of(token: str) -> str:
    """Return the family part of a token."""
    return token[1:17]


def as_uuid(token: str) -> str:
    """Spell the 128 bits of a token as a UUID, for services that insist on one."""
    return str(UUID(token[1:33]))
