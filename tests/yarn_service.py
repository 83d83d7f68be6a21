# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The ResourceManager stand-in as tests of `ResumableSparkSubmitOperator` see it: no YARN is in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator
from airflow_resumable.testing.conformance import SeenJob, ServiceUnderTest
from airflow_resumable.testing.yarn_stand_in import YarnStandIn
from tests.spark_attempts import SparkTask

CONNECTION = "AIRFLOW_CONN_SPARK_DEFAULT"


class YarnService(ServiceUnderTest):
    """A running ResourceManager stand-in, from the moment at which this object is made.

    Args:
        yarn: The stand-in.
        folder: Where the stand-in for spark-submit and the gate of running applications go.
    """

    def __init__(self, yarn: YarnStandIn, folder: Path) -> None:
        self.yarn, self.gate = yarn, folder / "gate"
        self.spark_submit = yarn.spark_submit(folder)
        self._requests_before = len(yarn.requests())

    def requests(self, call: str) -> list[dict[str, Any]]:
        """Return the requests of a kind since this object was made."""
        return [row for row in self.yarn.requests()[self._requests_before :] if row["call"] == call]

    def jobs(self) -> list[SeenJob]:
        """Read the stand-in's log of submits."""
        known = self.yarn.applications()
        return [
            SeenJob(app, app in known and known[app]["finalStatus"] == "UNDEFINED")
            for app in self.submitted()
        ]

    def submitted(self) -> list[str]:
        """Return the ids of the applications that were taken, oldest first."""
        return [row["app"] for row in self.requests("submit") if row.get("created")]

    def release(self) -> None:
        """Open the gate."""
        self.gate.touch()

    def forget(self, external_id: Any) -> None:
        """Let the ResourceManager forget, as one that was restarted without its state store."""
        self.yarn.forget(external_id)

    def cancels(self) -> int:
        """Count the kill requests that did something."""
        return len([row for row in self.requests("kill") if row["code"] == 202])

    def stop_slowly(self, external_id: Any) -> None:
        """Kill by a hand of the cluster's own; the application takes its time."""
        self.yarn.show(external_id, "KILLING")

    def fail(self, call: Any, fault: Any, times: int) -> None:
        """Let requests fail; to the submit that of spark-submit's own."""
        kind = "forbidden" if fault == "denied" else fault
        self.yarn.fail({"cancel": "kill"}.get(call, call), kind, times=times)

    def plan(self, outcome: str) -> dict[str, Any]:
        """Return what the stand-in is to do with an application."""
        plans: dict[str, dict[str, Any]] = {
            "runs": {"gate": str(self.gate)},
            "succeeds": {"seconds": 0.05},
            "fails": {"final": "FAILED"},
        }
        return plans[outcome]


def connection(address: str, **extra: Any) -> str:
    """Return the Spark connection to a YARN cluster, as Airflow reads it from an environment variable."""
    named = {"yarn_resourcemanager_webapp_address": address} if address else {}
    return json.dumps(
        {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster", **named, **extra}}
    )


def make(
    spark_submit: Path | str,
    plan: dict[str, Any] | None = None,
    *,
    operator_class: type[SparkSubmitOperator] = ResumableSparkSubmitOperator,
    **arguments: Any,
) -> Any:
    """Return an operator; ours looks more often than it would."""
    given: dict[str, Any] = {
        "task_id": "task",
        "application": "app.jar",
        "java_class": "Main",
        "application_args": [json.dumps(plan or {})],
        "spark_binary": str(spark_submit),
        "retries": 2,
        **arguments,
    }
    operator = operator_class(**given)
    vars(operator)["get_poll_interval"] = lambda: 0.05
    return operator


@dataclass
class YarnTask(SparkTask):
    """One task instance whose application is the stand-in's; its attempts may be processes that die.

    Args:
        spark_submit: The stand-in for spark-submit.
        plan: What the application is to do.
    """

    spark_submit: str = ""
    plan: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, service: YarnService, store_dir: Path, plan: dict[str, Any], **more: Any) -> YarnTask:
        """Return a task for a service."""
        return cls(
            cluster_environment={},
            connection=more.pop("connection", connection(service.yarn.address)),
            store_dir=store_dir,
            app=None,  # type: ignore[arg-type]
            spark_submit=str(service.spark_submit),
            plan=plan,
            **more,
        )

    @property
    def environment(self) -> dict[str, str]:
        """What an attempt is to find in its environment."""
        return {CONNECTION: self.connection}

    def operator(self) -> Any:
        """Return a fresh operator, as each attempt has its own."""
        policy = {"resume_policy": self.policy} if self.operator_class is not SparkSubmitOperator else {}
        # Without it the provider's own operator refuses YARN.
        return make(
            self.spark_submit,
            self.plan,
            operator_class=self.operator_class,
            yarn_track_via_rm_api=self.operator_class is SparkSubmitOperator,
            **policy,
            **self.arguments,
        )


def clients(service: YarnService) -> list[psutil.Process]:
    """Return the spark-submit processes of a test that still run."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(service.gate) in word for word in words) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found
