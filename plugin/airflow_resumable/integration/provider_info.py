# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What this package tells Airflow's providers manager about itself."""

from __future__ import annotations

from typing import Any

from airflow_resumable.integration.settings import OPTIONS, SECTION, Option

# Airflow drops a provider whose "package-name" isn't the name of the distribution it came from.
DISTRIBUTION = "airflow-resumable"


def get_provider_info() -> dict[str, Any]:
    """The provider info of this package, as Airflow's ``provider_info.schema.json`` wants it.

    ``cli`` is read by Airflow 3.2 and newer; older versions ignore it and have the console script only.
    """
    return {
        "package-name": DISTRIBUTION,
        "name": "Resumable",
        "description": "External jobs started exactly once, watched to their end, whatever dies in between.",
        "config": {
            SECTION: {
                "description": "Options of airflow-resumable.",
                "options": {option.name: _declaration(option) for option in OPTIONS},
            }
        },
        "cli": ["airflow_resumable.cli.main.airflow_commands"],
    }


def _declaration(option: Option) -> dict[str, str | None]:
    description = option.description
    if option.allowed:
        description += f" Allowed: {', '.join(f'`{word}`' for word in option.allowed)}."
    return {
        "description": description,
        "version_added": option.version_added,
        "type": option.type,
        "example": option.example,
        "default": option.default,
    }
