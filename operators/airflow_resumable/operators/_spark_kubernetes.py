# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Spark on Kubernetes, cluster deploy mode: a driver pod whose name we choose.

``spark.kubernetes.driver.pod.name`` ends with the idempotency token, so a second spark-submit of the same
generation is refused by the API server (409); token and family are labels of the driver pod. spark-submit
ends once the pod is there (``spark.kubernetes.submission.waitAppCompletion=false``), and the pod's phase is
read from the API server that the parent asks too, by ``[kubernetes_executor]`` of the Airflow configuration.
See https://spark.apache.org/docs/latest/running-on-kubernetes.html#spark-properties.

spark-submit makes the driver pod before the ConfigMap that it mounts. One that is killed in between leaves a
pod that never starts: after `CONFIG_MAP_PATIENCE` seconds without its ConfigMap it counts as failed and is
deleted, and the next try starts another.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kubernetes.client import ApiException

from airflow_resumable.jobs.adapter import FoundJob, Observation, SubmitWindow
from airflow_resumable.jobs.errors import JobNotFound, ResumableJobFatal
from airflow_resumable.operators import _pod_state as state
from airflow_resumable.operators._kubernetes_api import (
    FAMILY_LABEL,
    KILL_TIMEOUT,
    LOOK_TIMEOUT,
    TOKEN_LABEL,
    delete_options,
    is_status,
    labels_for,
    listed,
    name_with,
    server_time,
)
from airflow_resumable.operators._spark_target import SparkTarget

if TYPE_CHECKING:
    from pydantic import JsonValue

CONTAINER = "spark-kubernetes-driver"
"""The name that Spark gives to the driver's container, unless a pod template names it otherwise."""
CONFIG_MAP_PATIENCE = 60.0
"""Seconds after which a driver pod without its ConfigMap is taken for one that never starts."""

_POD_NAME = "spark.kubernetes.driver.pod.name"
_LABEL = "spark.kubernetes.driver.label."
_WAIT = "spark.kubernetes.submission.waitAppCompletion"
_CONTAINER_CONF = "spark.kubernetes.driver.podTemplateContainerName"


