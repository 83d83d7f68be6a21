# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""How long a dying task's `on_kill` takes while the API server and the job service both don't answer.

On real processes: both are stopped with SIGSTOP, so that connections are taken and nothing is ever
answered; then the task gets SIGTERM. The task's own clock measures from the first call of `on_kill` to
the exception that ends the last one.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import psutil

from airflow_resumable.testing.crash import CrashController
from airflow_resumable.testing.jobservice.process import JobService
from airflow_resumable.testing.stack import AirflowStack

LIMIT = 2.0
"""Seconds for `on_kill` by the project's own rule."""
ESCALATION = 5.0
"""Seconds after which Airflow's supervisor sends SIGKILL to a task that it has told to stop."""

DAG = """
    import json
    import sys
    import time
    from pathlib import Path

    from airflow.sdk import DAG
    from airflow_resumable.testing.local_job import LocalJobOperator

    class Timed(LocalJobOperator):
        def execute(self, context):
            self.report, self.asks = context["params"]["report"], context["params"]["asks"]
            return super().execute(context)

        def _ask_why(self, tidy_up):
            started = time.monotonic()
            self.first = vars(self).get("first", started)
            try:
                super()._ask_why(tidy_up)
            finally:
                told = {"on_kill": time.monotonic() - started, "total": time.monotonic() - self.first}
                scratch = Path(self.report + ".part")
                scratch.write_text(json.dumps({**told, "ended": isinstance(sys.exception(), SystemExit)}))
                scratch.replace(self.report)

        def get_job_status(self, external_id, context):
            # A call to the supervisor, which asks the API server, goes on when the signal comes.
            if self.asks and Path(self.report + ".ask").exists():
                Path(self.report + ".asking").touch()
                context["task_state_store"].get("anything")
            return super().get_job_status(external_id, context)

    with DAG("on_kill", schedule=None, params={"service": "", "report": "", "asks": False}):
        task = Timed(
            task_id="job",
            service_url="{{ params.service }}",
            command=["/bin/sleep", "600"],
            poll_interval=0.2,
            retries=1,
            resume_policy={"on_infrastructure_stop": "cancel"},
        )
"""

CASES = {"while it polls": False, "inside a call to the supervisor": True}


def main() -> None:
    """Print a line per case; exit status 1 when a limit is broken."""
    with (
        tempfile.TemporaryDirectory() as folder,
        CrashController() as crash,
        JobService(Path(folder) / "service") as service,
        AirflowStack(Path(folder) / "airflow", env=crash.env) as stack,
    ):
        stack.add_dag(DAG, "on_kill.py")
        stack.wait_for_dag("on_kill")
        broken = False
        print("on_kill while the API server and the job service don't answer")
        for number, (case, asks) in enumerate(CASES.items()):
            report = Path(folder) / f"report-{number}"
            told = stop_in_the_dark(stack, crash, service, report, asks=asks)
            broken |= told["on_kill"] > LIMIT or told["total"] > ESCALATION
            print(
                f"  {case:32} on_kill {told['on_kill']:5.2f} s (limit {LIMIT:.0f} s), from the signal to its "
                f"end {told['total']:5.2f} s (SIGKILL after {ESCALATION:.0f} s)"
            )
    sys.exit(broken)


def stop_in_the_dark(
    stack: AirflowStack, crash: CrashController, service: JobService, report: Path, *, asks: bool
) -> dict[str, float]:
    """Send SIGTERM to a task that polls while nobody answers; return what it measured."""
    conf = {"service": service.url, "report": str(report), "asks": asks}
    run = stack.trigger("on_kill", conf=conf)
    task = psutil.Process(crash.wait("mid_poll", run_id=run).pid)
    server = psutil.Process(stack.components["api-server"].pid)
    dark = [server, *server.children(recursive=True)]
    try:
        for process in dark:
            process.suspend()
        if asks:
            report.with_name(f"{report.name}.ask").touch()
            _await(report.with_name(f"{report.name}.asking"))
            time.sleep(0.2)  # from the file to the call that follows it
        dark.append(psutil.Process(service.pid))
        dark[-1].suspend()
        task.terminate()
        while True:
            _await(report)
            told: dict[str, float] = json.loads(report.read_text())
            if told["ended"]:
                return told
            time.sleep(0.01)
    finally:
        for process in dark:
            process.resume()
        stack.mark("on_kill", run, "job", "failed")


def _await(file: Path, timeout: float = 30.0) -> None:
    deadline = time.monotonic() + timeout
    while not file.exists():
        if time.monotonic() > deadline:
            sys.exit(f"{file.name} did not come within {timeout:.0f} s")
        time.sleep(0.01)


if __name__ == "__main__":
    main()
