# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's record, and the README's table that is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_resumable.cli.demo import record as demo_record
from airflow_resumable.cli.demo.cases import BEFORE_ID, Outcome, Side

ROOT = Path(__file__).resolve().parents[2]
OUTCOMES: dict[tuple[str, Side], Outcome] = {
    ("before-id", "stock"): Outcome(2, 2, 0, "success"),
    ("before-id", "ours"): Outcome(1, 2, 0, "success"),
}


def write(file: Path, system: str = "local", jobs: int = 2) -> None:
    outcomes = {**OUTCOMES, ("before-id", "stock"): Outcome(jobs, 2, 0, "success")}
    demo_record.write(file, system, {"Airflow": "3.3.2"}, [BEFORE_ID], outcomes)


def test_the_readme_has_the_table_of_the_last_run() -> None:
    """What stands between the README's markers is made of the record that `make demo` wrote."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("<!-- crash-table:begin -->\n")
    table, end, _ = rest.partition("<!-- crash-table:end -->\n")

    assert end
    assert table == demo_record.markdown(ROOT / "docs/_generated/demo.json")
    assert "On the local job service" in table


def test_the_same_outcomes_give_the_same_file(tmp_path: Path) -> None:
    """A second run that came to the same leaves nothing to commit."""
    file = tmp_path / "new folder" / "demo.json"
    write(file)
    first = file.read_bytes()
    write(file)

    assert file.read_bytes() == first
    (case,) = json.loads(first)["local"]["cases"]
    assert case["stock"] == {"jobs": 2, "submits": 2, "cancels": 0, "state": "success"}


def test_a_run_on_one_system_keeps_what_the_other_came_to(tmp_path: Path) -> None:
    """Two systems share the file, and each run writes its own part."""
    file = tmp_path / "demo.json"
    write(file)
    write(file, "spark", jobs=3)
    write(file, "local", jobs=4)
    record = json.loads(file.read_text())

    assert [record[name]["cases"][0]["stock"]["jobs"] for name in ("local", "spark")] == [4, 3]


def test_the_table_has_all_eight_values(tmp_path: Path) -> None:
    """One row for a case: its title, then four values for each side."""
    file = tmp_path / "demo.json"
    write(file)
    lines = demo_record.markdown(file).splitlines()

    assert lines[0].startswith("On the local job service (Airflow 3.3.2). Each cell:")
    assert lines[-1] == f"| {BEFORE_ID.title} | **2** / 2 / 0, success | **1** / 2 / 0, success |"
    assert len({line.count("|") for line in lines[2:]}) == 1


def test_no_record_is_no_table(tmp_path: Path) -> None:
    """Before the first run the README has nothing between its markers."""
    assert demo_record.markdown(tmp_path / "demo.json") == ""


@pytest.mark.parametrize("content", ["{", "[]", '{"other": 1}'])
def test_a_file_of_another_kind_is_not_overwritten(tmp_path: Path, content: str) -> None:
    """A slip in the file's name is said before anything runs, and the file stays as it is."""
    file = tmp_path / "demo.json"
    file.write_text(content)

    for use in (demo_record.check, write):
        with pytest.raises(ValueError, match="is not a record of the demo: name another file, or delete it"):
            use(file)
    assert file.read_text() == content


def test_a_folder_is_no_record(tmp_path: Path) -> None:
    """Nor can a record be written below a file."""
    (tmp_path / "file").touch()
    for wrong in (tmp_path, tmp_path / "file" / "demo.json"):
        with pytest.raises((ValueError, OSError)):
            demo_record.check(wrong)
