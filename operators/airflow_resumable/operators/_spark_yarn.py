# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Spark on YARN, cluster deploy mode: an application that carries our tags.

Token and family are added to the tags in ``spark.yarn.tags``, so that a try that finds an intent without an
id asks the ResourceManager for the application before it submits another. spark-submit ends once YARN has
taken the application (``spark.yarn.submit.waitAppCompletion=false``); status and kill are requests to the
ResourceManager's REST API. Extra of the Spark connection: the parent's
``yarn_resourcemanager_webapp_address``; with several ResourceManagers the addresses of all, comma-separated.

What remains open:
    The ResourceManager takes any number of applications with one tag. Two submits at once, of a worker that
    was only taken for dead and of the next try, start two; a try that finds both alive fails with
    `JobAmbiguous` and names them. An application that ended is found again until
    ``yarn.resourcemanager.max-completed-applications`` (1000) others have ended since; and one that the
    ResourceManager doesn't show to the user who asks
    (``yarn.webapp.filter-entity-list-by-user``) is never found.

See https://spark.apache.org/docs/latest/running-on-yarn.html#spark-properties.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowException

from airflow_resumable.jobs.adapter import FoundJob, SubmitWindow
from airflow_resumable.jobs.errors import JobAmbiguous, ResumableJobFatal
from airflow_resumable.operators._spark_target import SparkTarget
from airflow_resumable.operators._yarn_rm import (
    ACTIVE,
    FAILED,
    STOPPING,
    SUCCEEDED,
    ResourceManagers,
    base_urls,
)

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from pydantic import JsonValue

    from airflow_resumable.operators._yarn_rm import Application

TOKEN_TAG = "airflow-resumable-token:"
FAMILY_TAG = "airflow-resumable-family:"

_TAGS = "spark.yarn.tags"
_WAIT = "spark.yarn.submit.waitAppCompletion"
_ADDRESS = "yarn_resourcemanager_webapp_address"
# Limits of ApplicationSubmissionContext in Hadoop: beyond these spark-submit fails with a stack trace.
_MOST_TAGS = 10
_LONGEST_TAG = 100
_ID = re.compile(r"application_\d+_\d+")
# Spark's client also prints the id before YARN has the application: "Submitting application ...".
_TAKEN = re.compile(r"(?:Submitted application|Application report for) (application_\d+_\d+)")


def resource_managers(hook: SparkSubmitHook) -> str:
    """Return the addresses of the ResourceManagers by a hook's connection, empty where it has none."""
    try:
        extra = hook.get_connection(hook._conn_id).extra_dejson
    except AirflowException:
        # The hook takes "yarn" for its master then, in whichever deploy mode the operator names.
        return ""
    return ",".join(base_urls(str(extra.get(_ADDRESS) or "")))


def follow(hook: SparkSubmitHook) -> None:
    """Have the parent's hook follow an application over the REST API, whether it was told to or not.

    Raises:
        ValueError: The connection names no ResourceManager, so nobody could look for an application.
    """
    addresses = resource_managers(hook)
    if not addresses:
        raise ValueError(
            f"connection {hook._conn_id!r} names no ResourceManager, and without one an application on YARN "
            f"can be neither watched nor found again: set {_ADDRESS} in its extra, as in "
            "http://rm.example.com:8088 (of several ResourceManagers all, comma-separated), or set "
            "durable=False"
        )
    hook._yarn_track_via_rm_api = True
    # The parent's own requests know one address.
    hook._yarn_rm_base_url = addresses.split(",")[0]


