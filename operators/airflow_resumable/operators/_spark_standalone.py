# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Spark standalone, cluster deploy mode: a driver that its master names.

The id is on record as soon as spark-submit prints it, before that process ends. Status and kill are requests
to the master's REST gateway; where that is off, the status is read from the JSON page of the master's web UI,
and a cancel is refused.

Extras of the Spark connection: the parent's ``rest-scheme`` (http) and ``rest-port`` (6066), and
``webui-port`` (8080), where the master's web UI listens. The port in the master's URL doesn't matter for any
of these.

What remains open:
    Spark standalone takes no token and no id of ours: it starts a driver for every request. So the
    intent keeps the ids that the master listed before the submit, the driver carries the token as the
    property ``spark.airflow.resumable.mark``, and a try that finds an intent without an id looks at
    the drivers that are new on the master's list: a worker writes the command that it launches, the
    mark in it, at the top of the driver's stderr, and serves it on its web UI as long as it keeps the
    driver's directory. A crash between "accepted" and "on record" then starts no second driver, but

    - when the master forgot the driver in between: restarted without recovery (which kills the driver),
      restarted with recovery after the driver had ended, or ``spark.deploy.retainedDrivers`` others
      have ended since;
    - when the master's web UI could be reached neither before the submit nor afterwards: nothing can
      be looked up, which is warned about at every submit;
    - when two attempts overlap (a worker that was only taken for dead) and both are in their submit.

    A driver that was taken in that window just before a user stopped the task, or before the last try
    was killed, runs on: nobody is left to look for it.

    It can't be told of a driver that no worker has launched yet, or whose worker's web UI is out of
    reach. Such a driver is waited for, for `adoption_patience` seconds; then the attempt fails with
    `JobNotSettled`, which Airflow retries, rather than adopt or repeat it. Of a driver that failed or
    was killed it need not be told: a new one is due either way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.adapter import FoundJob, SubmitWindow
from airflow_resumable.jobs.errors import JobAmbiguous
from airflow_resumable.operators._driver_search import MARK, Before, DriverSearch, snapshot
from airflow_resumable.operators._spark_listing import ACTIVE, FAILED, SUCCEEDED
from airflow_resumable.operators._spark_master import Masters
from airflow_resumable.operators._spark_target import SparkTarget
from airflow_resumable.operators._submit_client import accepted_id

if TYPE_CHECKING:
    from pydantic import JsonValue

_DRIVER_ID = re.compile(r"driver-\d{14}-\d{4,}")


class StandaloneTarget(SparkTarget):
    """The masters of a standalone cluster."""

    submit_window = SubmitWindow.OPEN
    snapshots = True
    active: ClassVar[frozenset[str]] = ACTIVE
    succeeded: ClassVar[frozenset[str]] = SUCCEEDED
    failed: ClassVar[frozenset[str]] = FAILED

    def __init__(self, operator: Any, hook: Any) -> None:
        super().__init__(operator, hook)
        self.masters = Masters.of(hook)
        self._log = operator.log

    def conf(self, token: str, family: str) -> dict[str, Any]:
        """Return the property that a worker writes into the launch command of the driver."""
        self.hook._validate_yarn_track_via_rm_api_config()
        self.hook._connection = {**self.hook._connection, "master": self.masters.url_to_submit()}
        return {MARK: token}

    def told(self, line: str) -> str | None:
        """Return the driver's id from the line in which the master takes it."""
        return accepted_id(line)

    def after_client(self, code: int | None) -> JsonValue:
        """Return the driver's id by the parent's reading of the output, or by a look at the masters."""
        driver_id = self.hook._driver_id
        if code == 0 and _DRIVER_ID.fullmatch(driver_id or ""):
            return str(driver_id)
        self.hook._driver_id = self._accepted_without_a_word()
        return self.hook._driver_id

    def _accepted_without_a_word(self) -> str | None:
        record = self.attempt.record
        if record is None or record.before is None:
            return None
        try:
            found = self._search(record.token, record.intent_at).settle(self.operator.adoption_patience)
        except Exception as error:
            self._log.warning("spark-submit told no driver id; looking for the driver: %s", error)
            return None
        live = [one.id for one in found if one.is_live]
        if len(live) > 1:
            raise JobAmbiguous(
                f"spark-submit told no driver id and left drivers {', '.join(live)} with this task's token "
                f"{record.token}: kill all but one, then clear the task",
                external_id=live[0],
            )
        if not found:
            return None
        driver_id = (live or [found[0].id])[0]
        self._log.warning("spark-submit told no driver id, but %s carries this task's token", driver_id)
        return driver_id

    def snapshot(self) -> JsonValue:
        """Return the drivers that the master lists, or None with a warning where its page can't be reached.

        Raises:
            AirflowException: The masters answer neither there nor over REST: a driver could not be
                watched.
        """
        masters = self.masters
        try:
            return snapshot(masters, self.operator._java_class, self.operator.adoption_patience)
        except ConnectionError as error:
            raise AirflowException(
                f"a driver on {masters.url} could not be watched, so nothing was submitted: {error}"
            ) from error

    def status(self, external_id: str) -> str:
        """Return the driver's state by the leading master: over REST, or from its page where REST is off."""
        state = self.masters.driver_state(external_id)
        if state != self.hook._driver_status:
            self._log.info("Driver %s is %s", external_id, state)
        self.hook._driver_id, self.hook._driver_status = external_id, state
        return state

    def find_token(self, token: str, since: datetime) -> Sequence[FoundJob]:
        """Return the drivers that carry `token`, see "What remains open" above."""
        record = self.attempt.record
        if record is not None and record.token == token and record.external_id is not None:
            # Its id is on record already, and looked at by whoever asks.
            return []
        drivers = self._search(token, since).settle(self.operator.adoption_patience)
        return [FoundJob(one.id, one.state, token=token, location=self.masters.url) for one in drivers]

    def _search(self, token: str, since: datetime) -> DriverSearch:
        attempt = self.attempt
        record = attempt.record
        cleared = record is not None and (record.reported or record.max_tries != attempt.max_tries)
        return DriverSearch(
            self.masters,
            token,
            before=Before.load(record.before) if record is not None else None,
            since=since,
            # After a clear only what has to be cancelled is sought.
            ended_matter=not (cleared and attempt.policy.on_clear == "resubmit"),
        )

    def location(self, external_id: str) -> JsonValue:
        """Return the master URL."""
        return self.masters.url

    def restore(self, external_id: str, location: JsonValue, uid: str | None) -> None:
        """Take over a driver; it is looked for where it was started."""
        self.hook._driver_id = external_id
        if isinstance(location, str) and not self.masters.is_same_cluster_as(location):
            self._log.warning(
                "Driver %s was started on %s; connection %r now names %s. It is watched where it is",
                external_id,
                location,
                self.masters.connection,
                self.masters.url,
            )
            self.masters = Masters.of(self.hook, location)

    def url(self, external_id: str) -> str | None:
        """Return the page of the leading master, which lists its drivers."""
        return self.masters.page(self.masters.leader) if self.masters.hosts else None

    def cancel(self, external_id: str) -> None:
        """Ask the masters over REST to kill the driver; one that has ended is none to kill."""
        self.masters.kill(external_id)
