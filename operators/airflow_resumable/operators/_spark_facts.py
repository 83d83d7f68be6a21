# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What each kind of cluster lets `ResumableSparkSubmitOperator` promise."""

from __future__ import annotations

from datetime import timedelta

from airflow_resumable.jobs.adapter import SubmitWindow
from airflow_resumable.operators._facts import Permission, ServiceFacts

STANDALONE = ServiceFacts(
    service="Spark standalone",
    submit_window=SubmitWindow.OPEN,
    window="Between the master's answer and the record of the driver's id: the driver is looked for by its "
    "launch command, which the master may have forgotten or no worker shows.",
    token="property `spark.airflow.resumable.mark`, in the launch command that a worker's log page shows",
    memory="the last 200 drivers that have ended (`spark.deploy.retainedDrivers`); none over a restart "
    "without recovery",
    cancel="a kill request to the masters' REST gateway; refused where that is off",
    retries=2,
    retry_delay=timedelta(seconds=30),
    retries_why="one for a lost worker and one for a lost driver; a master takes some seconds to recover",
)
KUBERNETES = ServiceFacts(
    service="Spark on Kubernetes",
    submit_window=SubmitWindow.CLOSED,
    window="Nothing, while the driver pod of a generation exists: its name is taken.",
    token="the end of `spark.kubernetes.driver.pod.name`, unless the conf has a name, and a label",
    memory="until the driver pod is deleted",
    cancel="the driver pod of this uid is deleted, and its executors with it",
    retries=2,
    retry_delay=timedelta(seconds=60),
    retries_why="one for a lost worker and one for a lost node; a pod may take that long to be gone",
    permissions=(
        Permission("", "pods", ("create", "get", "list", "delete"), "the driver pod"),
        Permission("", "pods", ("watch", "patch"), "spark-submit"),
        Permission("", "configmaps", ("create", "get", "patch"), "spark-submit; a driver that never starts"),
        Permission("", "services", ("create", "patch", "get"), "spark-submit"),
        Permission("networking.k8s.io", "networkpolicies", ("create", "patch"), "spark-submit of Spark 4.2"),
    ),
)
YARN = ServiceFacts(
    service="Spark on YARN",
    submit_window=SubmitWindow.NARROWED,
    window="Two submits at once, of a worker only taken for dead and of the next try, start two: YARN takes "
    "any number of applications with one tag. Else one is found by its tag before another submit.",
    token="a tag of the application, `airflow-resumable-token:...`, beside the user's own in "
    "`spark.yarn.tags`; the family is another",
    memory="the last 1000 applications that have ended "
    "(`yarn.resourcemanager.max-completed-applications`); none over a restart without recovery",
    cancel="a kill request to the ResourceManager's REST API, which has to know the user who asks",
    retries=2,
    retry_delay=timedelta(seconds=30),
    retries_why="one for a lost worker and one for a lost application; a fail-over takes some seconds",
    permissions=(
        Permission("yarn", "queue", ("SUBMIT_APPLICATIONS",), "spark-submit"),
        Permission("yarn", "application", ("VIEW_APP",), "status and search, where ACLs are on"),
        Permission("yarn", "application", ("MODIFY_APP",), "a cancel, where ACLs are on"),
    ),
)
FACTS: tuple[ServiceFacts, ...] = (STANDALONE, KUBERNETES, YARN)
