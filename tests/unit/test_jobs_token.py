# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The token tells installations, runs, task instances, clears and generations apart, and fits everywhere."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resumable.jobs.token import TokenMint, as_uuid, family_of

MINT = TokenMint("here", "dag", "run", "task", -1, datetime(2026, 11, 29, tzinfo=UTC))

mints = st.builds(
    TokenMint,
    installation=st.sampled_from(["", "here"]),
    dag_id=st.text(),
    run_id=st.text(),
    task_id=st.text(),
    map_index=st.integers(-1, 5),
    run_started=st.none() | st.datetimes(timezones=st.just(UTC)),
)


@given(mint=mints, max_tries=st.integers(0, 50), generation=st.integers(1, 64))
def test_a_token_is_a_label_of_33_characters_whatever_the_names(
    mint: TokenMint, max_tries: int, generation: int
) -> None:
    """It fits a Kubernetes label, a DNS name and a 64-character client token."""
    token = mint.token(max_tries, generation)
    assert re.fullmatch(r"r[0-9a-f]{32}", token)
    assert family_of(token) == mint.family
    assert mint.generation_of(token, max_tries) == generation
    assert uuid.UUID(as_uuid(token)).hex == token[1:]


@pytest.mark.parametrize(
    "change",
    [
        {"installation": "there"},
        {"dag_id": "other"},
        {"run_id": "other"},
        {"task_id": "other"},
        {"map_index": 0},
    ],
)
def test_another_installation_run_task_or_index_is_another_family(change: dict[str, object]) -> None:
    """Two installations with equal names never find each other's jobs."""
    assert replace(MINT, **change).family != MINT.family  # type: ignore[arg-type]


def test_names_that_run_together_are_told_apart() -> None:
    """The parts are joined so that their borders count."""
    assert replace(MINT, dag_id="ab", run_id="c").family != replace(MINT, dag_id="a", run_id="bc").family


def test_without_an_installation_id_the_runs_start_joins_the_family() -> None:
    """What two equally named runs of two installations differ in."""
    later = MINT.run_started + timedelta(microseconds=1) if MINT.run_started else None
    assert replace(MINT, run_started=later).family == MINT.family
    assert replace(MINT, installation="", run_started=later).family != replace(MINT, installation="").family


def test_a_clear_and_a_new_generation_rotate_the_token() -> None:
    """A token that a service holds for a failed job is never used for the next one."""
    tokens = {MINT.token(max_tries, generation) for max_tries in (0, 1, 2) for generation in (1, 2, 3)}
    assert len(tokens) == 9


def test_the_token_of_a_task_instance_is_always_the_same() -> None:
    """A pinned value: a changed recipe would orphan every job in flight at an upgrade."""
    assert MINT.token(2, 1) == "r84f11c2d12eccd9cdb7be963a01660ac"
