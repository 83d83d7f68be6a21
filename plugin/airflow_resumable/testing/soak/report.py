# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a soak came to, as a file, and as the Markdown that is made of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_resumable.testing.soak.history import History
from airflow_resumable.testing.soak.laws import IN_WINDOW, Verdict

PARTS = {
    "file": "attempts as processes of their own, the job service, a task state store in files",
    "stack": "a real Airflow (API server, scheduler, LocalExecutor), the job service",
}
"""What a soak runs on."""
_LEFT_OUT = (
    "Left out of the schedules, because nobody is left then who could do anything: SIGKILL, SIGSTOP or a "
    "broken store in the last try, and a service that goes on refusing cancels while a user marks the task."
)


@dataclass
class Tally:
    """Counts over many schedules.

    Attributes:
        seeds: The seeds, in the order in which they ended.
        counts: Of schedules, attempts, jobs, requests, final states.
        befell: How often each disturbance happened, and each spoiled request.
        allowed: What the protocol names as an exception.
        violations: By seed.
        seconds: From the first schedule to the end of the last.
    """

    seeds: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    befell: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)
    violations: dict[int, list[str]] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, history: History, verdict: Verdict) -> None:
        """Count one schedule."""
        self.seeds.append(history.schedule.seed)
        self.counts["schedules"] += 1
        self.counts[history.schedule.grade] += 1
        self.counts["attempts"] += len(history.attempts)
        self.counts["jobs"] += len(history.jobs)
        self.counts["requests"] += len(history.requests)
        self.counts["clears"] += len(history.clears)
        self.counts["clears discard the record"] += history.schedule.discards
        self.counts["installation_id set"] += bool(history.schedule.installation)
        self.counts[f"ended in {history.state}"] += 1
        self.befell.update(one.hit for one in history.attempts.values() if one.hit)
        self.befell.update(
            f"{one['verb']} request: {one['fault']}" for one in history.requests if one["fault"]
        )
        self.allowed.update(verdict.allowed)
        if verdict.violations:
            self.violations[history.schedule.seed] = verdict.violations

    def as_dict(self, versions: Mapping[str, str]) -> dict[str, Any]:
        """Return it for the report."""
        return {
            "versions": dict(versions),
            "seeds": f"{min(self.seeds)}-{max(self.seeds)}",
            "seconds": round(self.seconds),
            "violations": {str(seed): self.violations[seed] for seed in sorted(self.violations)},
            "counts": dict(sorted(self.counts.items())),
            "befell": dict(sorted(self.befell.items())),
            "allowed": dict(sorted(self.allowed.items())),
        }


def write(file: Path, parts: Mapping[str, Mapping[str, Any]]) -> None:
    """Put the parts that ran into a report; another part's stays as it is.

    Raises:
        ValueError: The file is there but isn't a report.
        OSError: It can't be read or written.
    """
    report = {**read(file), **parts}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({name: report[name] for name in sorted(report)}, indent=2) + "\n", "utf-8")


def read(file: Path) -> dict[str, Any]:
    """Return a report, an empty one when there is no file."""
    if not file.exists():
        return {}
    try:
        report = json.loads(file.read_text("utf-8"))
    except ValueError:
        report = None
    if not isinstance(report, dict) or not report.keys() <= PARTS.keys():
        raise ValueError(f"{file} is not a report of the soak: name another file, or delete it")
    return report


def sentence(file: Path) -> str:
    """Return the report in one line of Markdown, an empty text when there is none."""
    report = read(file)
    if not report:
        return ""
    told = []
    for name, words in (("file", "with the job service and a file store"), ("stack", "on a real Airflow")):
        if name in report:
            told.append(f"{report[name]['counts']['schedules']} {words}")
    violations = sum(len(part["violations"]) for part in report.values())
    jobs = sum(part["counts"]["jobs"] for part in report.values())
    window = sum(part["allowed"].get(IN_WINDOW, 0) for part in report.values())
    others = sum(sum(part["allowed"].values()) for part in report.values()) - window
    return (
        f"Random schedules of kills, stops, clears and spoiled requests, by `make soak`: "
        f"{' and '.join(told)}; {jobs} jobs, **{violations}** schedules that break the promise, "
        f"{window} jobs inside a named window and {others} other exceptions, each with its ground in the "
        f"[report](docs/_generated/soak.md).\n"
    )


def markdown(file: Path) -> str:
    """Return the report as a page."""
    report = read(file)
    lines = ["# Soak", "", _LEFT_OUT, ""]
    for name, what in PARTS.items():
        if name not in report:
            continue
        part = report[name]
        versions = ", ".join(f"{one} {number}" for one, number in part["versions"].items())
        lines += [
            f"## On {what}",
            "",
            f"{versions}. Seeds {part['seeds']}, {part['seconds']} s. "
            f"Schedules that break section 1: **{len(part['violations'])}**.",
            "",
        ]
        for title, counts in (
            ("Counted", part["counts"]),
            ("What befell the attempts and the service's requests", part["befell"]),
            ("Named exceptions, by their own signs in the log", part["allowed"]),
        ):
            lines += [f"| {title} | |", "|:---|---:|"]
            lines += [f"| {name} | {count} |" for name, count in counts.items()] + [""]
        for seed, violations in part["violations"].items():
            lines.append(f"- seed {seed}: {'; '.join(violations)}")
    return "\n".join(lines).rstrip() + "\n"
