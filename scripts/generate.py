# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Write the files that are generated from the code, or check that they are up to date.

``python scripts/generate.py`` writes them; with ``--check`` nothing is written, and the exit status is 1 when
one differs from what the code says now.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path

from airflow_resumable.cli import demo_record
from airflow_resumable.integration.provider_info import get_provider_info

ROOT = Path(__file__).resolve().parents[1]
_NOTICE = "<!-- Written by `make generate`. Change the code instead. -->\n"


def config_reference() -> str:
    """The reference of every option this package declares, from its provider info."""
    parts = [_NOTICE]
    for section, content in get_provider_info()["config"].items():
        parts.append(
            f"## `[{section}]`\n\n{content['description']}\n"
            f"Each may be set in `airflow.cfg` or as an environment variable, "
            f"`AIRFLOW__{section.upper()}__<OPTION>`.\n"
        )
        for name, option in content["options"].items():
            default = f"`{option['default']}`" if option["default"] is not None else "not set"
            facts = [f"type: {option['type']}", f"default: {default}"]
            if option["example"] is not None:
                facts.append(f"example: `{option['example']}`")
            facts.append(f"since {option['version_added']}")
            parts.append(f"### `{name}`\n\n{option['description']}\n\n{' · '.join(facts)}\n")
    return "\n".join(parts)


def readme() -> str:
    """The README, with what the last run of the demo came to between its markers."""
    begin, end = "<!-- crash-table:begin -->\n", "<!-- crash-table:end -->\n"
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError("README.md has no crash-table:begin and crash-table:end, each on a line of its own")
    return f"{before}{begin}{demo_record.markdown(ROOT / 'docs/_generated/demo.json')}{end}{after}"


GENERATORS: dict[str, Callable[[], str]] = {
    "docs/_generated/config.md": config_reference,
    "README.md": readme,
}


def main() -> int:
    """Write or check every generated file and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    check = parser.parse_args().check
    stale = False
    for name, generate in GENERATORS.items():
        path = ROOT / name
        wanted = generate()
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        if found == wanted:
            continue
        if check:
            stale = True
            diff = difflib.unified_diff(
                found.splitlines(keepends=True), wanted.splitlines(keepends=True), name, f"{name} (generated)"
            )
            sys.stdout.writelines(diff)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted, encoding="utf-8")
            print(f"wrote {name}")
    if stale:
        print(
            "Generated files are out of date: run `make generate` and commit what it writes.", file=sys.stderr
        )
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
