# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What tests do to a running Airflow over its public REST API (/api/v2)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast
from urllib.parse import quote

import httpx

from airflow_resumable.testing.errors import StackError

_POLL = 0.1
_FINISHED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
_Found = TypeVar("_Found")


class AirflowApi:
    """A deployment's REST API, by the names of what a user does in the UI.

    Args:
        url: The API server's base URL. Its simple auth manager must make everybody an admin.

    Raises:
        StackError: From every method, when the API refuses; the message has the request and the API's words.
        TimeoutError: From the ``wait_`` methods, with the last state seen.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._http: httpx.Client | None = None
        self._token: str | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            self._http.close()
        self._http = self._token = None

    def _client(self) -> httpx.Client:
        if self._http is None:
            # trust_env=False: a proxy of the host has no business between a test and 127.0.0.1.
            self._http = httpx.Client(base_url=self.url, timeout=30.0, trust_env=False)
        return self._http

    def request(self, method: str, path: str, *, missing_ok: bool = False, **options: Any) -> Any:
        """Send one request below /api/v2 and return the JSON answer, None when there is none.

        Args:
            method: GET, POST...
            path: As the REST API reference names it, with a leading slash.
            missing_ok: Return None for 404 instead of raising.
            options: For `httpx.Client.request`: ``json``, ``params``, ``headers``.
        """
        client = self._client()
        try:
            if self._token is None:
                self._token = client.get("/auth/token").raise_for_status().json()["access_token"]
            headers = {"Authorization": f"Bearer {self._token}", **options.pop("headers", {})}
            response = client.request(method, f"/api/v2{path}", headers=headers, **options)
        except httpx.HTTPError as error:
            raise StackError(f"{method} {self.url}/api/v2{path}: {type(error).__name__}: {error}") from error
        if response.status_code == 404 and missing_ok:
            return None
        if response.is_error:
            raise StackError(f"{method} {path}: {response.status_code} {response.text[:2000]}")
        return response.json() if response.content else None

    def _until(self, what: str, timeout: float, look: Callable[[], _Found | None]) -> _Found:
        deadline = time.monotonic() + timeout
        while True:
            found = look()
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not happen within {timeout} s")
            self._pause(_POLL)

    def _pause(self, seconds: float) -> None:
        """Wait between two looks; a deployment that can tell raises here when a part of it died."""
        time.sleep(seconds)

    def health(self) -> dict[str, Any]:
        """Return /monitor/health: the database's, scheduler's, Dag processor's and triggerer's state."""
        return cast(dict[str, Any], self.request("GET", "/monitor/health"))

    def dag(self, dag_id: str) -> dict[str, Any] | None:
        """Return a Dag, None while the Dag processor has not parsed it."""
        return cast("dict[str, Any] | None", self.request("GET", f"/dags/{quote(dag_id)}", missing_ok=True))

    def import_errors(self) -> list[dict[str, Any]]:
        """Return the errors of Dag files that could not be imported."""
        return cast(list[dict[str, Any]], self.request("GET", "/importErrors")["import_errors"])

    def trigger(self, dag_id: str, run_id: str | None = None, conf: dict[str, Any] | None = None) -> str:
        """Start a Dag run without a logical date and return its run id.

        Args:
            dag_id: The Dag's id.
            run_id: The run id to use; None for a fresh one.
            conf: The run's conf.
        """
        run_id = run_id or f"run-{uuid.uuid4().hex[:12]}"
        body = {"dag_run_id": run_id, "logical_date": None, "conf": conf or {}}
        self.request("POST", f"/dags/{quote(dag_id)}/dagRuns", json=body)
        return run_id

    def dag_run(self, dag: str, run: str) -> dict[str, Any]:
        """Return a Dag run."""
        return cast(dict[str, Any], self.request("GET", f"/dags/{quote(dag)}/dagRuns/{quote(run)}"))

    def run_state(self, dag: str, run: str) -> str:
        """Return a Dag run's state."""
        return str(self.dag_run(dag, run)["state"])

    def wait_for_run(
        self, dag: str, run: str, states: Collection[str] = ("success", "failed"), timeout: float = 60.0
    ) -> dict[str, Any]:
        """Wait until a Dag run is in one of `states`; return it."""

        def look() -> dict[str, Any] | None:
            found = self.dag_run(dag, run)
            return found if found["state"] in states else None

        try:
            return self._until(f"{dag}/{run} in {sorted(states)}", timeout, look)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it is {self.run_state(dag, run)}") from None

    def task_instance(self, dag: str, run: str, task: str, map_index: int = -1) -> dict[str, Any]:
        """Return a task instance: state, try_number, max_tries, id and more."""
        path = _path(dag, run, task)
        if map_index >= 0:
            path += f"/{map_index}"
        return cast(dict[str, Any], self.request("GET", path))

    def tries(self, dag: str, run: str, task: str, map_index: int = -1) -> list[dict[str, Any]]:
        """Return the tries of a task instance, oldest first, the current one included."""
        path = _path(dag, run, task) + (f"/{map_index}" if map_index >= 0 else "") + "/tries"
        found = cast(list[dict[str, Any]], self.request("GET", path)["task_instances"])
        return sorted(found, key=lambda one: int(one["try_number"]))

    def wait_for(
        self,
        dag: str,
        run: str,
        task: str,
        states: Collection[str] = ("success", "failed"),
        timeout: float = 60.0,
        *,
        map_index: int = -1,
        try_number: int | None = None,
    ) -> dict[str, Any]:
        """Wait until a task instance is in one of `states`; return it.

        Args:
            dag: The Dag's id.
            run: The run's id.
            task: The task's id.
            states: States as the API writes them: ``running``, ``up_for_retry``, ``success``, ``failed``...
            timeout: Seconds.
            map_index: The map index, -1 for a task that isn't mapped.
            try_number: Wait for this try to be in the state; None for any.
        """
        seen: list[str] = []

        def look() -> dict[str, Any] | None:
            found = self.task_instance(dag, run, task, map_index)
            state = f"{found['state']} (try {found['try_number']})"
            if state not in seen[-1:]:
                seen.append(state)
            wanted = try_number in (None, found["try_number"])
            return found if wanted and found["state"] in states else None

        try:
            return self._until(f"{dag}/{run}/{task} in {sorted(states)}", timeout, look)
        except TimeoutError as error:
            last = self.task_instance(dag, run, task, map_index)["try_number"]
            told = self.task_log(dag, run, task, last, map_index) if last else ""
            raise TimeoutError(f"{error}; states seen: {', '.join(seen)}\n{told[-3000:]}") from None

    def clear(
        self,
        dag: str,
        run: str,
        task: str | None = None,
        map_index: int | None = None,
        *,
        keep_task_state: bool | None = None,
        **options: Any,
    ) -> None:
        """Clear a task of a run, or all of the run's tasks, as the UI's clear does.

        When all tasks have ended, the run's own end is waited for first.

        Args:
            dag: The Dag's id.
            run: The run's id.
            task: The task's id; None for every task.
            map_index: One task instance of a mapped task; None for all of them.
            keep_task_state: Whether the task state store is kept, for Airflow 3.4 and later: there a clear
                discards it unless told otherwise. None leaves the field out, for 3.3 doesn't know it.
            options: Further fields of ClearTaskInstancesBody: ``include_downstream``, ``only_running``...

        Raises:
            StackError: Nothing was cleared.
        """
        # A scheduler that is just about to call the run finished overwrites the clear's "queued", and the
        # task is never scheduled again: seen on Airflow 3.3.2.
        path = f"/dags/{quote(dag)}/dagRuns/{quote(run)}/taskInstances"
        tasks = self.request("GET", path, params={"limit": 1000})["task_instances"]
        if all(one["state"] in _FINISHED for one in tasks):
            self.wait_for_run(dag, run)
        body = {"dry_run": False, "only_failed": False, "reset_dag_runs": True, "dag_run_id": run, **options}
        if task is not None:
            body["task_ids"] = [task if map_index is None else (task, map_index)]
        if keep_task_state is not None:
            body["keep_task_state"] = keep_task_state
        cleared = self.request("POST", f"/dags/{quote(dag)}/clearTaskInstances", json=body)
        if not cleared["total_entries"]:
            raise StackError(
                f"clearing {dag}/{run}/{task or '*'} cleared nothing: its state was just changing"
            )

    def mark(self, dag: str, run: str, task: str, state: str, map_index: int = -1) -> None:
        """Set a task instance's state as a user does: ``success``, ``failed`` or ``skipped``."""
        path = _path(dag, run, task) + (f"/{map_index}" if map_index >= 0 else "")
        self.request("PATCH", path, json={"new_state": state})

    def xcom(self, dag: str, run: str, task: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Return the value of an XCom, None when there is none."""
        params = {"map_index": map_index, "deserialize": False, "stringify": False}
        path = f"{_path(dag, run, task)}/xcomEntries/{quote(key)}"
        found = self.request("GET", path, missing_ok=True, params=params)
        return found["value"] if found else None

    def task_log(self, dag: str, run: str, task: str, try_number: int, map_index: int = -1) -> str:
        """Return the log of one try as text, one event a line, empty when there is none."""
        found = self.request(
            "GET",
            f"{_path(dag, run, task)}/logs/{try_number}",
            missing_ok=True,
            params={"full_content": True, "map_index": map_index},
            headers={"Accept": "application/json"},
        )
        return "\n".join(map(_log_line, found["content"])) if found else ""

    def task_states(self, dag: str, run: str, task: str, map_index: int = -1) -> dict[str, Any]:
        """Return the task state store of a task instance: values by key (Airflow 3.3 and later)."""
        path = f"{_path(dag, run, task)}/state-store"
        entries: list[dict[str, Any]] = []
        while True:
            params = {"map_index": map_index, "limit": 100, "offset": len(entries)}
            page = self.request("GET", path, params=params)
            entries += page["task_state_store"]
            if not page["task_state_store"] or len(entries) >= page["total_entries"]:
                return {entry["key"]: entry["value"] for entry in entries}

    def task_state(
        self, dag: str, run: str, task: str, key: str, map_index: int = -1
    ) -> dict[str, Any] | None:
        """Return one entry of the task state store: key, value, updated_at, expires_at; None when absent."""
        path = f"{_path(dag, run, task)}/state-store/{quote(key, safe='')}"
        found = self.request("GET", path, missing_ok=True, params={"map_index": map_index})
        return cast("dict[str, Any] | None", found)

    def set_task_state(
        self,
        dag: str,
        run: str,
        task: str,
        key: str,
        value: Any,
        *,
        expires_at: str | None = "default",
        map_index: int = -1,
    ) -> None:
        """Write one entry of the task state store, as an operator's manual repair would.

        Args:
            dag: The Dag's id.
            run: The run's id.
            task: The task's id.
            key: The key.
            value: Any JSON value but null.
            expires_at: ``default`` for the configured retention, None for never, else an ISO date with an
                offset.
            map_index: The map index, -1 for a task that isn't mapped.
        """
        path = f"{_path(dag, run, task)}/state-store/{quote(key, safe='')}"
        body = {"value": value, "expires_at": expires_at}
        self.request("PUT", path, params={"map_index": map_index}, json=body)

    def delete_task_state(
        self, dag: str, run: str, task: str, key: str | None = None, map_index: int = -1
    ) -> None:
        """Delete one entry of the task state store, or all of the task instance's."""
        path = f"{_path(dag, run, task)}/state-store"
        if key is not None:
            path += f"/{quote(key, safe='')}"
        self.request("DELETE", path, params={"map_index": map_index})


def _path(dag: str, run: str, task: str) -> str:
    return f"/dags/{quote(dag)}/dagRuns/{quote(run)}/taskInstances/{quote(task)}"


def _log_line(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    rest = {
        name: value for name, value in entry.items() if name not in ("timestamp", "event", "level", "logger")
    }
    line = (
        f"{entry.get('timestamp') or ''} {str(entry.get('level') or '').upper()} {entry.get('event')}".strip()
    )
    return f"{line} {rest}" if rest else line
