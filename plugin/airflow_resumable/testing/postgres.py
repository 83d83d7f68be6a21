# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A throw-away PostgreSQL server from the programs installed on this host."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from airflow_resumable.testing.errors import StackError, SystemUnavailable
from airflow_resumable.testing.ports import free_port
from airflow_resumable.testing.processes import Managed, ProcessTree

_PROGRAMS = ("initdb", "postgres", "createdb", "pg_isready")
_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


def find_programs() -> Path:
    """Return the directory of the newest installed PostgreSQL server's programs.

    Raises:
        SystemUnavailable: When there is none, saying how to get it.
    """
    on_path = shutil.which("initdb")
    places = [Path(on_path).resolve().parent] if on_path else []
    for pattern in _PLACES:
        places += sorted(Path("/").glob(pattern[1:]), key=lambda place: place.as_posix(), reverse=True)
    for place in places:
        if all(os.access(place / program, os.X_OK) for program in _PROGRAMS):
            return place
    raise SystemUnavailable(
        f"PostgreSQL's server programs ({', '.join(_PROGRAMS)}) are neither on PATH nor in "
        f"{', '.join(_PLACES)}: install them (Debian: apt-get install postgresql) or use SQLite"
    )


class Postgres:
    """A PostgreSQL cluster in a temporary directory, on a free port of 127.0.0.1, with one database.

    As root the server runs as the user ``postgres``, since PostgreSQL refuses root.

    Args:
        tree: Owns the server.
        database: The database to create; the user is ``airflow``, without a password.
        timeout: Seconds until the server must answer.

    Raises:
        SystemUnavailable: When the programs or, for root, the user are missing.
        StackError: When the server does not come up, with its log.
    """

    def __init__(self, tree: ProcessTree, *, database: str = "airflow", timeout: float = 30.0) -> None:
        self._tree = tree
        self._database = database
        self._timeout = timeout
        self._folder: Path | None = None
        self._server: Managed | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The SQLAlchemy URL, for the psycopg2 driver."""
        return f"postgresql+psycopg2://airflow@127.0.0.1:{self.port}/{self._database}"

    def __enter__(self) -> Self:
        """Make the cluster and start its server."""
        programs = find_programs()
        user = _server_user()
        # Not below a caller's directory: every parent must be open to the server's user, and the
        # socket's path short.
        self._folder = self._tree.scratch("pg-")
        if user is not None:
            shutil.chown(self._folder, user)
        self.port = free_port()
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"}
        try:
            self._start(programs, user, environment)
        except BaseException:
            self.close()
            raise
        return self

    def _start(self, programs: Path, user: str | None, environment: Mapping[str, str]) -> None:
        assert self._folder is not None
        folder, data = self._folder, self._folder / "data"

        def run(*argv: str | Path) -> None:
            done = self._tree.run(argv, env=environment, cwd=folder, timeout=self._timeout, user=user)
            if done.returncode != 0:
                raise StackError(f"{' '.join(map(str, argv))} failed:\n{done.stdout}{done.stderr}")

        run(programs / "initdb", "-D", data, "-A", "trust", "-U", "airflow", "-E", "UTF8", "--no-sync")
        settings = ("listen_addresses=127.0.0.1", "fsync=off", "synchronous_commit=off")
        options = [part for setting in settings for part in ("-c", setting)]
        self._server = self._tree.start(
            "postgres",
            [programs / "postgres", "-D", data, "-p", str(self.port), "-k", folder, *options],
            env=environment,
            cwd=folder,
            user=user,
            # An immediate shutdown: the data is thrown away, but shared memory is not left behind.
            stop_signal=signal.SIGQUIT,
        )
        deadline = time.monotonic() + self._timeout
        # Asked over the socket in our own directory: on the port another server might answer.
        ready: list[str | Path] = [programs / "pg_isready", "-q", "-h", folder, "-p", str(self.port)]
        while self._tree.run(ready, env=environment, cwd=folder, timeout=self._timeout).returncode != 0:
            if not self._server.alive or time.monotonic() > deadline:
                raise StackError(f"PostgreSQL did not start on port {self.port}:\n{self._server.tail()}")
            self._tree.pause(0.05, self._server)
        run(programs / "createdb", "-h", folder, "-p", str(self.port), "-U", "airflow", self._database)

    def close(self) -> None:
        """Stop the server and delete its directory; a second call does nothing."""
        server, folder = self._server, self._folder
        self._server = self._folder = None
        if server is not None:
            self._tree.stop(server)
        if folder is not None:
            shutil.rmtree(folder)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server and delete its directory."""
        self.close()


def _server_user() -> str | None:
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        raise SystemUnavailable(
            "PostgreSQL refuses to run as root and this host has no user 'postgres': "
            "create it (useradd --system postgres), run as another user, or use SQLite"
        ) from None
