# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The options of ``[resumable]``: defaults, types, and the words for a wrong value."""

from __future__ import annotations

import pytest

from airflow_resumable.integration import settings
from airflow_resumable.integration.settings import OPTIONS, Option

# Section 9 of the protocol, written out once more: a default changes only on purpose.
PROTOCOL = {
    "enabled": True,
    "installation_id": None,
    "on_infrastructure_stop": "keep",
    "on_user_stop": "cancel",
    "on_timeout": "keep",
    "on_final_failure": "cancel",
    "on_clear": "resubmit",
    "on_change": "reconnect",
    "on_missing": "fail",
    "on_store_down": "fail",
    "status_error_budget": 600.0,
    "unknown_status_timeout": 900.0,
    "stopping_timeout": 600.0,
    "cancel_timeout": 300.0,
}


def configure(monkeypatch: pytest.MonkeyPatch, option: str, value: str) -> None:
    monkeypatch.setenv(f"AIRFLOW__RESUMABLE__{option.upper()}", value)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_that_is_not_configured_reads_as_the_protocol_says(option: Option) -> None:
    """Airflow's own configuration gives each option its default, in the option's type."""
    value = settings.read(option.name)

    assert value == PROTOCOL[option.name]
    assert type(value) is type(PROTOCOL[option.name])


def test_every_option_of_the_protocol_is_in_the_table() -> None:
    """The table has the protocol's options, all of them and no others."""
    assert [option.name for option in OPTIONS] == list(PROTOCOL)


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.allowed], ids=lambda option: option.name)
def test_every_allowed_word_is_read_back(option: Option, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each word a policy may be comes back as it was configured."""
    for word in option.allowed:
        configure(monkeypatch, option.name, word)
        assert settings.read(option.name) == word


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("enabled", "perhaps", "True or False"),
        ("enabled", "", "True or False"),
        ("on_clear", "Resubmit", "resubmit or reconnect"),
        ("on_user_stop", "", "cancel or keep"),
        ("cancel_timeout", "5 minutes", "a number of seconds, 0 or more"),
        ("cancel_timeout", "-1", "a number of seconds, 0 or more"),
        ("cancel_timeout", "inf", "a number of seconds, 0 or more"),
        ("cancel_timeout", "nan", "a number of seconds, 0 or more"),
        ("cancel_timeout", "", "a number of seconds, 0 or more"),
    ],
)
def test_a_wrong_value_is_refused_with_option_value_and_remedy(
    option: settings.OptionName, value: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names section, option, value, what is allowed, and the variable to correct."""
    configure(monkeypatch, option, value)

    with pytest.raises(ValueError, match=r"^\[resumable\]") as refused:
        settings.read(option)

    message = str(refused.value)
    assert message.startswith(f"[resumable] {option} is {value!r}; allowed: {allowed} ")
    assert f"AIRFLOW__RESUMABLE__{option.upper()}" in message


def test_an_empty_installation_id_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is set to nothing configures no installation id."""
    configure(monkeypatch, "installation_id", " ")

    assert settings.read("installation_id") is None


def test_an_installation_id_is_read_without_the_blanks_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id goes into every token, so stray blanks must not make another one."""
    configure(monkeypatch, "installation_id", " analytics ")

    assert settings.read("installation_id") == "analytics"


@pytest.mark.parametrize(("value", "expected"), [("false", False), ("F", False), ("0", False), ("T", True)])
def test_enabled_takes_the_spellings_airflow_takes(
    value: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A boolean may be spelt as in any other section of ``airflow.cfg``."""
    configure(monkeypatch, "enabled", value)

    assert settings.enabled() is expected


def test_an_option_that_does_not_exist_is_a_key_error() -> None:
    """A misspelt option is a mistake in code, not in configuration."""
    with pytest.raises(KeyError, match="on_restart"):
        settings.read("on_restart")  # type: ignore[call-overload]
