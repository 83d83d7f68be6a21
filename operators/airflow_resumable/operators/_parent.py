# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Whether an installed provider has what an operator here is built on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider whose operators have subclasses here.

    Args:
        distribution: Its name.
        tested: The versions that the tests run against; the first is the oldest.
        needed_by: The operators here.
    """

    distribution: str
    tested: tuple[str, ...]
    needed_by: str

    def check(self, parent: object, names: Iterable[str]) -> None:
        """Make sure that the installed version has what is needed of it.

        Args:
            parent: A class, or an object once it was made.
            names: The attributes, private ones for the most part.

        Raises:
            ImportError: Names what is missing, and the versions that have it.
        """
        missing = [name for name in names if not hasattr(parent, name)]
        if missing:
            owner = parent.__name__ if isinstance(parent, type) else type(parent).__name__
            raise ImportError(
                f"{owner} of the installed {self.distribution} has no {', '.join(missing)}, which "
                f"{self.needed_by} needs; tested with {', '.join(self.tested)}: install one of these, or a "
                "newer airflow-resumable"
            )
