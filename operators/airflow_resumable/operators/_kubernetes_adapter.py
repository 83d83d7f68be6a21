# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What Pods and Jobs have in common: one object each, named by its token, known by its uid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from airflow_resumable.jobs.adapter import FoundJob, Observation, SubmitWindow
from airflow_resumable.jobs.link import JobLink
from airflow_resumable.operators._kubernetes_creation import Creation

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

_CONNECTION_ARGUMENTS = ("kubernetes_conn_id", "in_cluster", "cluster_context", "namespace")


class KubernetesAdapter(Creation):
    """Closes the submit window by the object's name, and looks at, finds and deletes objects by their uid."""

    submit_window = SubmitWindow.CLOSED
    missing_while_running_is_failure = True
    operator_extra_links: Any = (JobLink(),)

    _server_now: datetime | None = None
    _config_given: dict[str, Any] | None = None

    if TYPE_CHECKING:
        _told: set[str]
        kubernetes_conn_id: str | None

        def convert_config_file_to_dict(self) -> None: ...

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
        """Return the objects that carry the token as a label, in the namespace that the intent names.

        Raises:
            ResumableJobFatal: The intent names another cluster.
            ApiException: Among others, 403 where the user may not list.
        """
        from airflow_resumable.operators._kubernetes_api import TOKEN_LABEL

        self._check_cluster()
        return self._find(f"{TOKEN_LABEL}={token}", since, context)

    def find_jobs_by_family(self, family: str, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return the objects of every generation of the task instance, where they may be."""
        from airflow_resumable.operators._kubernetes_api import FAMILY_LABEL

        found = self._find(f"{FAMILY_LABEL}={family}", since, context)
        return found or self._find_stock(since, context)

    def _find_stock(self, since: datetime, context: Context) -> Sequence[FoundJob]:
        """Return what the parent operator itself has started for this task, where that is asked for."""
        return ()

    def _find(self, selector: str, since: datetime, context: Context) -> list[FoundJob]:
        from airflow_resumable.operators._kubernetes_api import listed

        intended = self._intended["namespace"] if self._intended is not None else None
        known = dict.fromkeys(one for one in (intended, self._namespace_on_record) if one is not None)
        return [
            self._found(one)
            for namespace in known or (self._plan(context).metadata.namespace,)
            for one in listed(self._listing(), namespace, selector, since)
        ]

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

    # --- tidy up ---

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

    # --- connection ---

    @cached_property
    def hook(self) -> Any:
        """The parent's hook; in a triggerer, made from the configuration that came with the trigger."""
        if self._config_given is None:
            return super().hook
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
