# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Real Spark applications that sleep, with and without a Java compiler."""

from __future__ import annotations

import importlib.resources
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_resumable.testing.errors import SystemUnavailable

_SOURCE = "SleepApp.java"
_SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.cores": "1",
    "spark.cores.max": "1",
    "spark.ui.port": "0",
}


@dataclass(frozen=True)
class SparkApp:
    """What a gateway needs to start an application.

    Attributes:
        resource: The jar, a ``file:`` URL.
        main_class: The class with ``main``.
        args: Its arguments.
        conf: Spark properties the application needs; it takes one core for the driver and one to work.
    """

    resource: str
    main_class: str
    args: tuple[str, ...]
    conf: Mapping[str, str] = field(default_factory=dict)


def build_sleep_jar(folder: Path, spark_home: Path, javac: str) -> Path:
    """Compile the package's SleepApp.java and return its jar, which is made once for a folder.

    Args:
        folder: Where to put class files and ``sleep.jar``.
        spark_home: The Spark distribution to compile against.
        javac: The compiler.

    Raises:
        SystemUnavailable: When the compiler refuses, with its words.
    """
    jar = folder / "sleep.jar"
    if jar.exists():
        return jar
    classes = folder / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    source = importlib.resources.files("airflow_resumable.testing") / "data" / _SOURCE
    with importlib.resources.as_file(source) as file:
        # Spark 4 runs on Java 17 and newer; a newer compiler's own format would not.
        command = [
            javac,
            "--release",
            "17",
            "-nowarn",
            "-cp",
            f"{spark_home}/jars/*",
            "-d",
            str(classes),
            str(file),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise SystemUnavailable(f"{javac} can't compile {_SOURCE}: {done.stderr.strip()}")
    scratch = jar.with_suffix(".incoming")
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\r\nMain-Class: SleepApp\r\n\r\n")
        for file in sorted(classes.glob("*.class")):
            archive.write(file, file.name)
    scratch.replace(jar)
    return jar


def java_sleep_app(
    jar: Path, seconds: float | Path, marker: Path | None = None, fail: bool = False, bare: bool = False
) -> SparkApp:
    """Return the compiled application, which every gateway takes.

    Args:
        jar: From `build_sleep_jar`.
        seconds: How long it sleeps once its context is up; a file: until that is there.
        marker: A file that gets a line ``<pid> <application id>`` at each start.
        fail: End with exit code 3.
        bare: Make no Spark context: a driver without an application, which starts and ends sooner.
    """
    words = [word for word, wanted in (("fail", fail), ("bare", bare)) if wanted]
    args = [str(seconds), str(marker or "-"), *words]
    return SparkApp(f"file:{jar}", "SleepApp", tuple(args), dict(_SMALL))


def sql_sleep_app(
    spark_home: Path, seconds: float, marker: Path | None = None, fail: bool = False
) -> SparkApp:
    """Return the same from Spark's own SQL shell, for hosts without a compiler.

    Only the REST gateway takes it: spark-submit refuses SQL shells in cluster mode.

    Args:
        spark_home: The Spark distribution.
        seconds: How long it sleeps once its context is up.
        marker: A directory that gets one ``part-`` file at each start.
        fail: End with an error.

    Raises:
        SystemUnavailable: When the distribution has no SQL shell.
    """
    shell = next(iter(sorted((spark_home / "jars").glob("spark-hive-thriftserver_*.jar"))), None)
    if shell is None:
        raise SystemUnavailable(
            f"{spark_home}/jars has no spark-hive-thriftserver jar; install a JDK with javac"
        )
    statements = ["select count(*) from range(1000)"]
    if marker is not None:
        where = str(marker).replace("'", r"\'")
        statements[:0] = [
            f"create table marker (line string) using text location '{where}'",
            "insert into marker select 'started'",
        ]
    statements.append(f"select java_method('java.lang.Thread', 'sleep', {round(seconds * 1000)}L)")
    if fail:
        statements.append("select raise_error('asked to fail')")
    return SparkApp(
        f"file:{shell}",
        "org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver",
        ("-e", ";\n".join(statements)),
        {**_SMALL, "spark.sql.catalogImplementation": "in-memory"},
    )
