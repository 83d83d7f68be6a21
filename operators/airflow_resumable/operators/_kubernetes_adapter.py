# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What Pods and Jobs have in common: one object each, named by its token, known by its uid."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_resumable.jobs.adapter import FoundJob, Observation, SubmitWindow
from airflow_resumable.jobs.link import JobLink
from airflow_resumable.jobs.mixin import ResumableJobMixin

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

_CONNECTION_ARGUMENTS = ("kubernetes_conn_id", "in_cluster", "cluster_context", "namespace")


class KubernetesAdapter(ResumableJobMixin):
    """Closes the submit window by the object's name, and tells objects apart by uid.

    The name ends with the idempotency token, so a second create of the same generation is refused with 409,
    https://kubernetes.io/docs/reference/using-api/api-concepts/. Where an exact name is asked for
    (``random_name_suffix=False``) the labels tell whose the object is that has the name.

    An external id is ``{"name", "namespace", "uid"}``; one that the parent operator has stored has no uid.
    """

    submit_window = SubmitWindow.CLOSED
    missing_while_running_is_failure = True
    operator_extra_links: Any = (JobLink(),)

    kind: ClassVar[str]
    """What the object is called in messages."""

    seen: Any = None
    """The object as it was last read."""
    _created: bool | None = None
    _server_now: datetime | None = None
    _config_given: dict[str, Any] | None = None
    _planned: Any = None

    if TYPE_CHECKING:
        log: Any
        _told: set[str]
        name: str | None
        random_name_suffix: bool
        kubernetes_conn_id: str | None

        def convert_config_file_to_dict(self) -> None: ...
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

    def _to_create(self, context: Context) -> Any:
        from airflow_resumable.operators._kubernetes_api import labels_for, name_with

        token, family = self.idempotency_token, self.job_family
        if token is None or family is None:
            # Nothing is recorded, so nobody will look for it.
            return self._build(context)
        body = copy.deepcopy(self._plan(context))
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

        from airflow_resumable.operators._kubernetes_api import LOOK_TIMEOUT

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
        for one in listed(self._listing(), namespace, selector, attempt.search_from):
            meta = one.metadata
            if meta.uid not in uids or not self._may_still_run(one):
                continue
            what = f"{self.kind} {namespace}/{meta.name}, uid {meta.uid}, of an earlier generation"
            if not meta.deletion_timestamp:
                self.log.warning("The %s, could still start; deleting it", what)
                self._delete(meta.name, namespace, meta.uid)
            raise ConnectionError(f"{what}, is being deleted")

    def _patiently(self, what: str, call: Callable[[], Any]) -> Any:
        # One 503 must not leave behind what could still start.
        attempt = self._resumable_attempt
        return call() if attempt is None else attempt.service.ask(what, call)

    def _tidy_up_unrecorded(self, external_id: JsonValue, context: Context) -> None:
        # Neither the result nor the error of what ran is to be lost by this.
        try:
            said = self.get_job_status(external_id, context)
            if self.is_job_failed(said) or self.is_job_succeeded(said):
                end = Observation.FAILED if self.is_job_failed(said) else Observation.SUCCEEDED
                self.clean_up_job(external_id, end, context)
        except Exception:
            self.log.exception("The %s %r could not be tidied up; delete it by hand", self.kind, external_id)

    def _once(self, what: str) -> bool:
        if what in self._told:
            return False
        self._told.add(what)
        return True

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

    # --- look ---

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the object's state.

        Raises:
            JobNotFound: There is none, or one of another uid that has taken the name since.
        """
        return self._state_of(self._look(external_id), self._server_now)

    def _look(self, external_id: Any, timeout: Any = None) -> Any:
        from airflow_resumable.jobs.errors import JobNotFound
        from airflow_resumable.operators._kubernetes_api import LOOK_TIMEOUT, is_status, server_time

        name, namespace, uid = self._parts(external_id)
        try:
            found, headers = self._read(name, namespace, _request_timeout=timeout or LOOK_TIMEOUT)
        except Exception as error:
            if is_status(error, 404):
                raise JobNotFound(f"no {self.kind} {namespace}/{name}") from error
            raise
        if uid is not None and found.metadata.uid != uid:
            raise JobNotFound(
                f"the {self.kind} {namespace}/{name} is another one now, uid {found.metadata.uid}: ours was "
                f"{uid}"
            )
        self._uids[name, namespace] = found.metadata.uid
        self.seen, self._server_now = found, server_time(headers)
        return found

    def find_job_by_token(self, token: str, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return the objects that carry the token as a label, in the operator's namespace.

        Raises:
            ApiException: Among others, 403 where the user may not list.
        """
        from airflow_resumable.operators._kubernetes_api import TOKEN_LABEL

        return self._find(f"{TOKEN_LABEL}={token}", since, context)

    def find_jobs_by_family(self, family: str, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return the objects of every generation of the task instance, in the operator's namespace."""
        from airflow_resumable.operators._kubernetes_api import FAMILY_LABEL

        found = self._find(f"{FAMILY_LABEL}={family}", since, context)
        return found or self._find_stock(since, context)

    def _find_stock(self, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return what the parent operator itself has started for this task, where that is asked for."""
        return ()

    def _find(self, selector: str, since: datetime, context: Context) -> list[FoundJob]:
        from airflow_resumable.operators._kubernetes_api import listed

        namespace = self._namespace_on_record or self._plan(context).metadata.namespace
        return [self._found(one) for one in listed(self._listing(), namespace, selector, since)]

    def _found(self, one: Any) -> FoundJob:
        from airflow_resumable.operators._kubernetes_api import TOKEN_LABEL

        return FoundJob(
            self._id_of(one),
            self._state_of(one, None),
            (one.metadata.labels or {}).get(TOKEN_LABEL),
            self._place(one.metadata.namespace),
            one.metadata.uid,
        )

    # --- kill ---

    def cancel_job(self, external_id: JsonValue, context: Context) -> None:
        """Delete the object of this uid, within 1.5 s.

        Raises:
            JobNotFound: It is gone, or another one has its name.
        """
        from airflow_resumable.jobs.errors import JobNotFound
        from airflow_resumable.operators._kubernetes_api import KILL_TIMEOUT, is_status

        name, namespace, uid = self._parts(external_id)
        if uid is None:
            raise LookupError(
                f"the uid of {self.kind} {namespace}/{name} isn't known, and another's may have its name "
                "by now"
            )
        self.log.info("Deleting %s %s/%s, uid %s", self.kind, namespace, name, uid)
        try:
            self._delete(name, namespace, uid, _request_timeout=KILL_TIMEOUT)
        except Exception as error:
            if is_status(error, 404, 409):
                raise JobNotFound(f"no {self.kind} {namespace}/{name} of uid {uid}") from error
            raise

    # --- identity ---

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

    # --- connection ---

    @cached_property
    def hook(self) -> Any:
        """The parent's hook; in a triggerer, made from the configuration that came with the trigger."""
        if self._config_given is None:
            return super().hook  # type: ignore[misc]
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

        arguments = {name: getattr(self, name) for name in ("in_cluster", "cluster_context")}
        return KubernetesHook(conn_id=self.kubernetes_conn_id, config_dict=self._config_given, **arguments)

    def is_transient_error(self, error: BaseException) -> bool:
        """Say whether asking again may help: also where the provider has wrapped a broken connection."""
        return super().is_transient_error(error) or type(error).__name__ == "KubernetesApiException"

    def refresh_credentials(self, context: Context) -> bool:
        """Make hook and clients anew, which reads the connection and its tokens again."""
        for name in ("hook", "client", "pod_manager", "job_client"):
            vars(self).pop(name, None)
        return True

    def get_job_url(self, external_id: JsonValue, context: Context) -> str | None:
        """Return the object's page by the connection's extra ``job-url``, a template, else None.

        The template may name ``{kind}``, ``{name}``, ``{namespace}`` and ``{uid}``: Kubernetes has no page of
        its own, a dashboard does.
        """
        template = self.hook.conn_extras.get("job-url")
        if not template:
            return None
        name, namespace, uid = self._parts(external_id)
        return str(template).format(kind=self.kind.lower(), name=name, namespace=namespace, uid=uid)

    def get_watch_arguments(self, context: Context) -> Mapping[str, Any]:
        """Return the connection's arguments, the kubeconfig file's contents among them as in the parent."""
        self.convert_config_file_to_dict()
        config = getattr(self, "_config_dict", None)
        return {name: getattr(self, name) for name in _CONNECTION_ARGUMENTS} | {"config_dict": config}

    @classmethod
    def for_watching(cls, arguments: Mapping[str, Any]) -> Self:
        """Return an operator outside of any Dag, for the triggerer."""
        given = dict(arguments)
        config = given.pop("config_dict", None)
        made = cls(task_id="watched", retries=1, **given)
        made._config_given = config
        made.deferrable = True
        return made
