# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The systems outside Python that tests need: where each is on this machine, or how to get it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from airflow_resumable.testing.bigquery import programs as bigquery_programs
from airflow_resumable.testing.errors import SystemUnavailable
from airflow_resumable.testing.kubernetes import programs

REQUIRE_VARIABLE = "AIRFLOW_RESUMABLE_REQUIRE"
SKIP_PREFIX = "system not here: "

_OLDEST_JAVA = 17


class System(NamedTuple):
    """A system that tests may need."""

    find: Callable[[], Path | None]
    remedy: str


def require(system: str) -> Path:
    """Skip the running test when ``system`` isn't on this machine.

    Args:
        system: ``java`` (17 or newer), ``pyspark``, ``postgres``, ``kubernetes`` or ``moto``.

    Returns:
        The java executable; pyspark's SPARK_HOME; the folder with PostgreSQL's server programs; the
        Kubernetes API server, or the kubeconfig file of a cluster; moto's package.

    Raises:
        ValueError: No such system is known here.
        pytest.skip.Exception: The system isn't here; the reason says how to get it.
        pytest.fail.Exception: It isn't here although the environment variable AIRFLOW_RESUMABLE_REQUIRE
            lists it.
    """
    if system not in SYSTEMS:
        raise ValueError(f"unknown system {system!r}; known: {', '.join(SYSTEMS)}")
    place = find(system)
    if place is not None:
        return place
    reason = f"{system}: {SYSTEMS[system].remedy}"
    if system in must_be_here():
        pytest.fail(f"{REQUIRE_VARIABLE} lists a system that isn't here: {reason}", pytrace=False)
    pytest.skip(SKIP_PREFIX + reason)


def must_be_here() -> frozenset[str]:
    """The systems whose absence is a failure, as listed in AIRFLOW_RESUMABLE_REQUIRE (comma-separated).

    Raises:
        ValueError: One of them isn't known.
    """
    listed = frozenset(filter(None, os.environ.get(REQUIRE_VARIABLE, "").replace(" ", "").split(",")))
    if unknown := sorted(listed - SYSTEMS.keys()):
        raise ValueError(f"{REQUIRE_VARIABLE} lists {', '.join(unknown)}; known: {', '.join(SYSTEMS)}")
    return listed


@functools.cache
def find(system: str) -> Path | None:
    """Return where a system is, None when it isn't here; see `require`."""
    return SYSTEMS[system].find()


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        return None
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', said.stderr)
    if said.returncode or version is None or int(version[1]) < _OLDEST_JAVA:
        return None
    return Path(found)


def _pyspark() -> Path | None:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent
    # pyspark-client is importable as pyspark too, but has no Spark in it.
    return home if (home / "jars").is_dir() else None


def _postgres() -> Path | None:
    places = [Path(program).parent for program in [shutil.which("initdb")] if program]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if all((place / program).exists() for program in ("initdb", "pg_ctl", "postgres")):
            return place
    return None


def _kubernetes() -> Path | None:
    if named := os.environ.get("AIRFLOW_RESUMABLE_KUBECONFIG"):
        return Path(named).expanduser()
    try:
        return programs.find_programs().api_server
    except SystemUnavailable:
        return None


def _moto() -> Path | None:
    # Without the extra "server" moto has no Flask to serve with.
    spec = find_spec("moto") if find_spec("flask_cors") else None
    return Path(spec.origin).parent if spec and spec.origin else None


def _bigquery() -> Path | None:
    try:
        return bigquery_programs.find_programs().python
    except SystemUnavailable:
        return None


SYSTEMS = {
    "java": System(
        _java,
        f"install Java {_OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jdk-headless), or set "
        "JAVA_HOME",
    ),
    "pyspark": System(_pyspark, "install Spark (pip install 'airflow-resumable[spark]')"),
    "postgres": System(_postgres, "install the PostgreSQL server (Debian: apt-get install postgresql)"),
    "kubernetes": System(_kubernetes, programs.REMEDY),
    "bigquery": System(_bigquery, bigquery_programs.REMEDY),
    "moto": System(_moto, "install moto (pip install 'moto[server]')"),
}
