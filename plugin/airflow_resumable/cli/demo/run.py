# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""`airflow-resumable demo`: real workers of a real Airflow are killed, and the service's jobs are counted."""

from __future__ import annotations

import argparse
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import httpx
from rich.console import Console

from airflow_resumable.cli.demo import host, record
from airflow_resumable.cli.demo.cases import Case, Outcome, Side, breaches_of_all, choose
from airflow_resumable.cli.demo.lanes import System
from airflow_resumable.cli.demo.local import LocalJobs
from airflow_resumable.cli.demo.progress import Progress
from airflow_resumable.cli.demo.runner import DemoRunner
from airflow_resumable.cli.demo.table import print_cases, print_outcomes
from airflow_resumable.testing.crash import CrashController, CrashError
from airflow_resumable.testing.errors import StackError, SystemUnavailable
from airflow_resumable.testing.jobservice.process import JobServiceError
from airflow_resumable.testing.stack import AirflowStack

if TYPE_CHECKING:
    from airflow_resumable.cli.demo.aws import AwsJobs
    from airflow_resumable.cli.demo.bigquery import BigQueryJobs
    from airflow_resumable.cli.demo.connect import ConnectJobs
    from airflow_resumable.cli.demo.kubernetes import KubernetesJobs
    from airflow_resumable.cli.demo.spark import SparkJobs

    AnyJobs = LocalJobs | SparkJobs | KubernetesJobs | ConnectJobs | BigQueryJobs | AwsJobs

_NAME: Final = "airflow-resumable demo"
_NOT_RIGHT: Final = 1
_NOTHING_RUN: Final = 2
_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Stopped(BaseException):
    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number)
        self.signal = number


def run(args: argparse.Namespace) -> int:
    """Run the demo.

    Args:
        args: ``system``, ``cases``, ``keep`` and ``record`` of the command line.

    Returns:
        0 when our side of every case is right, 1 when one isn't or the demo broke off, 2 when nothing was
        run.
    """
    system_class = _system_class(args.system)
    try:
        cases = choose(system_class.cases, args.cases)
        host.require(args.system)
        if args.record:
            record.check(args.record)
    except (ValueError, OSError, SystemUnavailable) as error:
        return _fail(str(error), _NOTHING_RUN)
    with _stopping_once(), _folder(keep=args.keep) as folder:
        try:
            return _run(system_class(folder / "jobs"), cases, folder, args)
        except SystemUnavailable as error:
            return _fail(str(error), _NOTHING_RUN)
        except (StackError, JobServiceError, CrashError, TimeoutError, httpx.HTTPError) as error:
            hint = "" if args.keep else "\nWith --keep the folder with all logs stays."
            return _fail(f"broke off: {error}{hint}", _NOT_RIGHT)
        except _Stopped as stopped:
            return _fail(f"stopped by {stopped.signal.name}", 128 + stopped.signal)


def _system_class(
    name: str,
) -> type[AnyJobs]:
    if name == "local":
        return LocalJobs
    if name == "kubernetes":
        from airflow_resumable.cli.demo.kubernetes import KubernetesJobs

        return KubernetesJobs
    if name == "bigquery":
        from airflow_resumable.cli.demo.bigquery import BigQueryJobs

        return BigQueryJobs
    if name == "spark-connect":
        from airflow_resumable.cli.demo.connect import ConnectJobs

        return ConnectJobs
    if name == "emr":
        from airflow_resumable.cli.demo.emr import EmrJobs

        return EmrJobs
    if name == "emr-serverless":
        from airflow_resumable.cli.demo.emr_serverless import EmrServerlessJobs

        return EmrServerlessJobs
    from airflow_resumable.cli.demo.spark import SparkJobs

    return SparkJobs


def _run(system: System, cases: Sequence[Case], folder: Path, args: argparse.Namespace) -> int:
    console = Console(highlight=False)
    console.print(
        f"A job that is run by {system.stock} (stock) and by {system.ours} (ours), and what befalls it:"
    )
    print_cases(console, cases)
    with Progress(console) as progress:
        outcomes = _outcomes(system, cases, folder, progress)
    seconds = progress.seconds
    versions = _versions(system)
    print_outcomes(console, cases, outcomes)
    # Not recorded: the record is the same wherever these are.
    told = {**versions, "Python": platform.python_version()}
    names = ", ".join(f"{name} {number}" for name, number in told.items())
    console.print(f"{names}; {seconds:.0f} s.")
    console.print(f"jobs: started. submits, cancels: requests. All by {system.oracle}.")
    console.print("end state: the task's, by Airflow's API.")
    if args.record and len(cases) < len(system.cases):
        console.print(f"{args.record} is left as it is: only some cases were run.")
    elif args.record:
        try:
            record.write(args.record, args.system, versions, cases, outcomes)
        except OSError as error:
            return _fail(f"the outcomes could not be recorded: {error}", _NOT_RIGHT)
        console.print(f"Recorded in {args.record}.")
    return _verdict(console, cases, outcomes)


def _outcomes(
    system: System, cases: Sequence[Case], folder: Path, progress: Progress
) -> Mapping[tuple[str, Side], Outcome]:
    progress.step(f"Starting {system.name}")
    with CrashController() as crash, system:
        progress.step("Starting Airflow: database, API server, scheduler, Dag processor")
        stack = AirflowStack(
            folder / "airflow",
            [system.dag_file],
            {**crash.env, **system.environment},
            parallelism=system.slots,
        )
        with stack:
            progress.step("Waiting for the Dag")
            for dag in dict.fromkeys(map(system.dag_id, cases)):
                stack.wait_for_dag(dag)
            progress.step("Running the cases")
            outcomes = DemoRunner(stack, crash, system, progress).run(cases)
            progress.step("Stopping everything")
    return outcomes


def _versions(system: System) -> dict[str, str]:
    return {
        "Airflow": version("apache-airflow"),
        "airflow-resumable": version("airflow-resumable"),
        **system.versions,
    }


def _verdict(console: Console, cases: Sequence[Case], outcomes: Mapping[tuple[str, Side], Outcome]) -> int:
    found = breaches_of_all(cases, outcomes)
    if found:
        console.print("Exit status 1: this is not as it must be:")
        for one in found:
            console.print(f"  {one}", markup=False)
        return _NOT_RIGHT
    window = " (* two are allowed: the stated window)" if any(one.window for one in cases) else ""
    console.print(f"Exit status 0 (else 1): ours came to what is right in every case{window}.")
    return 0


@contextmanager
def _stopping_once() -> Iterator[None]:
    """Turn the first signal that asks for an end into an exception and ignore the next ones.

    All processes are stopped on the way out, within seconds; a second Ctrl-C would only interrupt that.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for each in _STOPS:
            signal.signal(each, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise _Stopped(signal.Signals(number))

    before: dict[signal.Signals, Any] = {number: signal.signal(number, stop) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="airflow-resumable-demo-"))
    try:
        yield folder
    finally:
        if keep:
            print(
                f"Kept {folder}\n  task logs: airflow/logs; Airflow's own: airflow/processes; "
                "jobs and request logs: jobs",
                file=sys.stderr,
            )
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _fail(what: str, status: int) -> int:
    print(f"{_NAME}: {what}", file=sys.stderr)
    return status
