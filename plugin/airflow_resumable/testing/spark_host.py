# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What a host must have for a Spark cluster: pyspark, Java and some memory."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import psutil

from airflow_resumable.testing.errors import SystemUnavailable

_OLDEST_JAVA = 17
_LEAST_MEMORY = 2_500 * 1024 * 1024


def require_memory() -> None:
    """Check that a master, a worker, a driver and an executor fit.

    Raises:
        SystemUnavailable: When less than 2500 MiB are free.
    """
    free = psutil.virtual_memory().available
    if free < _LEAST_MEMORY:
        raise SystemUnavailable(
            f"{free >> 20} MiB of memory are free, a Spark cluster with a driver and an executor needs "
            f"{_LEAST_MEMORY >> 20} MiB: end something large first"
        )


def find_spark() -> Path:
    """Return the Spark distribution inside the installed pyspark package.

    Raises:
        SystemUnavailable: When there is none, saying what to install.
    """
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent if spec and spec.origin else None
    if home is None or not (home / "jars").is_dir() or not (home / "bin" / "spark-class").exists():
        raise SystemUnavailable(
            "no Spark in this environment: pip install 'airflow-resumable[spark]' "
            "(pyspark itself; pyspark-client has no cluster)"
        )
    return home


def find_java() -> Path:
    """Return the home of the Java that JAVA_HOME or PATH names, 17 or newer.

    Raises:
        SystemUnavailable: When it is missing, too old or doesn't run, saying what to do.
    """
    remedy = (
        f"install Java {_OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jdk-headless), "
        "or set JAVA_HOME"
    )
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise SystemUnavailable(f"no java on PATH and JAVA_HOME is not set: {remedy}")
    try:
        told = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        ).stderr
    except OSError as error:
        raise SystemUnavailable(f"{java} does not run ({error.strerror}): {remedy}") from error
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", told)
    where = re.search(r"java\.home = (.+)", told)
    if version is None or where is None:
        raise SystemUnavailable(f"{java} does not tell its version ({told.strip()[:200]!r}): {remedy}")
    if int(version[1]) < _OLDEST_JAVA:
        raise SystemUnavailable(f"{java} is Java {version[1]}: {remedy}")
    return Path(where[1].strip())
