# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The crash matrix: an attempt dies at every point, in every way, and the service counts the jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.jobs.crashpoints import POINTS
from airflow_resumable.testing.conformance_deferral import with_id
from airflow_resumable.testing.conformance_service import ServiceUnderTest
from airflow_resumable.testing.forked_try import DEATHS, Death, Ended, ForkedTry, Method

_LATE = POINTS[POINTS.index("mid_poll") + 1 :]
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of one death.

    Attributes:
        point: Where the first try died.
        death: How.
        reached: Whether it came there at all; an operator may have a poll loop that passes no point.
        jobs: Jobs that the service has started.
        cancels: Cancels that it was asked for; -1 where it can't count them.
        end: ``success`` when a later try returned what an undisturbed run returns, else what ended the last.
        window: Whether the operator states a window here, in which two jobs are no breach.
    """

    point: str
    death: str
    reached: bool
    jobs: int
    cancels: int
    end: str
    window: bool

    @property
    def holds(self) -> bool:
        """Whether this is what is promised."""
        jobs = self.jobs == 1 or (self.window and self.jobs == 2)
        # A job too many may be ended by whoever has started it.
        return jobs and self.cancels <= self.jobs - 1 and self.end == "success"


class CrashMatrix:
    """Makes the cells of one operator.

    Args:
        maker: For a service and an outcome, as in the conformance suite, what makes the operator.
        window: What the operator states.
        folder: Where stores are kept.
        method: See `ForkedTry`.
    """

    def __init__(
        self,
        maker: Callable[[Any, Any], Callable[[], Any]],
        window: SubmitWindow,
        folder: Path,
        method: Method = "fork",
    ) -> None:
        self._maker = maker
        self._method = method
        self._window = window
        self._folder = folder
        self._count = 0
        self._whole: Any = None

    def undisturbed(self, service: Any) -> Ended:
        """Run a task instance whose only try dies nowhere."""
        ended = self._try(service, "succeeds", self._store(), 1).end()
        self._whole = next((one.external_id for one in service.jobs()), None)
        return ended

    def cell(self, service: ServiceUnderTest, point: str, death: Death, expected: Ended) -> Cell:
        """Let the first try of a task instance die, and carry its job on.

        Args:
            service: The service, with no job in it.
            point: Where.
            death: How.
            expected: What an undisturbed run came to.
        """
        store = self._store()
        # From the first look on a job that has ended would be found so by the next try.
        outcome = "succeeds" if point in _LATE else "runs"
        first = self._try(service, outcome, store, 1, point, death)
        reached = first.reached()
        if death != "SIGKILL supervisor":
            ended = first.end()
        last = self._go_on(service, store)
        if death == "SIGKILL supervisor":
            # Its worker goes on with nobody to talk to, beside the next try.
            ended = first.end()
        if not reached and last is None:
            last = ended
        return Cell(
            point,
            death,
            reached,
            len(service.jobs()),
            _cancels(service),
            self._end(last, expected, service),
            self._may_double(point, death),
        )

    def _try(
        self,
        service: Any,
        outcome: str,
        store: Path,
        number: int,
        point: str | None = None,
        death: Death = "SIGKILL task",
    ) -> ForkedTry:
        return ForkedTry(self._maker(service, outcome), store, number, point, death, self._method)

    def _go_on(self, service: ServiceUnderTest, store: Path) -> Ended | None:
        last = None
        for number in range(2, _TRIES + 1):
            again = self._try(service, "runs", store, number)
            service.release()
            last = again.end()
            if last.how == "returned":
                break
        return last

    def _may_double(self, point: str, death: str) -> bool:
        """Say whether two attempts may be in their submit, or one dead in it, and the service can't tell."""
        if self._window is SubmitWindow.CLOSED:
            return False
        if death == "SIGKILL supervisor":
            return point in ("before_intent", "after_intent")
        return self._window is SubmitWindow.OPEN and point == "after_accept"

    def _end(self, last: Ended | None, expected: Ended, service: ServiceUnderTest) -> str:
        if last is None or last.how != "returned":
            return last.how if last else "nothing"
        # A result may tell the job's id.
        same = [with_id(expected.value, self._whole, one.external_id) for one in service.jobs()]
        if last.value not in (expected.value, *same):
            return f"another result: {last.value!r}"
        if set(last.xcoms or ()) != set(expected.xcoms or ()):
            return f"other XComs: {sorted(last.xcoms or ())}"
        return "success"

    def _store(self) -> Path:
        self._count += 1
        return self._folder / f"store-{self._count}"


def _cancels(service: ServiceUnderTest) -> int:
    try:
        return service.cancels()
    except NotImplementedError:
        return -1


def every_cell() -> Iterator[tuple[str, Death]]:
    """Return every point and every way to die."""
    for point in POINTS:
        for death in DEATHS:
            yield point, death


def record(file: Path, operator: str, cells: Sequence[Cell]) -> None:
    """Put one operator's cells into a JSON file; another's stay as they are."""
    known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known[operator] = [asdict(one) for one in cells]
    text = json.dumps({name: known[name] for name in sorted(known)}, indent=1)
    file.write_text(text + "\n", encoding="utf-8")


def markdown(file: Path) -> str:
    """Return the recorded cells as a table: a row for each point, a column for each operator."""
    known: Mapping[str, list[dict[str, Any]]] = (
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    )
    if not known:
        return "Nothing was recorded yet.\n"
    lines = [
        f"Each cell: jobs started when the first try died by {', '.join(DEATHS)}. A dash: the operator's own "
        "poll loop passes no such point. \\*: the stated window, in which two are allowed.",
        "",
        f"| the first try dies | {' | '.join(known)} |",
        "|:---|" + ":---|" * len(known),
    ]
    for point in POINTS:
        cells = [_cell([one for one in known[name] if one["point"] == point]) for name in known]
        lines.append(f"| `{point}` | {' | '.join(cells)} |")
    every = [Cell(**one) for cells in known.values() for one in cells]
    good = sum(one.holds for one in every)
    lines += ["", f"{len(every)} cells, {good} as promised; cancels asked for: {_sum_of_cancels(every)}."]
    return "\n".join(lines) + "\n"


def _cell(cells: Sequence[dict[str, Any]]) -> str:
    words = []
    for death in DEATHS:
        found = [Cell(**cell) for cell in cells if cell["death"] == death]
        if not found or not found[0].reached:
            words.append("-")
            continue
        mark = "\\*" if found[0].window else ""
        words.append(f"{found[0].jobs}{mark}{'' if found[0].holds else ' (!)'}")
    return " / ".join(words)


def _sum_of_cancels(cells: Sequence[Cell]) -> int:
    return sum(max(0, one.cancels) for one in cells)
