# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The decision core, the attempt and the stop of it, against a model of everything around them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from airflow_resumable.testing.variants import VARIANTS, broken
from tests.model.machine import TaskInstanceMachine
from tests.model.world import Setup

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
WORLD = {
    "no intent": "narrowed",
    "a token per attempt": "token",
    "no lookup before a second submit": "narrowed",
    "lookup that takes the first match": "narrowed",
}
"""The kind of service at which a variant does harm; where none is named: one that takes tokens and lists."""


def test_the_laws_hold_whatever_happens() -> None:
    """Section 1 of the protocol, over crashes, overlaps, stops, clears and a service with moods."""
    profile = settings.get_profile(settings.get_current_profile_name())
    run_state_machine_as_test(
        TaskInstanceMachine,
        settings=settings(
            max_examples=max(300, profile.max_examples),
            stateful_step_count=40,
            suppress_health_check=SLOW,
        ),
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_machine_catches_a_broken_protocol(variant: str) -> None:
    """Each variant of section 10 breaks a law within a bounded number of the same examples on every run."""

    class Narrower(TaskInstanceMachine):
        twice = variant == "blind write without reading the owner"
        setups: Any = st.builds(
            Setup,
            kind=st.just(WORLD.get(variant, "closed")),
            retries=st.just(2),
            installation=st.sampled_from(["", "here"]),
        )

    with broken(variant), pytest.raises(AssertionError, match=r"tick|does not end"):
        run_state_machine_as_test(
            Narrower,
            settings=settings(
                max_examples=600,
                stateful_step_count=40,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                report_multiple_bugs=False,
                suppress_health_check=SLOW,
            ),
        )
