# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What this host must have for the demo, asked before anything is started."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import psutil

from airflow_resumable.testing.errors import SystemUnavailable
from airflow_resumable.testing.ports import free_ports

_MIB: Final = 1024 * 1024
_LEAST_MEMORY: Final = {
    "local": 1_500 * _MIB,
    "spark": 4_000 * _MIB,
    "kubernetes": 2_500 * _MIB,
    "spark-connect": 3_500 * _MIB,
    "bigquery": 2_500 * _MIB,
    "emr": 2_000 * _MIB,
    "emr-serverless": 2_000 * _MIB,
}
_KUBERNETES_PROVIDER: Final = "apache-airflow-providers-cncf-kubernetes"
_PROVIDER: Final = "apache-airflow-providers-apache-spark"
_AMAZON_PROVIDER: Final = "apache-airflow-providers-amazon"
# The provider's hook calls it by this path.
_CURL: Final = "/usr/bin/curl"
_LEAST_DISK: Final = 300 * _MIB
# A Unix socket's path has 107 bytes at most, and this much of it is ours.
_LONGEST_TMPDIR: Final = 107 - len("/crash-xxxxxxxx/s")


def require(system: str) -> None:
    """Check memory, disk, ports and what the system needs.

    Args:
        system: A name of the command line: ``local``, ``spark``, ``emr-serverless``, ...

    Raises:
        SystemUnavailable: Something is missing; one line that says what to do.
    """
    _require_memory(system)
    _require_folder()
    try:
        free_ports(3)
    except OSError as error:
        raise SystemUnavailable(
            f"no free TCP ports on this host ({error}): end servers that are no longer needed (ss -ltnp "
            "lists them), or check that the loopback interface is up"
        ) from error
    if system == "spark":
        _require_spark()
    elif system == "kubernetes":
        _require_kubernetes()
    elif system == "spark-connect":
        _require_connect()
    elif system == "bigquery":
        _require_bigquery()
    elif system in ("emr", "emr-serverless"):
        _require_aws()


def _require_memory(system: str) -> None:
    free, least = psutil.virtual_memory().available, _LEAST_MEMORY[system]
    if free < least:
        raise SystemUnavailable(
            f"{free // _MIB} MiB of memory are free, the demo on {system} needs {least // _MIB} MiB: end "
            "something large first"
        )


def _require_folder() -> None:
    try:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise SystemUnavailable(f"no usable temporary folder ({error}): set TMPDIR to one") from error
    if free < _LEAST_DISK:
        raise SystemUnavailable(
            f"{free // _MIB} MiB are free in {folder}, the demo needs {_LEAST_DISK // _MIB} MiB: make room, "
            "or set TMPDIR to another folder"
        )
    if len(os.fsencode(folder)) > _LONGEST_TMPDIR or any(character.isspace() for character in folder):
        raise SystemUnavailable(
            f"the name of the temporary folder {folder} has a space, or more than {_LONGEST_TMPDIR} bytes, "
            "which Spark and Unix sockets don't take: set TMPDIR to another folder, such as /tmp"
        )


def _require_spark() -> None:
    from airflow_resumable.testing.spark_host import find_java, find_spark

    find_spark()
    home = find_java()
    if shutil.which("javac", path=f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}") is None:
        raise SystemUnavailable(
            f"the Java in {home} has no compiler, which makes the demo's application: install a JDK (Debian: "
            "apt-get install openjdk-17-jdk-headless), or set JAVA_HOME to one"
        )
    _require_package(_PROVIDER, "spark")
    if not os.access(_CURL, os.X_OK):
        raise SystemUnavailable(
            f"no {_CURL}, with which the Spark provider asks for a driver's status: install it (Debian: "
            "apt-get install curl)"
        )


def _require_kubernetes() -> None:
    from airflow_resumable.testing.kubernetes.programs import find_programs

    find_programs()
    _require_package(_KUBERNETES_PROVIDER, "kubernetes")


def _require_connect() -> None:
    from airflow_resumable.testing.spark_host import find_java, find_spark

    find_spark()
    find_java()
    _require_package(_PROVIDER, "spark")
    # What pyspark's client of a Spark Connect server imports.
    for name in ("grpcio", "grpcio-status", "pandas", "pyarrow"):
        _require_package(name, "spark")


def _require_aws() -> None:
    _require_package(_AMAZON_PROVIDER, "amazon")
    try:
        version("moto")
        version("flask")
    except PackageNotFoundError as error:
        raise SystemUnavailable(
            f"no {error.name} in this environment, of which the stand-in is made: pip install 'moto[server]'"
        ) from None


def _require_bigquery() -> None:
    from airflow_resumable.testing.bigquery.programs import find_programs

    find_programs()
    _require_package("apache-airflow-providers-google", "google")


def _require_package(name: str, extra: str) -> None:
    try:
        version(name)
    except PackageNotFoundError:
        raise SystemUnavailable(
            f"no {name} in this environment: pip install 'airflow-resumable[{extra}]'"
        ) from None
