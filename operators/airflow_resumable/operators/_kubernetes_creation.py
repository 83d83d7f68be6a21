# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""How a pod or Job is created once, whatever becomes of the answer, and whose it is where a name is taken."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_resumable.operators._kubernetes_identity import Identity

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue


class Creation(Identity):
    """Creates an object under a name that the idempotency token completes, or an exact one.

    A second create of the same generation is refused with 409,
    https://kubernetes.io/docs/reference/using-api/api-concepts/. Where an exact name is asked for
    (``random_name_suffix=False``) the labels tell whose the object is that has the name.
    """

    seen: Any = None
    """The object as it was last read."""
    _created: bool | None = None
    _planned: Any = None

    if TYPE_CHECKING:
        name: str | None
        random_name_suffix: bool

        def _set_name(self, name: str | None) -> str | None: ...

    # --- what a kind of object has to say ---

    @abstractmethod
    def _build(self, context: Context) -> Any:
        """Return the object as the parent builds it."""

    @abstractmethod
    def _create(self, namespace: str, body: Any, **options: Any) -> Any:
        """Create the object and return it."""

    @abstractmethod
    def _read(self, name: str, namespace: str, **options: Any) -> tuple[Any, Any]:
        """Return the object, and the headers of the answer."""

    @abstractmethod
    def _listing(self) -> Any:
        """Return the client's list call."""

    @abstractmethod
    def _delete(self, name: str, namespace: str, uid: str, **options: Any) -> None:
        """Delete the object of this uid."""

    @abstractmethod
    def _state_of(self, found: Any, now: datetime | None) -> str:
        """Return the object's state in words; by the server's clock, None where that isn't known."""

    @abstractmethod
    def _may_still_run(self, found: Any) -> bool:
        """Say whether an object may yet do work, whatever is on record of it."""

    @abstractmethod
    def _mark(self, body: Any, labels: Mapping[str, str]) -> None:
        """Put labels on the object to be created."""

    # --- submit ---

    def _plan(self, context: Context) -> Any:
        if self._planned is None:
            self.name = self._set_name(self.name)
            suffixed, self.random_name_suffix = self.random_name_suffix, False
            try:
                self._planned = self._build(context)
            finally:
                self.random_name_suffix = suffixed
        return self._planned

    def snapshot_before_submit(self, context: Context) -> JsonValue:
        """Return where the object is going to be created; kept with the intent, the next try looks there.

        A template, an edited Dag or another connection may name another namespace by then.
        """
        return self._place(self._plan(context).metadata.namespace)

    def _to_create(self, context: Context) -> Any:
        from airflow_resumable.operators._kubernetes_api import labels_for, name_with

        token, family = self.idempotency_token, self.job_family
        if token is None or family is None:
            # Nothing is recorded, so nobody will look for it.
            return self._build(context)
        body = copy.deepcopy(self._plan(context))
        planned, intended = body.metadata.namespace, self._intended
        if intended is not None and intended["namespace"] != planned:
            # The first sender may only be asleep: under the same name there is but one of the two.
            body.metadata.namespace = intended["namespace"]
            self.log.warning(
                "Creating the %s in namespace %s, where an earlier try was going to, and not in %s",
                self.kind,
                body.metadata.namespace,
                planned,
            )
        if self.random_name_suffix:
            body.metadata.name = name_with(body.metadata.name, token)
        self._mark(body, labels_for(token, family))
        return body

    def submit_job(self, context: Context) -> Any:
        """Create the object, or find that it was created; return its name, namespace and uid.

        Raises:
            ResumableJobFatal: Its name belongs to somebody else's; names that and the remedy.
            ApiException: The API server refused.
        """
        from kubernetes.client import ApiException

        from airflow_resumable.operators._kubernetes_api import LOOK_TIMEOUT, reason_of

        body = self._to_create(context)
        namespace = body.metadata.namespace
        self._end_predecessors(namespace)
        self._before_create(body, context)
        self._created = None
        try:
            found = self._create(namespace, body, _request_timeout=LOOK_TIMEOUT)
            self._created = True
            self.log.info("Created %s %s/%s, uid %s", self.kind, namespace, *self._spelled(found))
        except ApiException as error:
            if error.status != 409 or self.idempotency_token is None:
                asked = f"{self.kind} {namespace}/{body.metadata.name}"
                self.log.error("The API server hasn't created the %s: %s", asked, reason_of(error))
                raise
            found = self._whose(body.metadata.name, namespace, error)
            self._created = False
            self.log.info(
                "The %s %s/%s, uid %s, was created before", self.kind, namespace, *self._spelled(found)
            )
        self.seen = found
        external_id = self._id_of(found)
        self._taken(external_id)
        return external_id

    def _end_predecessors(self, namespace: str) -> None:
        """Delete what is on record as failed and could still start: its clean-up may have been cut short.

        Raises:
            ConnectionError: There is one, and it is not gone yet.
        """
        from airflow_resumable.operators._kubernetes_api import FAMILY_LABEL, TOKEN_LABEL, listed

        attempt = self._resumable_attempt
        ids: Any = attempt.record.ids if attempt is not None and attempt.record is not None else ()
        uids = {one.get("uid") for one in ids if isinstance(one, dict)} - {None}
        if attempt is None or not uids:
            return
        selector = f"{FAMILY_LABEL}={attempt.mint.family},{TOKEN_LABEL}!={attempt.token}"
        places = dict.fromkeys([namespace, *(one["namespace"] for one in ids if isinstance(one, dict))])
        for one in (
            each for place in places for each in listed(self._listing(), place, selector, attempt.search_from)
        ):
            meta = one.metadata
            if meta.uid not in uids or not self._may_still_run(one):
                continue
            what = f"{self.kind} {meta.namespace}/{meta.name}, uid {meta.uid}, of an earlier generation"
            if not meta.deletion_timestamp:
                self.log.warning("The %s, could still start; deleting it", what)
                self._delete(meta.name, meta.namespace, meta.uid)
            raise ConnectionError(f"{what}, is being deleted")

    def _before_create(self, body: Any, context: Context) -> None:
        """Do what the parent does before it creates the object."""

    def _whose(self, name: str, namespace: str, conflict: Any) -> Any:
        from airflow_resumable.jobs.errors import ResumableJobFatal
        from airflow_resumable.operators._kubernetes_api import (
            FAMILY_LABEL,
            LOOK_TIMEOUT,
            TOKEN_LABEL,
            is_status,
            reason_of,
        )

        try:
            found, _ = self._read(name, namespace, _request_timeout=LOOK_TIMEOUT)
        except Exception as error:
            if is_status(error, 404):
                raise ConnectionError(f"{reason_of(conflict)}; but it is gone by now") from error
            raise
        labels, uid = found.metadata.labels or {}, found.metadata.uid
        if labels.get(TOKEN_LABEL) == self.idempotency_token:
            return found
        what = f"{self.kind} {namespace}/{name}, uid {uid}"
        if labels.get(FAMILY_LABEL) == self.job_family:
            # Of an earlier generation: an exact name is used again by each.
            if not found.metadata.deletion_timestamp:
                state = self._state_of(found, None)
                ended = self.is_job_succeeded(state) or self.is_job_failed(state)
                if not ended and not self._is_overtaken(labels.get(TOKEN_LABEL)):
                    raise ResumableJobFatal(
                        f"{what}, of an earlier generation of this task, is {state!r} and has the name that "
                        "the next one needs; delete it, then clear the task"
                    )
                # This attempt may have slept since, and that be the pod of a later generation.
                self._show_ownership()
                self.log.warning(
                    "The %s, %s and has the name of the next; deleting it",
                    what,
                    "has ended" if ended else "was created by an attempt that was overtaken",
                )
                self._delete(name, namespace, uid)
            raise ConnectionError(f"{what}, of an earlier generation, is being deleted")
        raise ResumableJobFatal(
            f"{what}, has the name {name!r} and is not this task's (its labels: {labels}): delete or rename "
            "it, or give the operator another name or random_name_suffix=True; it was left alone"
        )

    def _is_overtaken(self, token: str | None) -> bool:
        """Say whether a token is one of an earlier generation whose create may have come late."""
        attempt = self._resumable_attempt
        record = attempt.record if attempt is not None else None
        return record is not None and token in record.unsettled

    def _show_ownership(self) -> None:
        attempt = self._resumable_attempt
        if attempt is not None and attempt.record is not None:
            attempt.claim(attempt.record)

    def was_job_created(self) -> bool | None:
        """Say whether the API server has created an object for the last submit, 201, or had it, 409."""
        return self._created
