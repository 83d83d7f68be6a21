# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The mark at the end of a step's name: EMR takes no token, but lists steps with their names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

LONGEST_NAME = 256
"""Characters of a step's name, at most (``XmlStringMaxLen256`` of EMR's API)."""

_MARK = re.compile(r"\[(?P<token>r[0-9a-f]{32}) (?P<place>\d+)/(?P<of>\d+) (?P<call>[0-9a-f]+)\]\Z")


@dataclass(frozen=True, slots=True)
class Mark:
    """What the end of a step's name says.

    Args:
        token: The idempotency token of the steps that were added together.
        place, of: The step is number `place`, from 1, of so many.
        call: Tells the steps of two requests with one token apart.
    """

    token: str
    place: int
    of: int
    call: str

    @property
    def family(self) -> str:
        """The 16 hex digits that the tokens of all generations share."""
        return self.token[1:17]

    def put_on(self, name: str) -> str:
        """Return a name with the mark at its end; one that would get too long loses its own end."""
        mark = f"[{self.token} {self.place}/{self.of} {self.call}]"
        room = LONGEST_NAME - len(mark) - 1
        kept = name if len(name) <= room else f"{name[: room - 1]}…"
        return f"{kept} {mark}" if kept else mark

    @classmethod
    def read(cls, name: str) -> Mark | None:
        """Return the mark of a step's name, None where it has none."""
        found = _MARK.search(name)
        if found is None:
            return None
        return cls(found["token"], int(found["place"]), int(found["of"]), found["call"])


def marked(steps: list[dict[str, Any]], token: str, call: str) -> list[dict[str, Any]]:
    """Return copies of steps with the mark on each name.

    Args:
        steps: Steps as EMR wants them, each with a ``Name``.
        token: The idempotency token.
        call: A few hex digits that no other request of the token has.
    """
    return [
        {**step, "Name": Mark(token, place, len(steps), call).put_on(str(step["Name"]))}
        for place, step in enumerate(steps, start=1)
    ]
