# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Which object of the API server a job is: its name, namespace and uid, and where it lives."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_resumable.jobs.mixin import ResumableJobMixin

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue


class Identity(ResumableJobMixin):
    """Tells objects apart by uid: a name is free again once its object is gone.

    An external id is ``{"name", "namespace", "uid"}``; one that the parent operator has stored has no uid.
    """

    kind: ClassVar[str]
    """What the object is called in messages."""

    if TYPE_CHECKING:
        log: Any
        hook: Any

        def _look(self, external_id: Any) -> Any: ...

    @cached_property
    def _uids(self) -> dict[tuple[str, str], str]:
        return {}

    @cached_property
    def _namespace_on_record(self) -> str | None:
        return None

    def _id_of(self, found: Any) -> dict[str, Any]:
        meta = found.metadata
        self._uids[meta.name, meta.namespace] = meta.uid
        return {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}

    def _parts(self, external_id: Any) -> tuple[str, str, str | None]:
        name, namespace = external_id["name"], external_id["namespace"]
        return name, namespace, external_id.get("uid") or self._uids.get((name, namespace))

    @staticmethod
    def _spelled(found: Any) -> tuple[str, str]:
        return found.metadata.name, found.metadata.uid

    def _place(self, namespace: str) -> dict[str, Any]:
        return {"cluster": self.hook.api_client.configuration.host, "namespace": namespace}

    @property
    def _intended(self) -> dict[str, Any] | None:
        """Where the generation on record was going to be created, when that was noted."""
        attempt = self._resumable_attempt
        record = attempt.record if attempt is not None else None
        before = record.before if record is not None else None
        return before if isinstance(before, dict) and "namespace" in before else None

    def _check_cluster(self) -> None:
        """Raise if the intent was for another cluster: there its object may run, and can't be found here.

        Raises:
            ResumableJobFatal: Naming both clusters.
        """
        from airflow_resumable.jobs.errors import ResumableJobFatal

        if self._intended is None:
            return
        namespace, there = self._intended["namespace"], self._intended.get("cluster")
        here = self._place(namespace)["cluster"]
        if there not in (None, here):
            raise ResumableJobFatal(
                f"a {self.kind} of this task was going to be created on cluster {there}, in namespace "
                f"{namespace!r}, and the connection leads to {here} now: whether it was can't be seen from "
                "here. Let the connection lead there again; or see to it that nothing of this task runs "
                "there, and clear the task"
            )

    def get_job_location(self, external_id: JsonValue, context: Context) -> JsonValue:
        """Return the API server's address and the namespace."""
        return self._place(self._parts(external_id)[1])

    def get_job_uid(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the object's uid; of one that the parent has started it is read."""
        from airflow_resumable.jobs.errors import JobNotFound

        uid = self._parts(external_id)[2]
        if uid is None:
            try:
                uid = self._look(external_id).metadata.uid
            except JobNotFound:
                return None
        return uid

    def id_to_parent_value(self, external_id: JsonValue) -> JsonValue:
        """Return name and namespace, as the parent stores them."""
        name, namespace, _ = self._parts(external_id)
        return {"name": name, "namespace": namespace}

    def parent_value_to_id(self, value: JsonValue) -> JsonValue:
        """Return the id from name and namespace.

        Raises:
            RecordUnreadable: Something else lies under the parent's key.
        """
        from airflow_resumable.jobs.errors import RecordUnreadable

        parts = ("name", "namespace")
        if isinstance(value, dict) and all(isinstance(value.get(part), str) for part in parts):
            return {"name": value["name"], "namespace": value["namespace"]}
        raise RecordUnreadable(
            f"the value under {self.external_id_key!r} is {value!r}, not a name and a namespace; nothing was "
            "submitted. If no job of this task is running, delete the key from the task's state store and "
            "clear the task"
        )

    def restore_job(
        self, external_id: JsonValue, location: JsonValue, uid: str | None, context: Context
    ) -> None:
        """Take over an object that another attempt has created."""
        name, namespace, known = self._parts(external_id)
        if known is None and uid is not None:
            self._uids[name, namespace] = uid
        vars(self)["_namespace_on_record"] = namespace
        here = self._place(namespace)["cluster"]
        if isinstance(location, dict) and location.get("cluster") not in (None, here):
            self.log.warning(
                "The %s %s/%s was started on cluster %s, and the connection leads to %s now: if these are "
                "not the same, it can't be found",
                self.kind,
                namespace,
                name,
                location["cluster"],
                here,
            )
        self._taken(external_id)

    def _taken(self, external_id: Any) -> None:
        """Fill what the parent keeps of its object."""
