# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the jobs commands in this process and reads what they print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_resumable.cli import main as cli
from airflow_resumable.testing.jobservice.process import JobService
from tests import metadata


class Jobs:
    """Runs ``jobs`` on one run and reads what it printed."""

    def __init__(self, run: metadata.Run, capsys: pytest.CaptureFixture[str]) -> None:
        self.run, self._capsys = run, capsys

    def text(self, *words: str, status: int) -> str:
        self._capsys.readouterr()
        ended = cli.main(["jobs", *words, "--run-id", self.run.run_id])
        said = self._capsys.readouterr()
        assert ended == status, said.out + said.err
        return said.out

    def json(self, *words: str, status: int) -> Any:
        return json.loads(self.text(*words, "--json", status=status))

    def findings(self, *words: str, status: int = 1) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("reconcile", *words, status=status)["findings"]
        return found

    def refused(self, *words: str) -> str:
        return str(self.json("reconcile", *words, status=4)["error"])

    def show(self, *words: str, status: int) -> list[dict[str, Any]]:
        """Show the task ``job``."""
        self._capsys.readouterr()
        ended = cli.main(["jobs", "show", self.run.dag_id, self.run.run_id, "job", "--json", *words])
        said = self._capsys.readouterr()
        assert ended == status, said.out + said.err
        records: list[dict[str, Any]] = json.loads(said.out)["records"]
        return records


def requests(service: JobService, verb: str, job: str) -> list[Any]:
    """Requests about one job, from the service's own log."""
    return service.requests(verb, job=job)
