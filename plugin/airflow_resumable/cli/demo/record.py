# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a run of the demo came to, as a file that a second run writes again byte for byte, and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_resumable.cli.demo.cases import SIDES, Case, Outcome, Side

# Where the jobs run, and what runs them on the two sides.
_SYSTEMS = {
    "local": ("On the local job service", "Airflow's own mixin", "airflow-resumable"),
    "spark": ("On a Spark standalone cluster", "SparkSubmitOperator", "ResumableSparkSubmitOperator"),
    "kubernetes": (
        "On a Kubernetes API server, with a stand-in for the node",
        "KubernetesPodOperator",
        "ResumableKubernetesPodOperator",
    ),
    "spark-connect": (
        "On a Spark Connect server",
        "`spark.sql(...).collect()` in an operator",
        "ResumableSparkConnectOperator",
    ),
    "bigquery": (
        "On a BigQuery emulator",
        "BigQueryInsertJobOperator",
        "ResumableBigQueryInsertJobOperator",
    ),
    "emr": ("On a stand-in for Amazon EMR", "EmrAddStepsOperator", "ResumableEmrAddStepsOperator"),
    "emr-serverless": (
        "On a stand-in for EMR Serverless",
        "EmrServerlessStartJobOperator",
        "ResumableEmrServerlessStartJobOperator",
    ),
}
SYSTEMS = tuple(_SYSTEMS)
"""Every system that a record may have."""
README_SYSTEMS = ("local", "spark")
"""Those in the README, where four tables would be too many."""
_WINDOW = (
    "\\* In the window that Spark standalone leaves open; two jobs would not fail the demo here. See "
    "[what remains open](docs/operators/spark_submit.md)."
)
_LOCAL_ONLY = "The other six cases don't run on Spark; [four of them do on Kubernetes](docs/demo.md)."
_VALUES = ("jobs", "submits", "cancels", "state")


def write(
    file: Path,
    system: str,
    versions: Mapping[str, str],
    cases: Sequence[Case],
    outcomes: Mapping[tuple[str, Side], Outcome],
) -> None:
    """Put one system's outcomes into a JSON file; another system's stay as they are.

    Args:
        file: The file, which may be missing.
        system: A name of the command line: ``local``, ``spark``, ``emr-serverless``, ...
        versions: Versions by name.
        cases: The cases.
        outcomes: What they came to.

    Raises:
        ValueError: The file is there but isn't one of ours.
        OSError: It can't be read or written.
    """
    record = _read(file)
    record[system] = {
        "versions": dict(versions),
        "cases": [
            {
                "case": case.name,
                "title": case.title,
                "window": case.window,
                **{side: outcomes[case.name, side].as_dict() for side in SIDES},
            }
            for case in cases
        ],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({name: record[name] for name in sorted(record)}, indent=2)
    file.write_text(text + "\n", encoding="utf-8")


def check(file: Path) -> None:
    """See whether `write` could write to a file; raises as that does."""
    _read(file)
    if file.is_dir() or not (file.parent if file.parent.exists() else Path()).is_dir():
        raise ValueError(f"{file} can't be a record of the demo: name a file")


def _read(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        record = None
    if not isinstance(record, dict) or not record.keys() <= _SYSTEMS.keys():
        raise ValueError(f"{file} is not a record of the demo: name another file, or delete it")
    return record


def markdown(file: Path, systems: Sequence[str] = README_SYSTEMS) -> str:
    """Return the recorded tables as Markdown, an empty text when there are none.

    Args:
        file: As `write` has made it.
        systems: Whose tables.
    """
    record = _read(file)
    tables = [_table(name, record[name]) for name in systems if name in record]
    if "spark" in record and tuple(systems) == README_SYSTEMS:
        tables.append(f"{_LOCAL_ONLY}\n")
    return "\n".join(tables)


def _table(system: str, record: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    where, stock, ours = _SYSTEMS[system]
    lines = [
        f"{where} ({versions}). Each cell: **jobs started** / submits asked / cancels asked, end state.",
        "",
        f"| What happens | {stock} | {ours} |",
        "|:---|:---|:---|",
    ]
    for case in record["cases"]:
        cells = [case["title"][:1].upper() + case["title"][1:]]
        for side in SIDES:
            jobs, submits, cancels, state = (str(case[side][name]) for name in _VALUES)
            star = "\\*" if case["window"] and side == "ours" else ""
            cells.append(f"**{jobs}**{star} / {submits} / {cancels}, {state}")
        lines.append(f"| {' | '.join(cells)} |")
    if any(case["window"] for case in record["cases"]):
        lines += ["", _WINDOW]
    return "\n".join(lines) + "\n"
