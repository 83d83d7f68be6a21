# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A spark-submit process: read line by line for the driver's id, and never outliving its task."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

_log = logging.getLogger(__name__)

# What the two gateways' clients print once the master has taken the driver: ClientEndpoint and
# RestSubmissionClient in org.apache.spark.deploy. The id's shape is the master's choice
# (spark.deploy.driverIdPattern).
_ACCEPTED = re.compile(
    r"(?:Driver successfully submitted as|Submission successfully created as|\"submissionId\"\s*:)"
    r"\s*\"?([^\s\",]+?)\.?(?=[\s\",]|$)"
)
_PR_SET_PDEATHSIG = 1
# Java's HTTP client repeats a POST by itself when the connection drops before the answer: the REST
# gateway would be asked for two drivers. See "sun.net.http.retryPost" in the JDK's networking properties.
_OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
_NO_SECOND_POST = "-Dsun.net.http.retryPost=false"


def accepted_id(line: str) -> str | None:
    """Return the driver's id from a line in which spark-submit says that the master took it."""
    found = _ACCEPTED.search(line)
    return found[1] if found else None


class SubmitClient:
    """One run of spark-submit.

    Args:
        command: The program and its arguments.
        on_line: Is handed every line of output, in a thread of its own, also after the id was seen.
        told: Returns the id from a line in which the cluster takes the application, else None.
        env: Variables for it besides this process's own.
    """

    def __init__(
        self,
        command: Sequence[str],
        on_line: Callable[[str], None],
        told: Callable[[str], str | None] = accepted_id,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._on_line = on_line
        self._told = told
        self._settled = threading.Event()
        self._driver_id: str | None = None
        self.returncode: int | None = None
        """The exit code, known once `wait_for_id` has returned None."""
        given = {**os.environ, **(env or {})}
        options = f"{given.get(_OPTIONS_VARIABLE, '')} {_NO_SECOND_POST}".strip()
        self.process = subprocess.Popen(
            list(command),
            env={**given, _OPTIONS_VARIABLE: options},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=_dying_with(os.getpid()),
        )
        self._reader = threading.Thread(target=self._read, name="spark-submit", daemon=True)
        self._reader.start()

    def wait_for_id(self) -> str | None:
        """Return the driver's id as soon as it is printed, or None when the process ended without one."""
        self._settled.wait()
        return self._driver_id

    def join(self, timeout: float | None = None) -> None:
        """Wait, `timeout` seconds at most, until the process has ended and its last line was handed on."""
        self._reader.join(timeout)

    def kill(self) -> None:
        """Send SIGKILL to the process, if it still runs."""
        self.process.kill()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                if self._driver_id is None and (found := self._told(line)):
                    self._driver_id = found
                    self._settled.set()
                try:
                    self._on_line(line)
                except Exception:
                    # Whatever becomes of a log line, the pipe has to be drained or the client hangs.
                    _log.exception("a line of spark-submit's output could not be logged; reading on")
        self.returncode = self.process.wait()
        self._settled.set()


def _dying_with(parent: int) -> Callable[[], None] | None:
    """Return what makes a new child be killed when its parent dies; it stays so over an exec.

    A spark-submit that outlives its task could still submit, while the next try finds nothing and
    submits too. See prctl(2): Linux only.
    """
    if not sys.platform.startswith("linux"):
        _log.info("a spark-submit that outlives a killed task can't be prevented on %s", sys.platform)
        return None
    prctl = ctypes.CDLL(None).prctl

    def in_child() -> None:
        if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            os.write(2, b"spark-submit is NOT tied to its task's life: prctl(PR_SET_PDEATHSIG) failed\n")
        if os.getppid() != parent:
            os._exit(127)

    return in_child
