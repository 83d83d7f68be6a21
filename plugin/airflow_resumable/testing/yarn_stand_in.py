# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for YARN's ResourceManager: its REST API as far as it is used here, in processes of its own.

No YARN server can be had as a package, so what is tested against this is tested against a stand-in: written
from the REST API's documentation, it proves how an operator behaves when a ResourceManager answers so, not
that one does. Its request log, written before any reply, is the oracle for "one application was submitted".

    with YarnStandIn(tmp_path / "yarn") as yarn:
        connection extra: {"yarn_resourcemanager_webapp_address": yarn.address, "deploy-mode": "cluster"}
        spark_binary = yarn.spark_submit(tmp_path)
        assert len(yarn.submitted()) == 1
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Self

from airflow_resumable.testing import yarn_spark_submit
from airflow_resumable.testing.ports import free_ports

_SOURCE_ROOT = str(Path(__file__).parents[2])
_START = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    "from airflow_resumable.testing.yarn_stand_in_server import main; main()"
)


class YarnStandInError(RuntimeError):
    """A ResourceManager stand-in did not start; the message says what it said."""


class YarnStandIn:
    """One cluster of the stand-in: a ResourceManager, or several of which one is active.

    Args:
        data_dir: Applications and the request log; a used one is taken up again.
        managers: How many ResourceManagers; the first is the active one in the beginning.
        max_completed: How many ended applications it remembers.
    """

    def __init__(self, data_dir: Path, *, managers: int = 1, max_completed: int = 1000) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.names = tuple(f"rm{number}" for number in range(1, managers + 1))
        self._ports = dict(zip(self.names, free_ports(managers), strict=True))
        self._max_completed = max_completed
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        """Start all of them."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.fail_over(self.names[0])
        for name in self.names:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all of them."""
        for name in list(self._processes):
            self.kill(name)

    def url(self, name: str = "rm1") -> str:
        """Return the base URL of one of them; it stays the same over a restart."""
        return f"http://127.0.0.1:{self._ports[name]}"

    @property
    def address(self) -> str:
        """The base URLs, comma-separated."""
        return ",".join(map(self.url, self.names))

    @property
    def active(self) -> str:
        """The name of the active one."""
        return (self.data_dir / "active").read_text().strip()

    def start(self, name: str = "rm1") -> None:
        """Start one of them and return once it listens.

        Raises:
            YarnStandInError: It did not.
        """
        (self.data_dir / f"{name}.url").write_text(self.url(name))
        command = [sys.executable, "-I", "-S", "-c", _START, _SOURCE_ROOT]
        command += ["--name", name, "--data-dir", str(self.data_dir), "--port", str(self._ports[name])]
        command += ["--max-completed", str(self._max_completed)]
        with (self.data_dir / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        self._processes[name] = process
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            self.kill(name)
            said = (self.data_dir / f"{name}.log").read_text()[-500:]
            raise YarnStandInError(f"the ResourceManager stand-in {name} did not start: {said}")

    def kill(self, name: str = "rm1") -> None:
        """Kill one of them; applications live on in the state store."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def restart(self, name: str = "rm1", *, recover: bool = True) -> None:
        """Kill one and start it again.

        Args:
            name: Which.
            recover: False: without the state store, as with ``yarn.resourcemanager.recovery.enabled=false``.
        """
        self.kill(name)
        if not recover:
            (self.data_dir / "apps.jsonl").unlink(missing_ok=True)
        self.start(name)

    def fail_over(self, name: str) -> None:
        """Make another one the active; an empty name makes it none."""
        (self.data_dir / "active").write_text(name)

    def answer_as_hadoop_2(self) -> None:
        """Let a standby answer 200 with a Refresh header, as Hadoop 2.6 and older do."""
        (self.data_dir / "old-standby").touch()

    # --- the oracle ---

    def requests(self, call: str | None = None, *, client: str | None = None) -> list[dict[str, Any]]:
        """Return the logged requests in order of arrival.

        Args:
            call: ``new``, ``submit``, ``find``, ``status``, ``state``, ``kill``, ``info``, ``page`` or
                ``other``.
            client: Only those of this user.
        """
        path = self.data_dir / "requests.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [
            row for row in rows if call in (None, row["call"]) and (client is None or row["user"] == client)
        ]

    def submitted(self) -> list[str]:
        """Return the id of every application that was ever taken, oldest first."""
        return [row["app"] for row in self.requests("submit") if row.get("created")]

    def applications(self) -> dict[str, dict[str, Any]]:
        """Return what the active one knows now, by id, without a line in the request log."""
        answer: dict[str, dict[str, Any]] = self._ask("apps", {})
        return answer

    def is_live(self, app_id: str) -> bool:
        """Say whether an application is known and has not ended."""
        app = self.applications().get(app_id)
        return app is not None and app["finalStatus"] == "UNDEFINED"

    # --- what happens to it ---

    def fail(self, call: str, kind: str, times: int = 1, seconds: float = 1.0) -> None:
        """Let the next requests of a kind fail at the active one.

        Args:
            call: As in `requests`, or ``any``.
            kind: ``unavailable``, ``forbidden``, ``unauthorized``, ``throttle``, ``html`` (a 404 of the web
                server's), ``lost_reply`` (done, and the connection breaks), ``hang_before``, ``hang_after``
                (late by `seconds`), ``slow_kill`` (dead after `seconds`, and KILLING until then).
            times: How many.
            seconds: See there.
        """
        self._ask("fault", {"call": call, "kind": kind, "times": times, "seconds": seconds})

    def heal(self) -> None:
        """End all faults."""
        self._ask("heal", {})

    def forget(self, app_id: str) -> None:
        """Let the ResourceManager know nothing of an application any more."""
        self._ask("forget", {"id": app_id})

    def show(self, app_id: str, state: str) -> None:
        """Show a state in place of the real one; an empty one ends that."""
        self._ask("show", {"id": app_id, "state": state})

    def add_others(self, count: int) -> None:
        """Add applications of somebody else, every second of them finished."""
        self._ask("others", {"count": count})

    def submit(self, *, tags: list[str] | None = None, user: str = "somebody", **plan: Any) -> str:
        """Submit an application past any spark-submit, and return its id."""
        base = "/ws/v1/cluster/apps"
        app_id = str(self._http("POST", f"{base}/new-application", {})["application-id"])
        context = {
            "application-id": app_id,
            "application-name": "by hand",
            "application-tags": {"tag": tags or []},
            "am-container-spec": {"commands": {"command": json.dumps(plan)}},
        }
        self._http("POST", f"{base}?user.name={user}", context)
        return app_id

    def spark_submit(self, folder: Path) -> Path:
        """Write the stand-in for spark-submit into a folder, as an executable, and return its path."""
        path = folder / "spark-submit"
        words = [sys.executable, "-I", "-S", "-c", _CLIENT, _SOURCE_ROOT]
        path.write_text(
            "#!/bin/sh\n# A stand-in for spark-submit on YARN: no Spark in it.\n"
            f"export {yarn_spark_submit.URLS_VARIABLE}={shlex.quote(self.address)}\n"
            f'exec {shlex.join(words)} "$@"\n'
        )
        path.chmod(0o755)
        return path

    def _ask(self, what: str, body: dict[str, Any]) -> Any:
        return self._http("POST", f"/stand-in/{what}", body)

    def _http(self, method: str, path: str, body: dict[str, Any]) -> Any:
        url = f"{self.url(self.active or self.names[0])}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as reply:
            text = reply.read().decode()
        with contextlib.suppress(ValueError):
            return json.loads(text)
        return text


_CLIENT = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    "from airflow_resumable.testing.yarn_spark_submit import main; sys.exit(main())"
)
