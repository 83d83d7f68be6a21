# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The real Spark cluster that other tests rely on, and what a host without it is told."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_resumable.testing.errors import SystemUnavailable
from airflow_resumable.testing.ports import free_port
from airflow_resumable.testing.spark import SparkCluster
from airflow_resumable.testing.spark_app import sql_sleep_app
from airflow_resumable.testing.spark_host import find_java, find_spark, require_memory

pytestmark = pytest.mark.spark


def test_an_application_runs_to_its_end(spark: SparkCluster, tmp_path: Path) -> None:
    """The master lists its driver and its application, and the marker has one line for one start."""
    marker = tmp_path / "marker"
    driver = spark.create(spark.sleep_app(0, marker), name="my-token")
    done = spark.wait_for_driver(driver)

    assert (done.state, done.main_class, done.active) == ("FINISHED", "SleepApp", False)
    assert [app.state for app in spark.apps() if app.name == "my-token"] == ["FINISHED"]
    assert len(marker.read_text().splitlines()) == 1
    assert spark.rest("GET", f"status/{driver}")["driverState"] == "FINISHED"


@pytest.mark.slow
def test_an_application_without_a_compiler_runs_and_fails_on_request(
    spark: SparkCluster, tmp_path: Path
) -> None:
    """Spark's own SQL shell sleeps, leaves its marker, and can be told to fail."""
    marker = tmp_path / "marker"
    good = spark.create(sql_sleep_app(spark.spark_home, 0, marker))
    bad = spark.create(sql_sleep_app(spark.spark_home, 0, fail=True))

    assert spark.wait_for_driver(good, timeout=240).state == "FINISHED"
    assert spark.wait_for_driver(bad, timeout=240).state == "FAILED"
    assert len(list(marker.glob("part-*"))) == 1


def test_a_compiled_application_fails_on_request(spark: SparkCluster) -> None:
    """An application that ends with another code than 0 is FAILED."""
    driver = spark.create(spark.sleep_app(0, fail=True))

    assert spark.wait_for_driver(driver).state == "FAILED"


@pytest.fixture
def running(spark: SparkCluster) -> Iterator[str]:
    """A driver that runs until it is killed."""
    driver = spark.create(spark.sleep_app(600))
    spark.wait_for_driver(driver, {"RUNNING"})
    yield driver
    spark.rest("POST", f"kill/{driver}")
    spark.wait_for_driver(driver)


def test_a_driver_runs_on_under_a_restarted_master(spark: SparkCluster, running: str) -> None:
    """With FILESYSTEM recovery the master knows the running driver by the same id after a SIGKILL."""
    spark.restart_master()

    assert spark.wait_for_driver(running, {"RUNNING"}).active


HARNESS = """
import signal, sys, time
from pathlib import Path
from airflow_resumable.testing.spark import SparkCluster

with SparkCluster(Path(sys.argv[1]), cores=2) as spark:
    driver = spark.create(spark.sleep_app(600))
    while not any(app.state == "RUNNING" for app in spark.apps()) or len(spark.processes()) < 4:
        time.sleep(0.1)
    spark.kill("worker")
    print(*(process.pid for process in spark.processes()), flush=True)
    signal.pause()
"""


def test_nothing_of_the_cluster_outlives_its_harness(tmp_path: Path) -> None:
    """Master, and driver and executor whose worker was killed, are gone when the harness was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as harness:
        assert harness.stdout is not None
        pids = [int(pid) for pid in harness.stdout.readline().split()]
        started = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
        assert started
        harness.kill()
        assert harness.wait(30) == -signal.SIGKILL

    _, alive = psutil.wait_procs(started, timeout=30)
    assert alive == []


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    """The one line says which port, what for, and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        cluster = SparkCluster(tmp_path, ports={"rest": port})
        with pytest.raises(
            SystemUnavailable, match=rf"^port {port} \(rest\) is in use: end the server there"
        ):
            cluster.__enter__()

    assert cluster.processes() == []


def test_a_host_without_java_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing Java, a JAVA_HOME without one and an old one each give one line with the remedy."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with monkeypatch.context() as context:
        context.setenv("PATH", str(tmp_path))
        with pytest.raises(SystemUnavailable, match=r"^no java on PATH .*apt-get install openjdk-17"):
            find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SystemUnavailable, match=r"bin/java does not run .*set JAVA_HOME"):
        find_java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho ' java.specification.version = 1.8' >&2; echo ' java.home = /x' >&2\n")
    old.chmod(0o755)
    with pytest.raises(SystemUnavailable, match="is Java 8: install Java 17 or newer"):
        find_java()


def test_a_host_without_spark_or_memory_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing pyspark names the extra to install, and short memory the amount that is needed."""
    with monkeypatch.context() as context:
        context.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(SystemUnavailable, match=r"pip install 'airflow-resumable\[spark\]'"):
            find_spark()
    short = psutil.virtual_memory()._replace(available=1 << 30)
    monkeypatch.setattr("psutil.virtual_memory", lambda: short)
    with pytest.raises(SystemUnavailable, match=r"^1024 MiB of memory are free, .* needs 2500 MiB"):
        require_memory()


def test_the_jar_is_written_without_the_jar_tool(spark: SparkCluster) -> None:
    """A compiler is enough: the application's jar is made by this package."""
    if shutil.which("javac") is None:
        pytest.skip("javac is not here: install a JDK (Debian: apt-get install openjdk-17-jdk-headless)")
    app = spark.sleep_app(1)

    assert app.resource.endswith("/sleep.jar")
    assert app.args == ("1", "-")


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    """Each message names the argument, the value and what is allowed."""
    with pytest.raises(ValueError, match="recovery='ZOOKEEPER' is not known; use 'NONE' or 'FILESYSTEM'"):
        SparkCluster(tmp_path, recovery="ZOOKEEPER")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"ports has \['web'\]; the ports are rpc, rest, master_ui"):
        SparkCluster(tmp_path, ports={"web": free_port()})
    with pytest.raises(ValueError, match="cores=0 must be 1 or more"):
        SparkCluster(tmp_path, cores=0)
