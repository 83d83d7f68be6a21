# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A real Airflow deployment on this host for tests and the demo.

::

    with AirflowStack(tmp_path / "airflow", dags=[Path("example_dags/nightly.py")]) as stack:
        stack.wait_for_dag("nightly")
        run = stack.trigger("nightly")
        assert stack.wait_for("nightly", run, "load")["state"] == "success"
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psutil

from airflow_resumable.testing.airflow_api import AirflowApi
from airflow_resumable.testing.airflow_config import Ports, environment, settings
from airflow_resumable.testing.airflow_database import TemplateDatabase, ease_locking
from airflow_resumable.testing.errors import StackError, SystemUnavailable
from airflow_resumable.testing.ports import free_ports
from airflow_resumable.testing.postgres import Postgres
from airflow_resumable.testing.processes import Managed, ProcessTree

Component = Literal["api-server", "scheduler", "dag-processor", "triggerer"]

_HEARTBEATS = {
    "scheduler": ("scheduler", "latest_scheduler_heartbeat"),
    "dag-processor": ("dag_processor", "latest_dag_processor_heartbeat"),
    "triggerer": ("triggerer", "latest_triggerer_heartbeat"),
}


class AirflowStack(AirflowApi):
    """API server, scheduler with the LocalExecutor, Dag processor and, when asked, a triggerer.

    Every port is free and on 127.0.0.1 where Airflow lets one choose, secrets are random, everybody is
    an admin, examples are off. Nothing is taken from the working directory, from PATH or from the
    host's Airflow settings. All processes end with the ``with`` block, with the interpreter, and with
    the harness however it dies (see `airflow_resumable.testing.processes`); orphaned executor workers
    and tasks included.

    Args:
        home: AIRFLOW_HOME: database, Dags, logs. Kept afterwards; the components' logs are in ``processes/``.
        dags: A directory whose contents, or a sequence of files and directories that are copied to the Dags
            folder. See also `add_dag`.
        env: Further environment variables of every component and so of every task.
        triggerer: Start a triggerer too.
        database: ``sqlite`` or ``postgres``, see `airflow_resumable.testing.postgres`.
        python: The interpreter of an environment with Airflow; this one's by default.
        parallelism: How many tasks run at once.
        template_db: An SQLite file to copy instead of migrating an empty one, see
            `airflow_resumable.testing.airflow_database`. It is written when it is missing or out of date.
        start_timeout: Seconds until everything must be ready.

    Raises:
        StackError: When a component dies or is not ready in time: which one, and the end of its log. Also
            from any later call while a component is dead that was not killed on purpose.
        SystemUnavailable: When PostgreSQL or its Python driver is missing.
    """

    def __init__(
        self,
        home: Path,
        dags: Path | Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
        *,
        triggerer: bool = False,
        database: Literal["sqlite", "postgres"] = "sqlite",
        python: str | os.PathLike[str] = sys.executable,
        parallelism: int = 8,
        template_db: Path | None = None,
        start_timeout: float = 120.0,
    ) -> None:
        if database not in ("sqlite", "postgres"):
            raise ValueError(f"database={database!r} is not known; use 'sqlite' or 'postgres'")
        if parallelism < 1:
            raise ValueError(f"parallelism={parallelism!r} must be 1 or more")
        api, worker_logs, triggerer_logs = free_ports(3)
        super().__init__(f"http://127.0.0.1:{api}")
        self.home = home.resolve()
        self.dags_folder = self.home / "dags"
        self.ports = Ports(api, worker_logs, triggerer_logs)
        self.python = os.fspath(python)
        self.components: dict[str, Managed] = {}
        self.timings: dict[str, float] = {}
        """Seconds of the last start, by step."""
        self.env: dict[str, str] = {}
        """The whole environment of the components, once started."""
        self._names: list[Component] = ["api-server", "scheduler", "dag-processor"]
        self._names += ["triggerer"] if triggerer else []
        self._sources = dags
        self._extra = dict(env or {})
        self._database = database
        self._parallelism = parallelism
        self._template_db = template_db
        self._start_timeout = start_timeout
        self._tree = ProcessTree(self.home / "processes")
        self._closing = ExitStack()
        self._down: set[str] = set()
        self._last_added: Path | None = None

    def __enter__(self) -> Self:
        """Start everything and wait until it is ready."""
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self.close()

    def close(self) -> None:
        """Stop every process of the deployment; a second call does nothing."""
        super().close()
        try:
            self._closing.close()
        finally:
            self._tree.close()
            self.components.clear()

    def _begin(self) -> None:
        began = time.monotonic()
        self.home.mkdir(parents=True, exist_ok=True)
        self._copy_dags()
        # Else each component writes a default one, all at the same time.
        (self.home / "airflow.cfg").touch()
        url = f"sqlite:///{self.home / 'airflow.db'}"
        if self._database == "postgres":
            self._require_driver()
            url = self._closing.enter_context(Postgres(self._tree)).url
        options = settings(
            home=self.home,
            dags=self.dags_folder,
            database_url=url,
            ports=self.ports,
            parallelism=self._parallelism,
        )
        self.env = environment({**options, **self._extra})
        file = self.home / "airflow.db" if self._database == "sqlite" else None
        self._migrate(file, self.env)
        if file:
            ease_locking(file)
        self.timings["database"] = time.monotonic() - began
        since = datetime.now(UTC)
        for name in self._names:
            self._start(name)
        self._await_ready(self._names, since)
        self.timings["ready"] = time.monotonic() - began

    def _copy_dags(self) -> None:
        self.dags_folder.mkdir(exist_ok=True)
        if not isinstance(self._sources, Path):
            sources = list(self._sources)
        else:
            sources = sorted(self._sources.iterdir()) if self._sources.is_dir() else [self._sources]
        skipped = shutil.ignore_patterns("__pycache__")
        for source in sources:
            target = self.dags_folder / source.name
            if source.name in skipped(".", [source.name]):
                continue
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True, ignore=skipped)
            else:
                shutil.copy2(source, target)

    def _require_driver(self) -> None:
        missing = self._ask_python("import psycopg2, asyncpg")[1]
        if missing:
            raise SystemUnavailable(
                f"{self.python} has no PostgreSQL driver for Airflow ({missing}): "
                "pip install psycopg2-binary asyncpg"
            )

    def _migrate(self, file: Path | None, env: Mapping[str, str]) -> None:
        """Make the tables of the database that `env` names; `file` is that of an SQLite one."""
        template = None
        if self._template_db and file:
            # Every package with tables of its own, or with a migration, is among these.
            versions, failed = self._ask_python(
                "from importlib.metadata import distributions as d;"
                "print(sorted({f'{one.name} {one.version}' for one in d() if 'airflow' in one.name.lower()}))"
            )
            if failed:
                raise SystemUnavailable(f"{self.python} does not tell what is installed: {failed}")
            template = TemplateDatabase(self._template_db, versions)
        if template and file and template.copy_to(file):
            return
        self.cli("db", "migrate", timeout=self._start_timeout, env=env)
        if template and file:
            template.keep(file)

    def _ask_python(self, code: str) -> tuple[str, str]:
        """Run some code in the deployment's interpreter; return its output and the last line of its error."""
        environment = self.env or dict(os.environ)
        done = self._tree.run([self.python, "-c", code], env=environment, cwd=self.home, timeout=60)
        error = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return done.stdout, error[0] if done.returncode else ""

    def _start(self, name: Component) -> None:
        port = {"api-server": self.ports.api, "scheduler": self.ports.worker_logs}.get(name)
        if port is not None:
            self._kill_listener(port)
        argv = [self.python, "-m", "airflow", name]
        self.components[name] = self._tree.start(name, argv, env=self.env, cwd=self.home)
        self._down.discard(name)

    def _kill_listener(self, port: int) -> None:
        # A killed scheduler leaves its log server behind, which keeps the port that the API server knows.
        for process in self._tree.members():
            try:
                listening = [
                    one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN
                ]
                if port in {one.laddr.port for one in listening}:
                    process.kill()
                    process.wait(5)
            except psutil.NoSuchProcess:
                continue

    def _await_ready(self, names: Collection[str], since: datetime) -> None:
        waiting = set(names)

        def look() -> bool | None:
            self._check()
            try:
                health = self.health()
            except StackError:
                return None
            waiting.discard("api-server")
            for name, (part, heartbeat) in _HEARTBEATS.items():
                told = (health.get(part) or {}).get(heartbeat)
                # An older heartbeat is the one of the component's predecessor.
                if told and datetime.fromisoformat(told) >= since:
                    waiting.discard(name)
            return None if waiting else True

        try:
            self._until("a ready deployment", self._start_timeout, look)
        except TimeoutError as error:
            tails = "\n".join(f"--- {name}\n{self.components[name].tail()}" for name in sorted(waiting))
            raise StackError(f"{error}: not ready: {', '.join(sorted(waiting))}\n{tails}") from None

    def _check(self) -> None:
        for name, process in self.components.items():
            if name not in self._down and not process.alive:
                raise StackError(
                    f"the {name} of {self.home} died with exit code {process.returncode}:\n{process.tail()}"
                )

    def _pause(self, seconds: float) -> None:
        self._tree.pause(seconds, *(one for name, one in self.components.items() if name not in self._down))
        self._check()

    def processes(self) -> list[psutil.Process]:
        """List every living process of the deployment, orphans included."""
        return self._tree.members()

    def kill(self, name: Component, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a component's own process, not to its children, and wait for its end.

        A scheduler that is killed leaves its executor's workers and their tasks running.

        Args:
            name: ``api-server``, ``scheduler``, ``dag-processor`` or ``triggerer``.
            number: The signal.
        """
        component = self._component(name)
        self._down.add(name)
        component.send(number)
        if component.wait(30.0) is None:
            raise StackError(f"the {name} still runs 30 s after {number.name}:\n{component.tail()}")

    def start(self, name: Component) -> None:
        """Start a component again after `kill` and wait until it is ready."""
        if self._component(name).alive:
            raise StackError(f"the {name} runs already; use restart({name!r})")
        since = datetime.now(UTC)
        self._start(name)
        self._await_ready([name], since)

    def restart(self, name: Component, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill a component as `kill` does, start it again and wait until it is ready."""
        self.kill(name, number)
        self.start(name)

    def _component(self, name: str) -> Managed:
        if name not in self.components:
            raise ValueError(f"no component {name!r}; this deployment has {', '.join(self.components)}")
        return self.components[name]

    def apart(self) -> dict[str, str]:
        """Return an environment with the deployment's Dags and an SQLite database of its own, empty so far.

        For ``airflow dags test`` and ``dag.test()``: the scheduler would run the same tasks once more.
        """
        file = self.home / f"apart-{uuid.uuid4().hex}.db"
        env = {**self.env, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{file}"}
        self._migrate(file, env)
        return env

    def cli(
        self, *args: str, check: bool = True, timeout: float = 120.0, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``airflow`` with `args` in the deployment's environment and return its output.

        Args:
            args: The command line after ``airflow``.
            check: Raise StackError for an exit code other than 0.
            timeout: Seconds.
            env: Another environment, as `apart` returns it.
        """
        argv = [self.python, "-m", "airflow", *args]
        done = self._tree.run(argv, env=dict(env or self.env), cwd=self.home, timeout=timeout)
        if check and done.returncode != 0:
            output = f"{done.stdout}{done.stderr}"[-4000:]
            raise StackError(f"airflow {' '.join(args)} ended with {done.returncode}:\n{output}")
        return done

    def add_dag(self, source: Path | str, name: str | None = None) -> Path:
        """Put a file into the Dags folder, all at once, and return its path.

        Args:
            source: A file to copy, or the text of a Dag file (dedented).
            name: The file's name there; the source file's own, or one made from the text, when None.
        """
        if isinstance(source, Path):
            text, name = source.read_text(encoding="utf-8"), name or source.name
        else:
            text = textwrap.dedent(source)
            name = name or f"dag_{abs(hash(text)):x}.py"
        target = self.dags_folder / name
        scratch = target.with_suffix(".incoming")
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(target)
        self._last_added = target
        return target

    def wait_for_dag(self, dag_id: str, timeout: float = 60.0) -> dict[str, Any]:
        """Wait until a Dag is parsed, and parsed again if its file was changed by `add_dag`; return it.

        Raises:
            StackError: When the last added file, or one that names the Dag, can't be imported: with its
                traceback.
        """

        def broken(strict: bool) -> str:
            return "\n".join(
                f"{error['filename']}:\n{error['stack_trace']}"
                for error in self.import_errors()
                if not strict or self._concerns(dag_id, error)
            )

        def look() -> dict[str, Any] | None:
            found = self.dag(dag_id)
            if found and not found["is_stale"]:
                file = Path(found["fileloc"])
                changed = datetime.fromtimestamp(file.stat().st_mtime, UTC) if file.exists() else None
                if changed is None or datetime.fromisoformat(found["last_parsed_time"]) > changed:
                    return found
            errors = broken(strict=True)
            if errors:
                raise StackError(f"Dag {dag_id!r} can't be imported: {errors}")
            return None

        try:
            return self._until(f"Dag {dag_id!r} parsed", timeout, look)
        except TimeoutError as error:
            tail = self.components["dag-processor"].tail()
            raise TimeoutError(f"{error}; import errors: {broken(strict=False) or 'none'}\n{tail}") from None

    def _concerns(self, dag_id: str, error: dict[str, Any]) -> bool:
        file = Path(self.dags_folder, error["filename"])
        if not file.exists() or datetime.fromisoformat(error["timestamp"]).timestamp() < file.stat().st_mtime:
            return False
        return file == self._last_added or dag_id in file.read_text(encoding="utf-8", errors="replace")
