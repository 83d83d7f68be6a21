# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The token tells installations, runs, task instances, clears and generations apart, and fits everywhere."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resumable.jobs.token import TokenMint, as_uuid, family_of, region_of

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
        {"region": ("019b-1", 0)},
        {"job": "first"},
    ],
)
def test_another_installation_run_task_or_index_is_another_family(change: dict[str, object]) -> None:
    """Two installations with equal names never find each other's jobs."""
    assert replace(MINT, **change).family != MINT.family  # type: ignore[arg-type]


def test_each_region_and_each_index_of_it_is_another_family() -> None:
    """On Airflow 3.4 the passes of a loop share their map index, and each has a store of its own."""
    passes = [replace(MINT, region=(region, index)) for region in ("one", "two") for index in (0, 1)]
    assert len({mint.family for mint in passes}) == 4


@pytest.mark.parametrize("job", ["", "first"])
def test_outside_regions_the_family_is_the_same_as_ever(job: str) -> None:
    """What runs while Airflow is upgraded to 3.4 is found again: the digests of the first release."""
    families = {"": "84f11c2d12eccd9c", "first": "0745c42548b2bfb4"}
    assert replace(MINT, job=job).family == families[job]


@pytest.mark.parametrize(
    ("ti", "region"),
    [
        ({}, None),
        ({"region_id": None, "region_index": None}, None),
        ({"region_id": uuid.UUID(int=0), "region_index": 3}, None),
        ({"region_id": str(uuid.UUID(int=0)), "region_index": -1}, None),
        ({"region_id": uuid.UUID(int=7), "region_index": 3}, (str(uuid.UUID(int=7)), 3)),
        ({"region_id": uuid.UUID(int=7), "region_index": None}, (str(uuid.UUID(int=7)), -1)),
    ],
)
def test_the_region_of_a_task_instance(ti: dict[str, object], region: tuple[str, int] | None) -> None:
    """Airflow's zero id means none, as does a task instance that has never heard of regions."""
    assert region_of(SimpleNamespace(**ti)) == region


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
