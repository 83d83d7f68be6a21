# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Write the files that are generated from the code, or check that they are up to date.

``python -m scripts.generate`` writes them; with ``--check`` nothing is written, and the exit status is 1 when
one differs from what the code says now.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from airflow_resumable.cli.command import PROG, Argument, Command, Group
from airflow_resumable.cli.demo import record as demo_record
from airflow_resumable.cli.main import COMMANDS, GROUP
from airflow_resumable.integration.provider_info import get_provider_info
from airflow_resumable.testing import crash_matrix
from airflow_resumable.testing.soak import report
from scripts import operator_facts

ROOT = Path(__file__).resolve().parents[1]
_SOAK = "docs/_generated/soak.json"
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


def cli_reference() -> str:
    """The reference of every command: its arguments and its exit statuses."""
    parts = [_NOTICE]
    for words, command in _commands((), COMMANDS):
        name = " ".join(words)
        usage = " ".join(_usage(argument) for argument in command.arguments)
        parts.append(f"## `{name}`\n\n{command.help}.\n")
        parts.append(f"```text\n{PROG} {name} {usage}".rstrip() + f"\nairflow {GROUP} {name} ...\n```\n")
        if command.arguments:
            rows = "\n".join(_row(argument) for argument in command.arguments)
            parts.append(f"| argument | what it does |\n|:---|:---|\n{rows}\n")
        if command.statuses:
            rows = "\n".join(f"| {status} | {meaning} |" for status, meaning in command.statuses)
            parts.append(f"| exit status | when |\n|:---|:---|\n{rows}\n")
    return "\n".join(parts)


def _commands(
    words: tuple[str, ...], commands: tuple[Command | Group, ...]
) -> Iterator[tuple[tuple[str, ...], Command]]:
    for command in commands:
        if isinstance(command, Group):
            yield from _commands((*words, command.name), command.commands)
        else:
            yield (*words, command.name), command


def _usage(argument: Argument) -> str:
    text = _spelled(argument)
    return f"[{text}]" if argument.flags[0].startswith("-") else text


def _spelled(argument: Argument) -> str:
    options = argument.options
    if not argument.flags[0].startswith("-"):
        return str(options.get("metavar", argument.flags[0]))
    if options.get("action") == "store_true":
        return argument.flags[0]
    value = options.get("metavar") or "{" + ",".join(options.get("choices", ())) + "}"
    more = " ..." if options.get("nargs") == "+" else ""
    return f"{argument.flags[0]} {value}{more}"


def _row(argument: Argument) -> str:
    return f"| `{_spelled(argument)}` | {argument.options['help']} |"


def readme() -> str:
    """The README, with what the last runs of the demo and the soak came to between its markers."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = _between(text, "crash-table", demo_record.markdown(ROOT / "docs/_generated/demo.json"))
    return _between(text, "soak", report.sentence(ROOT / _SOAK))


def _between(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->\n"
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"README.md has no {name}:begin and {name}:end, each on a line of its own")
    return f"{before}{begin}{content}{end}{after}"


def soak() -> str:
    """What the last soak came to."""
    return f"{_NOTICE}\n{report.markdown(ROOT / _SOAK)}"


def demo() -> str:
    """What the last runs of the demo came to, on every system."""
    tables = demo_record.markdown(ROOT / "docs/_generated/demo.json", demo_record.SYSTEMS)
    # Written for the README, which lies above docs/.
    tables = tables.replace("](docs/", "](")
    return f"{_NOTICE}\n{tables}"


def events() -> str:
    """What happens to the job, by event and Airflow version, as tests/stack/test_kill_table.py saw it."""
    recorded = [
        json.loads(file.read_text(encoding="utf-8"))
        for file in sorted((ROOT / "docs/_generated").glob("events-*.json"))
    ]
    versions = [run["airflow"] for run in recorded]
    lines = [
        _NOTICE,
        f"| event | policy | {' | '.join(f'Airflow {one}' for one in versions)} |",
        "|---|---|" + "---|" * len(versions),
    ]
    for name, first in (recorded[0]["events"] if recorded else {}).items():
        cells = [_event(run["events"].get(name)) for run in recorded]
        lines.append(f"| {first['title']} | {first['policy'] or 'default'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _event(outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return "not recorded"
    counts = [_count(outcome["started"], "job"), _count(outcome["cancels"], "cancel")]
    return f"**{outcome['job']}**, task {outcome['state']}, {', '.join(counts)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def matrix() -> str:
    """What the last run of the whole crash matrix came to."""
    return f"{_NOTICE}\n{crash_matrix.markdown(ROOT / 'docs/_generated/matrix.json')}"


def _facts_pages() -> dict[str, Callable[[], str]]:
    """The tables of each operator's page."""
    return {
        f"docs/_generated/facts_{_snake(name)}.md": partial(_facts_page, kind)
        for name, kind in operator_facts.operators().items()
    }


def _facts_page(kind: type[Any]) -> str:
    return f"{_NOTICE}\n{operator_facts.page(kind)}"


def _snake(name: str) -> str:
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", name.removeprefix("Resumable").removesuffix("Operator"))
    return words.lower()


GENERATORS: dict[str, Callable[[], str]] = {
    "docs/_generated/matrix.md": matrix,
    "docs/_generated/operators.md": lambda: f"{_NOTICE}\n{operator_facts.overview()}",
    **_facts_pages(),
    "docs/_generated/config.md": config_reference,
    "docs/_generated/cli.md": cli_reference,
    "docs/_generated/demo.md": demo,
    "docs/_generated/events.md": events,
    "docs/_generated/soak.md": soak,
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
