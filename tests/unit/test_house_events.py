# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The table of the documentation is what the tests on a real Airflow saw, all of it and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.stack.test_kill_table import EVENTS

RECORDED = sorted((Path(__file__).resolve().parents[2] / "docs" / "_generated").glob("events-*.json"))


def test_something_is_recorded_of_each_supported_airflow() -> None:
    """The files are named after the minor version whose run they hold."""
    versions = {file.stem: json.loads(file.read_text(encoding="utf-8"))["airflow"] for file in RECORDED}
    assert set(versions) == {"events-3.3", "events-3.4"}
    assert all(version.startswith(name.removeprefix("events-")) for name, version in versions.items())


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_every_event_of_the_tests_table_is_recorded_as_it_must_be(file: Path) -> None:
    """To record anew: see tests/stack/test_kill_table.py."""
    recorded = json.loads(file.read_text(encoding="utf-8"))["events"]
    assert list(recorded) == list(EVENTS)
    for name, event in EVENTS.items():
        told = recorded[name]
        assert (told["title"], told["policy"]) == (event.title, event.policy)
        assert (told["job"], told["state"], told["started"]) == (event.job, event.state, event.started)
