# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Sphinx's configuration. ``make docs`` builds with every warning an error."""

from __future__ import annotations

from importlib.metadata import version as _version

project = "airflow-resumable"
author = "The airflow-resumable authors"
copyright = f"2026, {author}"
release = version = _version("airflow-resumable")

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# _generated/ holds what scripts/generate.py writes; pages include it.
exclude_patterns = ["_build", "_generated"]
nitpicky = True

html_theme = "furo"
html_title = project
