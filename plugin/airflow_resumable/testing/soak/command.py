# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""``make soak``: runs the schedules of many seeds, a few at a time, and writes the report."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.soak import report
from airflow_resumable.testing.soak.file_run import FileRun
from airflow_resumable.testing.soak.history import History
from airflow_resumable.testing.soak.laws import judge
from airflow_resumable.testing.soak.schedule import Schedule, draw, draw_for_stack
from airflow_resumable.testing.soak.stack_run import DAGS, StackRun
from airflow_resumable.testing.stack import AirflowStack
from airflow_resumable.testing.variants import VARIANTS

SEEDS = {"file": range(1, 441), "stack": range(1, 61)}
"""The seeds of a whole soak."""


def main(words: Sequence[str], folder: str) -> int:
    """Run the command line and return the exit status.

    Args:
        words: The command line.
        folder: Where everything goes that the schedules leave.
    """
    args = _parser().parse_args(words)
    try:
        # Asked now: an hour later would be late.
        report.read(args.report)
    except (OSError, ValueError) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2
    deadline = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    parts, broken = {}, False
    for name in args.only or SEEDS:
        seeds = args.seeds or SEEDS[name]
        tally = _PARTS[name](Path(folder) / name, seeds, args, deadline)
        if tally.seeds:
            versions = {one: version(one) for one in ("apache-airflow", "airflow-resumable")}
            parts[name] = tally.as_dict(versions)
        broken = broken or bool(tally.violations)
        print(
            f"{name}: {len(tally.seeds)} of {len(seeds)} schedules, {len(tally.violations)} break a law, "
            f"{tally.seconds:.0f} s; {dict(tally.allowed)}"
        )
    if parts and args.variant is None:
        report.write(args.report, parts)
        print(f"Recorded in {args.report}.")
    return int(broken)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, help="A-B; 1-440 on files and 1-60 on the stack if left out")
    parser.add_argument("--only", action="append", choices=list(SEEDS), help="a part; both if left out")
    parser.add_argument("--minutes", type=float, help="begin no schedule later than that")
    parser.add_argument("--workers", type=int, default=2, help="schedules at once (2)")
    parser.add_argument("--report", type=Path, default=Path("docs/_generated/soak.json"), help="the report")
    parser.add_argument("--variant", choices=list(VARIANTS), help="break the protocol on purpose, files only")
    return parser


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        seeds = range(int(first), int(last or first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; use two numbers, A-B, with A up to B")
    return seeds


def _on_files(folder: Path, seeds: range, args: argparse.Namespace, deadline: float) -> report.Tally:
    def run(seed: int) -> History:
        place = folder / str(seed)
        place.mkdir(parents=True)
        with FileRun(draw(seed), place, args.variant) as one:
            return one.run()

    return _all(run, draw, seeds, args.workers, deadline)


def _on_stack(folder: Path, seeds: range, args: argparse.Namespace, deadline: float) -> report.Tally:
    with (
        CrashController() as crash,
        AirflowStack(folder / "airflow", [DAGS], crash.env, parallelism=16) as stack,
    ):
        for grade in ("closed", "narrowed", "open"):
            stack.wait_for_dag(f"soak_{grade}")

        def run(seed: int) -> History:
            with StackRun(draw_for_stack(seed), folder / str(seed), stack, crash) as one:
                return one.run()

        return _all(run, draw_for_stack, seeds, args.workers, deadline)


_PARTS = {"file": _on_files, "stack": _on_stack}


def _all(
    run: Callable[[int], History],
    schedule: Callable[[int], Schedule],
    seeds: range,
    workers: int,
    deadline: float,
) -> report.Tally:
    tally, began, waiting, lock = report.Tally(), time.monotonic(), iter(seeds), threading.Lock()

    def next_seeds() -> Iterator[int]:
        while time.monotonic() < deadline:
            with lock:
                seed = next(waiting, None)
            if seed is None:
                return
            yield seed

    def work() -> None:
        for seed in next_seeds():
            history = run(seed)
            verdict = judge(history)
            with lock:
                tally.add(history, verdict)
                _tell(tally, schedule(seed), history)

    with ThreadPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(work) for _ in range(workers)]):
            done.result()
    tally.seconds = time.monotonic() - began
    return tally


def _tell(tally: report.Tally, schedule: Schedule, history: History) -> None:
    violations = tally.violations.get(schedule.seed)
    if violations:
        attempts = "; ".join(
            f"try {one.try_number}: {one.hit or 'nothing'}, {one.how}" for one in history.attempts.values()
        )
        print(
            f"{schedule}\n  {attempts}\n  BROKEN: {'; '.join(violations)}\n  log: {history.log}", flush=True
        )
    elif len(tally.seeds) % 20 == 0:
        print(f"{len(tally.seeds)} schedules, {len(tally.violations)} break a law", flush=True)
