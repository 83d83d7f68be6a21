# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The main job as a user starts it: real kills, one table, the exit status, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psutil
import pytest

from tests import systems

pytestmark = pytest.mark.stack

# What the console script does, which needn't be on PATH.
SCRIPT = "import sys; from airflow_resumable.cli.main import main; sys.exit(main())"
STOCK_DOUBLED = ["2", "2", "0", "success"]
STOCK_CANCELLED = ["2", "2", "1", "success"]
OURS = ["1", "1", "0", "success"]


class Demo:
    """A demo that runs as a process of its own, killed at the latest with the block.

    Args:
        folder: Its temporary folder, which it must leave empty.
        words: The command line after ``demo``.
    """

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.started: list[psutil.Process] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, "demo", *words],
            env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()

    def wait_for_line(self, words: str) -> None:
        """Read on until a line has these words; remember every process that runs then."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            if words in line:
                self.started += psutil.Process(self._process.pid).children(recursive=True)
                return
        raise AssertionError(f"no line with {words!r}:\n{self.text}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the demo alone, as a terminal would: the others are in other sessions."""
        self._process.send_signal(number)

    def end(self) -> int:
        """Read to the end; return the exit status."""
        assert self._process.stdout is not None
        self.lines += [line.rstrip("\n") for line in self._process.stdout]
        return self._process.wait()

    @property
    def text(self) -> str:
        """All that was printed."""
        return "\n".join(self.lines)

    def left_behind(self, within: float = 0.0) -> Sequence[object]:
        """Return processes that still run, found as descendants and by the folder they work in."""
        _, alive = psutil.wait_procs(self.started, timeout=within)
        alive += [one for one in psutil.process_iter() if _works_in(one, self.folder)]
        # Of an orphan that was killed the host's own first process has yet to take notice.
        return [one for one in alive if _status(one) != psutil.STATUS_ZOMBIE]


def _status(process: psutil.Process) -> str | None:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return str(folder) in " ".join([process.cwd(), *process.cmdline()])
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def row(demo: Demo, case: str) -> list[str]:
    """Return a case's row of the table."""
    head = next(number for number, line in enumerate(demo.lines) if "submits" in line)
    return next(line.split() for line in demo.lines[head:] if line.split()[:1] == [case])


def test_two_cases_end_with_the_table_and_status_0(tmp_path: Path) -> None:
    """The stock side starts a second job, ours doesn't; neither a process nor a file stays."""
    with Demo(tmp_path, "--cases", "sigterm,before-id", "--record", str(tmp_path / "none.json")) as demo:
        demo.wait_for_line("SIGKILL worker")

        assert demo.end() == 0, demo.text
        assert row(demo, "before-id") == ["before-id", *STOCK_DOUBLED, *OURS]
        assert row(demo, "sigterm") == ["sigterm", *STOCK_CANCELLED, *OURS]
        assert "Exit status 0 (else 1): ours came to what is right in every case." in demo.text
        assert "\x1b" not in demo.text
        assert "mid-poll" not in demo.text
        assert len(demo.started) > 5
        assert demo.left_behind() == []
        # Not even a record: other cases were not run.
        assert list(tmp_path.iterdir()) == []


def test_a_user_time_and_a_split_brain_end_as_they_must(tmp_path: Path) -> None:
    """Clears, a mark, a time-out, a SIGSTOP and a forgotten job: what the service counted, stock and ours."""
    cases = "clear-done,clear-live,mark-fail,time-out,split,forgotten"
    with Demo(tmp_path, "--cases", cases) as demo:
        assert demo.end() == 0, demo.text
        assert row(demo, "clear-done")[-4:] == ["2", "2", "0", "success"]
        assert row(demo, "clear-live")[-4:] == ["2", "2", "1", "success"]
        assert row(demo, "mark-fail")[-4:] == ["1", "1", "1", "failed"]
        assert row(demo, "time-out") == ["time-out", *STOCK_CANCELLED, *OURS]
        assert row(demo, "split")[-4:] == OURS
        assert row(demo, "forgotten")[-4:] == ["1", "1", "0", "failed"]


def test_ctrl_c_in_the_middle_of_the_cases_leaves_nothing(tmp_path: Path) -> None:
    """Status 130, one line, no traceback, no process, no folder."""
    with Demo(tmp_path, "--cases", "supervisor,mid-poll") as demo:
        demo.wait_for_line("SIGKILL worker")
        demo.send(signal.SIGINT)

        assert demo.end() == 130
        assert demo.lines[-1] == "airflow-resumable demo: interrupted"
        assert "Traceback" not in demo.text
        assert len(demo.started) > 5
        assert demo.left_behind() == []
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_demo_stopped_in_its_start_leaves_no_process(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """Also when it was killed and had no chance to tidy up."""
    with Demo(tmp_path, "--cases", "mid-poll") as demo:
        demo.wait_for_line("Starting Airflow")
        demo.send(number)

        assert demo.end() == status
        assert "Traceback" not in demo.text
        assert demo.left_behind(within=30) == []


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_on_spark_ends_with_the_table_and_status_0(tmp_path: Path) -> None:
    """Every case on a real cluster; in the two of the stated window ours may have one job or two."""
    record = tmp_path / "kept" / "demo.json"
    with Demo(tmp_path, "--system", "spark", "--record", str(record)) as demo:
        demo.wait_for_line("SIGKILL worker")

        assert demo.end() == 0, demo.text
        assert demo.left_behind() == []
        cases = json.loads(record.read_text())["spark"]["cases"]
        assert [case["case"] for case in cases if case["ours"]["jobs"] != 1 and not case["window"]] == []
        assert {case["ours"]["state"] for case in cases} == {"success"}


@pytest.mark.slow
def test_the_demo_on_kubernetes_ends_with_the_table_and_status_0(tmp_path: Path) -> None:
    """Ours asks the API server for one pod and for no deletion, unless a user marks the task failed."""
    systems.require("kubernetes")
    with Demo(tmp_path, "--system", "kubernetes", "--cases", "before-id,sigterm,mark-fail") as demo:
        demo.wait_for_line("SIGKILL worker")

        assert demo.end() == 0, demo.text
        assert row(demo, "before-id")[-4:] == OURS
        assert row(demo, "sigterm") == ["sigterm", *STOCK_CANCELLED, *OURS]
        assert row(demo, "mark-fail")[-4:] == ["1", "1", "1", "failed"]
        assert demo.left_behind() == []


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_on_spark_connect_ends_with_the_table_and_status_0(tmp_path: Path) -> None:
    """Ours has the server run one operation and interrupts none, unless a user marks the task failed."""
    systems.require("java")
    systems.require("pyspark")
    with Demo(tmp_path, "--system", "spark-connect", "--cases", "before-id,sigterm,mark-fail") as demo:
        demo.wait_for_line("SIGKILL worker")

        assert demo.end() == 0, demo.text
        assert row(demo, "before-id") == ["before-id", *STOCK_DOUBLED, *OURS]
        assert row(demo, "sigterm")[-4:] == OURS
        assert row(demo, "mark-fail")[-4:] == ["1", "1", "1", "failed"]
        assert demo.left_behind() == []
