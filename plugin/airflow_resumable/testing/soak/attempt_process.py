# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One attempt as a process of its own, whose supervisor is the process that started it.

Every call to the store and every question for the task's state goes through a pipe, as in Airflow; every
crash point is reported on another one and waits there for the word to go on.
"""

from __future__ import annotations

import os
import signal
import threading
import uuid
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import set_current_context

from airflow_resumable.jobs import attempt as attempt_module
from airflow_resumable.jobs.attempt import JobAttempt
from airflow_resumable.testing.soak.graded_jobs import OPERATORS
from airflow_resumable.testing.variants import broken

DAG_ID, TASK_ID = "soak", "job"


@dataclass(frozen=True, slots=True)
class Order:
    """What an attempt is to run."""

    grade: str
    service_url: str
    command: tuple[str, ...]
    run_id: str
    run_started: datetime
    ti_id: uuid.UUID
    try_number: int
    max_tries: int
    retries: int
    poll_interval: float
    variant: str | None
    log: str
    installation: str = ""


class Gone(Exception):
    """What the store says to an attempt whose place another one has."""

    status_code = 404


class CommsDecoder:
    """The way to the supervisor; it has the name by which `on_kill` knows Airflow's.

    Args:
        pipe: The supervisor's other end answers (error's name or "", value).
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def ask(self, *call: Any) -> Any:
        """Send one call and return the answer, or raise what it says."""
        with self._lock:
            self._pipe.send(call)
            error, value = self._pipe.recv()
        if error:
            raise {"gone": Gone, "once": ConnectionError, "broken": BrokenPipeError}[error](
                f"{call[0]}: {error}"
            )
        return value


class SupervisedStore:
    """``context["task_state_store"]``, on the supervisor's side."""

    def __init__(self, comms: CommsDecoder) -> None:
        self._comms = comms

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under `key`."""
        value = self._comms.ask("get", key)
        return default if value is None else value

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        """Write `value` under `key`."""
        self._comms.ask("set", key, value)

    def delete(self, key: str) -> None:
        """Remove `key`."""
        self._comms.ask("delete", key)


def run(order: Order, calls: Connection, points: Connection) -> None:
    """Run the attempt; say on `points` where it is, and how it ended."""
    os.environ["AIRFLOW__RESUMABLE__INSTALLATION_ID"] = order.installation
    comms = CommsDecoder(calls)
    operator = _operator(order)

    def _on_term(signum: int, frame: object) -> None:
        operator.on_kill()

    class Reports(JobAttempt):
        def reach(self, point: str) -> None:
            points.send(("at", point, self.external_id))
            points.recv()

    attempt_module.JobAttempt = Reports  # type: ignore[misc]
    _log_to(order.log, order.try_number)
    context = _context(order, operator, comms)
    how, fatal, value = "returned", False, None
    with set_current_context(context), broken(order.variant) if order.variant else nullcontext():
        signal.signal(signal.SIGTERM, _on_term)
        try:
            points.send(("begun", "", None))
            value = operator.execute(context)
        except BaseException as error:
            how, fatal = type(error).__name__, isinstance(error, AirflowFailException)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        points.send(("end", how, (fatal, value)))
        # As the success listener does; the server has the state on file by then.
        if how == "returned" and points.recv() == "success" and operator._resumable_attempt:
            operator._resumable_attempt.mark_reported()


def _operator(order: Order) -> Any:
    return OPERATORS[order.grade](
        task_id=TASK_ID,
        service_url=order.service_url,
        command=list(order.command),
        retries=order.retries,
        poll_interval=order.poll_interval,
    )


def _context(order: Order, operator: BaseOperator, comms: CommsDecoder) -> Any:
    ti = SimpleNamespace(
        id=order.ti_id,
        dag_id=DAG_ID,
        run_id=order.run_id,
        task_id=TASK_ID,
        map_index=-1,
        try_number=order.try_number,
        max_tries=order.max_tries,
        stats_tags={},
        get_task_states=lambda **_: {order.run_id: {TASK_ID: comms.ask("state")}},
    )
    return {
        "ti": ti,
        "task": operator,
        "dag_run": SimpleNamespace(start_date=order.run_started),
        "task_state_store": SupervisedStore(comms),
    }


def _log_to(file: str, try_number: int) -> None:
    import logging

    sink = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(sink)
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s try {try_number} %(name)s: %(message)s", force=True
    )