class YarnTarget(SparkTarget):
    """The ResourceManagers of a YARN cluster; an id is YARN's own, as the parent stores it."""

    submit_window = SubmitWindow.NARROWED
    finds_by_family = True
    least_poll_interval = 10.0
    active: ClassVar[frozenset[str]] = ACTIVE
    succeeded: ClassVar[frozenset[str]] = SUCCEEDED

    def __init__(self, operator: Any, hook: Any) -> None:
        super().__init__(operator, hook)
        self._log = operator.log
        self.managers = self._at(resource_managers(hook))
        self._created: bool | None = None
        self._last = ""

    def _at(self, addresses: str) -> ResourceManagers:
        return ResourceManagers(
            addresses, auth=self.hook._resolved_yarn_rm_auth, connection=self.hook._conn_id
        )

    # --- submit ---

    def conf(self, token: str, family: str) -> dict[str, Any]:
        """Return the user's tags with ours, and that spark-submit is not to wait for the end.

        Raises:
            ValueError: The operator's conf says otherwise of the waiting, or its tags leave no room.
        """
        self._created = None
        if str(self.hook._conf.get(_WAIT, "false")).strip().lower() != "false":
            raise ValueError(
                f"{_WAIT}={self.hook._conf[_WAIT]!r} is not allowed: spark-submit would stay for as long as "
                "the application runs. Leave it out, or set durable=False"
            )
        ours = [f"{TOKEN_TAG}{token}", f"{FAMILY_TAG}{family}"]
        # A property on the command line replaces that of a file.
        where, text = next(((name, text) for name, text in self._users_tags() if text is not None), ("", ""))
        users = list(dict.fromkeys(tag.strip().lower() for tag in str(text).split(",") if tag.strip()))
        bad = [tag for tag in users if len(tag) > _LONGEST_TAG or not (tag.isascii() and tag.isprintable())]
        if bad:
            raise ValueError(
                f"{_TAGS} in {where} has the tag {bad[0]!r}, which YARN refuses: use up to {_LONGEST_TAG} "
                "printable ASCII characters"
            )
        if len(users) > _MOST_TAGS - len(ours):
            raise ValueError(
                f"{_TAGS} in {where} has {len(users)} tags ({', '.join(users)}): YARN takes {_MOST_TAGS}, "
                f"and this operator adds {len(ours)}; leave {_MOST_TAGS - len(ours)} at most, or set "
                "durable=False"
            )
        return {_TAGS: ",".join([*users, *ours]), _WAIT: "false"}

    def _users_tags(self) -> list[tuple[str, Any]]:
        """Return where tags may be set, and those that are, the first of which counts."""
        found: list[tuple[str, Any]] = [("the operator's conf", self.hook._conf.get(_TAGS))]
        home = os.environ.get("SPARK_HOME")
        folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
        # spark-submit reads the defaults only where it isn't given another file.
        for path in [self.hook._properties_file or (folder and f"{folder}/spark-defaults.conf")]:
            if path:
                found.append((path, property_in(Path(path), _TAGS)))
        return found

    def told(self, line: str) -> str | None:
        """Return the application's id from the line in which YARN has taken it."""
        found = _TAKEN.search(line)
        if found is None:
            return None
        self._created = True
        return found[1]

    def after_client(self, code: int | None) -> JsonValue:
        """Return the id of the application with our tag: a broken spark-submit may have got that far.

        Raises:
            JobAmbiguous: There are several.
        """
        token, record = self.attempt.token or "", self.attempt.record
        try:
            found = self.managers.find(_tag(TOKEN_TAG, token), self.attempt.search_from)
        except Exception as error:
            self._log.warning("spark-submit told no application id; looking for it: %s", error)
            return None
        known = record.ids if record is not None else ()
        fresh = [app for app in found if app.id not in known]
        live = [app.id for app in fresh if app.is_live]
        if len(live) > 1:
            raise JobAmbiguous(
                f"spark-submit ended with {code} without telling an application id, and {', '.join(live)} "
                f"carry this task's token {token}: kill all but one, then clear the task",
                external_id=live[0],
            )
        if not fresh:
            return None
        app_id = (live or [max(fresh, key=lambda app: app.number).id])[0]
        self._log.warning("spark-submit told no application id, but %s carries this task's token", app_id)
        return app_id

    def was_created(self) -> bool | None:
        """Say whether spark-submit itself told of the application."""
        return self._created

    # --- look ---

    def status(self, external_id: str) -> str:
        """Return the application's state, its final status once it has finished, and why it failed."""
        app = self.managers.application(external_id)
        self.hook._yarn_application_id = external_id
        if app.status != self._last:
            self._last = app.status
            why = f": {app.diagnostics}" if app.diagnostics and not app.is_live else ""
            self._log.info("Application %s is %s%s", external_id, app.status, why)
        return app.said

    def is_failed(self, status: str) -> bool:
        """Say whether the application has ended without success, whatever the reason."""
        return status.partition(": ")[0] in FAILED

    def is_stopping(self, status: str) -> bool:
        """Say whether the application is being killed."""
        return status in STOPPING

    def find_token(self, token: str, since: datetime) -> Sequence[FoundJob]:
        """Return the applications that carry the token."""
        return [self._found(app) for app in self.managers.find(_tag(TOKEN_TAG, token), since)]

    def find_family(self, family: str, since: datetime) -> Sequence[FoundJob]:
        """Return the applications of every generation."""
        return [self._found(app) for app in self.managers.find(_tag(FAMILY_TAG, family), since)]

    def _found(self, app: Application) -> FoundJob:
        token = next((tag.removeprefix(TOKEN_TAG) for tag in app.tags if tag.startswith(TOKEN_TAG)), None)
        return FoundJob(app.id, app.said, token=token, location=self.managers.location)

    # --- the job on record ---

    def location(self, external_id: str) -> JsonValue:
        """Return the addresses of the ResourceManagers."""
        return self.managers.location

    def restore(self, external_id: str, location: JsonValue, uid: str | None) -> None:
        """Take over an application; it is looked for where it was started.

        Raises:
            ResumableJobFatal: The id is not one of YARN's.
        """
        if not _ID.fullmatch(external_id):
            raise ResumableJobFatal(
                f"the id on record is {external_id!r}, not application_..._...: it was started on another "
                "kind of cluster; set the connection back, or delete the record and clear the task"
            )
        self.hook._yarn_application_id = external_id
        if isinstance(location, str) and location and not self.managers.is_same_cluster_as(location):
            self._log.warning(
                "Application %s was started at %s; connection %r now names %s. It is watched where it is",
                external_id,
                location,
                self.managers.connection,
                self.managers.location,
            )
            self.managers = self._at(location)

    def url(self, external_id: str) -> str | None:
        """Return the application's page in the ResourceManager's web UI, which links to Spark's own."""
        return self.managers.page(external_id)

    # --- end ---

    def cancel(self, external_id: str) -> None:
        """Ask the ResourceManager to kill the application; one that has ended stays as it is."""
        self.managers.kill(external_id)


def property_in(path: Path, name: str) -> str | None:
    """Return a property of a Spark properties file, None where it isn't set or the file can't be read.

    Args:
        path: A file of Java properties: ``name value``, ``name=value`` or ``name: value``, one a line.
        name: The property.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        # spark-submit says so itself where it needs the file.
        return None
    value = None
    for line in lines:
        key, *rest = re.split(r"\s*[=:\s]\s*", line.strip(), maxsplit=1)
        if key == name:
            value = rest[0] if rest else ""
    return value


def _tag(prefix: str, value: str) -> str:
    # YARN keeps tags in lower case.
    return f"{prefix}{value}".lower()
