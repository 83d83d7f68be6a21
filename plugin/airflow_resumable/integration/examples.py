# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Where the example Dags are."""

from __future__ import annotations

from pathlib import Path


def example_dags_folder() -> Path:
    """The folder with the example Dags, in an installed wheel as well as in an editable checkout.

    A wheel has them inside the package; a checkout has them at its root, two levels above the two halves of
    the namespace package.

    Raises:
        FileNotFoundError: Neither place has them.
    """
    import airflow_resumable

    roots = [Path(entry) for entry in airflow_resumable.__path__]
    places = [root / "example_dags" for root in roots] + [root.parents[1] / "example_dags" for root in roots]
    for place in places:
        if place.is_dir():
            return place
    looked = ", ".join(str(place) for place in places)
    raise FileNotFoundError(
        f"airflow-resumable's example Dags are missing; looked in {looked}. Reinstall it."
    )
