# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster policy: when it installs the store, and that it never stands in a task's way."""

from __future__ import annotations

import logging
import sys
import types
from typing import Any

import pluggy
import pytest
from airflow import policies
from airflow.settings import load_policy_plugins

from airflow_resumable.integration import policy


class Accessor(types.ModuleType):
    """Stands where the store's module stands, and notes the contexts it was given."""

    def __init__(self) -> None:
        super().__init__("airflow_resumable.store.accessor")
        self.contexts: list[Any] = []

    def install(self, context: Any) -> None:
        self.contexts.append(context)


@pytest.fixture
def accessor(monkeypatch: pytest.MonkeyPatch) -> Accessor:
    module = Accessor()
    monkeypatch.setitem(sys.modules, "airflow_resumable.store", types.ModuleType("airflow_resumable.store"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.fixture
def manager() -> pluggy.PluginManager:
    """A plugin manager set up as Airflow sets up its own: defaults, then entry points."""
    manager = pluggy.PluginManager(policies.local_settings_hookspec.project_name)
    manager.add_hookspecs(policies)
    manager.register(policies.DefaultPolicy)
    load_policy_plugins(manager)
    return manager


def test_airflow_calls_the_policy_and_the_answer_is_still_the_default(
    manager: pluggy.PluginManager, accessor: Accessor
) -> None:
    """The store is installed in the context that Airflow passes, and no variable is added."""
    context = {"ti": object()}

    assert manager.hook.get_airflow_context_vars(context=context) == {}
    assert accessor.contexts == [context]
    assert accessor.contexts[0] is context


def test_a_site_with_its_own_hook_keeps_its_answer_and_gets_our_store(
    manager: pluggy.PluginManager, accessor: Accessor
) -> None:
    """A site's settings come first and stop the hook at their answer; ours has run before them."""

    class LocalSettings:
        @staticmethod
        @policies.hookimpl
        def get_airflow_context_vars(context: Any) -> dict[str, str]:
            return {"airflow.ctx.team": "analytics"}

    manager.register(LocalSettings)

    assert manager.hook.get_airflow_context_vars(context={}) == {"airflow.ctx.team": "analytics"}
    assert accessor.contexts == [{}]


def test_nothing_is_installed_when_switched_off(accessor: Accessor, monkeypatch: pytest.MonkeyPatch) -> None:
    """``[resumable] enabled = False`` leaves the context alone."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__ENABLED", "False")

    policy.get_airflow_context_vars({})

    assert accessor.contexts == []


def test_a_failure_is_logged_with_what_happens_next(
    accessor: Accessor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in the store must not fail a task that may not even use it."""

    def refuse(context: Any) -> None:
        raise OSError("no route to the API server")

    monkeypatch.setattr(accessor, "install", refuse)
    with caplog.at_level(logging.ERROR, logger=policy.__name__):
        policy.get_airflow_context_vars({})

    (record,) = caplog.records
    assert "The task goes on" in record.getMessage()
    assert record.exc_info is not None
    assert "no route to the API server" in str(record.exc_info[1])


def test_a_wrong_enabled_value_does_not_fail_the_task(
    accessor: Accessor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt switch is logged with the option's name, and nothing is installed."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__ENABLED", "ture")
    with caplog.at_level(logging.ERROR, logger=policy.__name__):
        policy.get_airflow_context_vars({})

    assert accessor.contexts == []
    assert caplog.records[0].exc_info is not None
    assert "[resumable] enabled is 'ture'" in str(caplog.records[0].exc_info[1])