class KubernetesTarget(SparkTarget):
    """A namespace of a Kubernetes cluster; an id is ``namespace:pod``, as the parent stores it."""

    submit_window = SubmitWindow.CLOSED
    missing_is_failure = True
    finds_by_family = True
    least_poll_interval = 20.0
    snapshots = True

    def __init__(self, operator: Any, hook: Any) -> None:
        super().__init__(operator, hook)
        self._log = operator.log
        self.namespace: str = hook._connection["namespace"] or "default"
        self._uids: dict[str, str] = {}
        self._complete: set[str] = set()
        self._created: bool | None = None
        self._pod = ""

    @cached_property
    def client(self) -> Any:
        """The parent's client."""
        from airflow.providers.cncf.kubernetes import kube_client

        return kube_client.get_kube_client()

    @cached_property
    def _hasty(self) -> Any:
        """A client that asks once: the parent's repeats what had no answer ten times, a time-out each."""
        from airflow.providers.cncf.kubernetes import kube_client

        client = kube_client.get_kube_client()
        client.api_client.rest_client.pool_manager.connection_pool_kw["retries"] = False
        return client

    @cached_property
    def _reader(self) -> state.PodReader:
        container = self.hook._conf.get(_CONTAINER_CONF) or CONTAINER
        # A queue may hold a driver for as long as it likes.
        return state.PodReader(str(container), float("inf"), float("inf"))

    # --- submit ---

    def snapshot(self) -> JsonValue:
        """Return where the driver pod is going to be made; kept with the intent, the next try looks there."""
        connection = self.hook._connection
        return {"master": connection["master"], "namespace": connection["namespace"] or "default"}

    def _go_where_it_was_begun(self) -> None:
        """Use the namespace that the intent on record names, whatever the connection says by now.

        Raises:
            ResumableJobFatal: The intent names another cluster.
        """
        record = self.attempt.record
        before: Any = record.before if record is not None and record.external_id is None else None
        if not isinstance(before, dict):
            return
        here = self.hook._connection["master"]
        if before["master"] != here:
            raise ResumableJobFatal(
                f"a driver pod of this task was going to be made on {before['master']}, in namespace "
                f"{before['namespace']!r}, and the connection names {here} now: whether it was can't be seen "
                "from here. Let the connection name that again; or see to it that nothing of this task runs "
                "there, and clear the task"
            )
        if before["namespace"] != (self.hook._connection["namespace"] or "default"):
            self._log.warning(
                "An earlier try was going to make the driver pod in namespace %s; it is looked for and made "
                "there, not in %s",
                before["namespace"],
                self.hook._connection["namespace"],
            )
            self.hook._connection["namespace"] = before["namespace"]
        self.namespace = before["namespace"]

    def conf(self, token: str, family: str) -> dict[str, Any]:
        """Return the driver pod's name and labels, and that spark-submit is not to wait for its end.

        Raises:
            ValueError: The operator's conf says otherwise of the waiting.
        """
        conf = self.hook._conf
        if str(conf.get(_WAIT, "false")).strip().lower() == "true":
            raise ValueError(
                f"{_WAIT}=true is not allowed: spark-submit would stay for as long as the application runs. "
                "Leave it out, or set durable=False"
            )
        self._go_where_it_was_begun()
        self._end_predecessors()
        self._created = None
        base = str(self.hook._name or "spark")
        self._pod = str(conf.get(_POD_NAME) or name_with(base, token))
        labels = {f"{_LABEL}{name}": value for name, value in labels_for(token, family).items()}
        return {_POD_NAME: self._pod, _WAIT: "false", **labels}

    def after_client(self, code: int | None) -> JsonValue:
        """Return the id of the pod with our name, if it is ours; a refused submit may have been the second.

        Raises:
            ResumableJobFatal: Another's pod has the name.
            ConnectionError: One of an earlier generation has it and is being deleted.
        """
        try:
            pod = self._read(self._pod)
        except JobNotFound:
            return None
        token, labels = self.attempt.token, pod.metadata.labels or {}
        if labels.get(TOKEN_LABEL) == token:
            if code and self._lacks_config_map(pod):
                self._log.warning("spark-submit failed before driver pod %s could start", self._pod)
                self._delete(self._pod, pod.metadata.uid)
                raise ConnectionError(f"driver pod {self._pod} had no ConfigMap and was deleted")
            self._created = True if code == 0 else None
            self.hook._kubernetes_driver_pod = self._pod
            return self._id_of(pod)
        what = f"driver pod {self.namespace}/{self._pod}, uid {pod.metadata.uid}"
        said = self._reader.state(pod, None)
        if labels.get(FAMILY_LABEL) == self.attempt.mint.family:
            if state.has_failed(said) or state.has_succeeded(said):
                # This attempt may have slept since, and that be the pod of a later generation.
                if self.attempt.record is not None:
                    self.attempt.claim(self.attempt.record)
                self._log.warning("The %s has ended and has the name of the next; deleting it", what)
                self._delete(self._pod, pod.metadata.uid)
            elif said != state.TERMINATING:
                raise ResumableJobFatal(
                    f"{what}, of an earlier generation of this task, is {said!r} and has the name that the "
                    "next one needs; delete it, then clear the task"
                )
            raise ConnectionError(f"{what}, of an earlier generation, is being deleted")
        raise ResumableJobFatal(
            f"{what}, has the name {self._pod!r} and is not this task's: delete it or change {_POD_NAME}; it "
            "was left alone"
        )

    def was_created(self) -> bool | None:
        """Say whether spark-submit has created the pod."""
        return self._created

    # --- look ---

    def status(self, external_id: str) -> str:
        """Return the driver pod's state, by its main container and its phase."""
        namespace, name = self._parts(external_id)
        pod = self._read(name, namespace)
        uid = self._uids.setdefault(external_id, pod.metadata.uid)
        if pod.metadata.uid != uid:
            raise JobNotFound(
                f"driver pod {namespace}/{name} is another one now, uid {pod.metadata.uid}: ours was {uid}"
            )
        said = self._reader.state(pod, None)
        if said == state.PENDING and self._never_starts(pod):
            return f"{state.FAILED}: its ConfigMap was never made, so it can't start"
        return said

    def _read(self, name: str, namespace: str = "", *, hasty: bool = False) -> Any:
        where, client = namespace or self.namespace, self._hasty if hasty else self.client
        try:
            pod, _, headers = client.read_namespaced_pod_with_http_info(
                name, where, _request_timeout=KILL_TIMEOUT if hasty else LOOK_TIMEOUT
            )
        except ApiException as error:
            if error.status == 404:
                raise JobNotFound(f"no driver pod {where}/{name}") from error
            raise
        self._now = server_time(headers)
        return pod

    def _never_starts(self, pod: Any) -> bool:
        age = (self._now - pod.metadata.creation_timestamp).total_seconds()
        if age < CONFIG_MAP_PATIENCE or pod.metadata.uid in self._complete:
            return False
        if self._lacks_config_map(pod):
            return True
        # Asked once: a driver may be queued for hours.
        self._complete.add(pod.metadata.uid)
        return False

    def _lacks_config_map(self, pod: Any) -> bool:
        for volume in pod.spec.volumes or ():
            if volume.config_map is None or not volume.name.startswith("spark-conf-volume"):
                continue
            try:
                self.client.read_namespaced_config_map(
                    volume.config_map.name, pod.metadata.namespace, _request_timeout=LOOK_TIMEOUT
                )
            except ApiException as error:
                if error.status == 404:
                    return True
                # Who may not read it can't say.
                self._log.warning("ConfigMap %s can't be read: %s", volume.config_map.name, error.reason)
        return False

    def is_active(self, status: str) -> bool:
        """Say whether the driver is yet to start, or at work."""
        return status in state.ACTIVE

    def is_succeeded(self, status: str) -> bool:
        """Say whether the driver has ended well."""
        return state.has_succeeded(status)

    def is_failed(self, status: str) -> bool:
        """Say whether the driver has failed, was evicted, or can't start."""
        return state.has_failed(status)

    def is_stopping(self, status: str) -> bool:
        """Say whether the driver pod is being deleted."""
        return status == state.TERMINATING

    def find_token(self, token: str, since: datetime) -> Sequence[FoundJob]:
        """Return the driver pods that carry the token as a label.

        Raises:
            ResumableJobFatal: The intent names another cluster.
        """
        self._go_where_it_was_begun()
        return self._find(f"{TOKEN_LABEL}={token}", since)

    def find_family(self, family: str, since: datetime) -> Sequence[FoundJob]:
        """Return the driver pods of every generation."""
        record = self.attempt.record
        before: Any = record.before if record is not None else None
        begun = [before["namespace"]] if isinstance(before, dict) else []
        selector = f"{FAMILY_LABEL}={family}"
        return [
            one
            for namespace in dict.fromkeys([*begun, self.namespace])
            for one in self._find(selector, since, namespace)
        ]

    def _find(self, selector: str, since: datetime, namespace: str = "") -> list[FoundJob]:
        where = namespace or self.namespace
        pods = listed(self.client.list_namespaced_pod, where, selector, since)
        return [
            FoundJob(
                self._id_of(pod),
                self._reader.state(pod, None),
                (pod.metadata.labels or {}).get(TOKEN_LABEL),
                self.location(self._id_of(pod)),
                pod.metadata.uid,
            )
            for pod in pods
        ]

    # --- the job on record ---

    def _id_of(self, pod: Any) -> str:
        external_id = f"{pod.metadata.namespace}:{pod.metadata.name}"
        self._uids[external_id] = pod.metadata.uid
        return external_id

    @staticmethod
    def _parts(external_id: str) -> tuple[str, str]:
        namespace, found, name = external_id.partition(":")
        if not found:
            raise ResumableJobFatal(
                f"the id on record is {external_id!r}, not namespace:pod: it was started on another kind of "
                "cluster; set the connection back, or delete the record and clear the task"
            )
        return namespace, name

    def location(self, external_id: str) -> JsonValue:
        """Return the master URL and the namespace."""
        return {"master": self.hook._connection["master"], "namespace": self._parts(external_id)[0]}

    def uid(self, external_id: str) -> str | None:
        """Return the pod's uid; of one that the parent has started it is read."""
        if external_id not in self._uids:
            namespace, name = self._parts(external_id)
            try:
                self._uids[external_id] = self._read(name, namespace).metadata.uid
            except JobNotFound:
                return None
        return self._uids[external_id]

    def restore(self, external_id: str, location: JsonValue, uid: str | None) -> None:
        """Take over a driver pod."""
        namespace, name = self._parts(external_id)
        if uid is not None:
            self._uids[external_id] = uid
        self.hook._kubernetes_driver_pod, self.namespace = name, namespace
        here = self.hook._connection["master"]
        if isinstance(location, dict) and location.get("master") not in (None, here):
            self._log.warning(
                "Driver pod %s was started on %s; the connection now names %s: if these are not the same "
                "cluster, it can't be found",
                external_id,
                location["master"],
                here,
            )

    # --- end ---

    def cancel(self, external_id: str) -> None:
        """Delete the driver pod of this uid; its executors go with it."""
        namespace, name = self._parts(external_id)
        uid = self._uids.get(external_id)
        if uid is None:
            raise LookupError(
                f"the uid of driver pod {external_id} isn't known, and another's may have its name by now"
            )
        try:
            self._delete(name, uid, namespace, hasty=True)
        except ApiException as error:
            if is_status(error, 404, 409):
                raise JobNotFound(f"no driver pod {namespace}/{name} of uid {uid}") from error
            raise

    def _delete(self, name: str, uid: str, namespace: str = "", *, hasty: bool = False) -> None:
        where, client = namespace or self.namespace, self._hasty if hasty else self.client
        timeout = KILL_TIMEOUT if hasty else LOOK_TIMEOUT
        client.delete_namespaced_pod(name, where, body=delete_options(uid), _request_timeout=timeout)

    def clean_up(self, external_id: str, observation: Observation) -> None:
        """Delete a driver pod that is on record as failed and could still start."""
        if observation is Observation.SUCCEEDED:
            return
        # One 503 must not leave behind what could still start.
        self.attempt.service.ask("tidying up a driver pod", lambda: self._end_what_could_start(external_id))

    def _end_what_could_start(self, external_id: str) -> bool:
        namespace, name = self._parts(external_id)
        try:
            pod = self._read(name, namespace)
        except JobNotFound:
            return False
        if pod.metadata.uid != self._uids.get(external_id) or pod.status.phase not in state.ACTIVE:
            return False
        if self._reader.ended(pod) is not None:
            return False
        self._log.warning("Deleting driver pod %s, which is %s", external_id, pod.status.phase)
        self._delete(name, pod.metadata.uid, namespace)
        return True

    def _end_predecessors(self) -> None:
        # The clean-up of a driver that is on record as failed may have been cut short.
        attempt = self.attempt
        ids: Any = attempt.record.ids if attempt.record is not None else ()
        if not ids:
            return
        selector = f"{FAMILY_LABEL}={attempt.mint.family},{TOKEN_LABEL}!={attempt.token}"
        for found in self._find(selector, attempt.search_from):
            external_id = str(found.external_id)
            if external_id in ids and self._end_what_could_start(external_id):
                raise ConnectionError(f"driver pod {external_id}, of an earlier generation, is being deleted")
