# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The demo on a real Spark Connect server, whose own log of operations is what counts."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from airflow_resumable.cli.demo.cases import (
    BEFORE_ID,
    CLEAR_DONE,
    CLEAR_LIVE,
    MARK_FAILED,
    MID_POLL,
    SIDES,
    SIGTERM,
    STATUS_503,
    SUPERVISOR,
    TIME_OUT,
    Case,
)
from airflow_resumable.cli.demo.lanes import Lane
from airflow_resumable.testing.connect_gate import Gate
from airflow_resumable.testing.demo import CONNECT_JOBS
from airflow_resumable.testing.spark_connect import SparkConnectServer

if TYPE_CHECKING:
    from airflow_resumable.testing.connect_proxy import ConnectProxy

_UNAVAILABLE = replace(
    STATUS_503,
    title="three status requests in a row are answered with `UNAVAILABLE`, which is gRPC's 503",
    fault="3 status requests: UNAVAILABLE",
)
CASES = (
    BEFORE_ID,
    MID_POLL,
    SUPERVISOR,
    SIGTERM,
    _UNAVAILABLE,
    CLEAR_DONE,
    CLEAR_LIVE,
    MARK_FAILED,
    TIME_OUT,
)
# A stream that the client takes up again asks how the statement is doing too.
_ASK = ("GetStatus", "ReattachExecute")
_TIMES = 3
_CONF = {
    # How often the server says how far a statement is, and after how long a stream must be taken up again.
    "spark.connect.progress.reportInterval": "500ms",
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "5s",
}
# A statement waits for the gate with each of its rows, 50 ms at most.
_ROWS = 10_000


class ConnectJobs:
    """A Spark Connect server, with a gateway before it for each lane.

    Args:
        folder: Where the server's data are kept.
    """

    name = "a Spark Connect server"
    stock = "an operator that runs spark.sql(...).collect()"
    ours = "ResumableSparkConnectOperator"
    oracle = "the server's log of operations (jobs) and a gateway before it (requests)"
    cases: Sequence[Case] = CASES
    dag_file = CONNECT_JOBS
    # What a worker imports to talk to the server takes a core for seconds.
    at_once = 3
    slots = 6
    patience = 150.0

    def __init__(self, folder: Path) -> None:
        self._running = ExitStack()
        # Statements that wait hold a core each.
        self._server = SparkConnectServer(folder / "connect", _CONF, cores=64)
        self._gates: dict[tuple[str, str], Gate] = {}
        self._proxies: dict[tuple[str, str], ConnectProxy] = {}

    def __enter__(self) -> Self:
        """Start the server, and a gateway for each lane."""
        from airflow_resumable.testing.connect_proxy import ConnectProxy

        with ExitStack() as starting:
            server = starting.enter_context(self._server)
            for case in CASES:
                for side in SIDES:
                    self._gates[case.name, side] = Gate(server.port, _ROWS)
                    self._proxies[case.name, side] = starting.enter_context(ConnectProxy(server.port))
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything, running statements included."""
        self._running.close()

    @property
    def versions(self) -> Mapping[str, str]:
        """Spark's and the provider's."""
        return {
            "Spark": version("pyspark"),
            "Spark provider": version("apache-airflow-providers-apache-spark"),
        }

    @property
    def environment(self) -> Mapping[str, str]:
        """A connection for each lane, whose user is the lane's own."""
        return {
            f"AIRFLOW_CONN_{_connection(*key).upper()}": json.dumps(
                {"conn_type": "spark_connect", "host": "127.0.0.1", "port": proxy.port, "login": _user(*key)}
            )
            for key, proxy in self._proxies.items()
        }

    def dag_id(self, case: Case) -> str:
        """Return the Dag whose runs are the cases; a time-out needs one of its own."""
        return "demo_connect_time_out" if case is TIME_OUT else "demo_connect"

    def prepare(self, lane: Lane) -> dict[str, Any]:
        """Return the lane's connection and its statement."""
        return {"conn_id": _connection(*lane.key), "sql": self._gates[lane.key].closed}

    def spoil(self, lane: Lane) -> None:
        """Make the lane's gateway refuse its next requests for a status."""
        self._proxies[lane.key].fail(_ASK, "unavailable", _TIMES)

    def spoiled_at(self, lane: Lane) -> float | None:
        """Return when the gateway had refused as many as it should."""
        broken = self._proxies[lane.key].broken
        return broken[_TIMES - 1] if len(broken) >= _TIMES else None

    def tell(self, lane: Lane) -> None:
        """Open the gate that the lane's statements wait for."""
        self._gates[lane.key].open()

    def decision(self, lane: Lane, try_number: int) -> str:
        """Say whether there is another operation by now, or an interrupt."""
        jobs, _, cancels = self.counts(lane)
        if jobs != 1:
            return f"starts job {jobs}" if jobs else "has no job"
        if cancels:
            return "has cancelled job 1"
        return "keeps job 1" if lane.case.recorded else "finds job 1"

    def counts(self, lane: Lane) -> tuple[int, int, int]:
        """Count the lane's operations in the server's log, and requests to run and to interrupt one.

        An operation that ran more than one Spark job counts more than once.
        """
        proxy, user = self._proxies[lane.key], _user(*lane.key)
        asked = statements(proxy.plans)
        ran = Counter(job.operation for job in self._server.jobs())
        started = [one for one in self._server.operations(user) if one in asked]
        return sum(max(1, ran[one]) for one in started), len(asked), proxy.requests["Interrupt"]


def statements(plans: Iterable[bytes]) -> list[str]:
    """Return the operation's id of each request that runs a statement.

    `SparkSession.sql` sends a request of its own, for which the server only reads a query, and which gets no
    rows; that one is left out.

    Args:
        plans: The bytes of ``ExecutePlan`` requests.
    """
    with warnings.catch_warnings():
        # pyspark says so of each pandas that is newer than itself.
        warnings.simplefilter("ignore", FutureWarning)
        import pyspark.sql.connect.proto as pb

    requests = map(pb.ExecutePlanRequest.FromString, list(plans))
    return [str(one.operation_id) for one in requests if one.plan.HasField("root")]


def _user(case: str, side: str) -> str:
    return f"{case}-{side}"


def _connection(case: str, side: str) -> str:
    return f"connect_{case}_{side}".replace("-", "_")
