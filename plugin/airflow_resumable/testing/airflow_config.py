# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The configuration of a throw-away Airflow deployment, as environment variables."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import airflow_resumable


@dataclass(frozen=True)
class Ports:
    """The TCP ports a deployment listens on."""

    api: int
    worker_logs: int
    triggerer_logs: int


def settings(*, home: Path, dags: Path, database_url: str, ports: Ports, parallelism: int) -> dict[str, str]:
    """Return every ``AIRFLOW*`` variable of a deployment under `home`, with fresh secrets.

    Heartbeats and loops are set for kill experiments: a task whose supervisor is gone is noticed
    after 10 s instead of 300. A time-out of 1 or 2 s kills healthy tasks (apache/airflow issue 58307), and
    on 3.4 it has to be longer than a cleared task takes to end, which sends no heartbeats meanwhile.

    Args:
        home: AIRFLOW_HOME; logs go below it.
        dags: The Dags folder.
        database_url: An SQLAlchemy URL.
        ports: Where to listen.
        parallelism: How many tasks the LocalExecutor runs at once.
    """
    url = f"http://127.0.0.1:{ports.api}"
    options: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": dags,
            "load_examples": False,
            "executor": "LocalExecutor",
            "parallelism": parallelism,
            "dags_are_paused_at_creation": False,
            "simple_auth_manager_all_admins": True,
            "execution_api_server_url": f"{url}/execution/",
            "fernet_key": base64.urlsafe_b64encode(os.urandom(32)).decode(),
            # A Dag file that can't even name Airflow is an import error, not a file to skip; a changed one
            # counts at once; and finding the host's name needs no name server.
            "dag_discovery_safe_mode": False,
            "min_serialized_dag_update_interval": 0,
            "hostname_callable": "socket.gethostname",
            # What is fixed up to 3.3; 3.4 waits a minute between SIGTERM and SIGKILL unless told.
            "killed_task_cleanup_time": 5,
        },
        "database": {"sql_alchemy_conn": database_url},
        "api": {
            "host": "127.0.0.1",
            "port": ports.api,
            "base_url": url,
            "workers": 1,
            "secret_key": secrets.token_hex(32),
        },
        "api_auth": {"jwt_secret": secrets.token_hex(64), "jwt_issuer": "airflow"},
        "scheduler": {
            "scheduler_heartbeat_sec": 1,
            "scheduler_idle_sleep_time": 0.2,
            "job_heartbeat_sec": 1,
            "task_instance_heartbeat_timeout": 10,
            "task_instance_heartbeat_timeout_detection_interval": 1,
            "enable_health_check": False,
        },
        "workers": {"min_heartbeat_interval": 1},
        # Unchanged files are left alone; new and changed ones are seen within a second.
        "dag_processor": {
            "refresh_interval": 1,
            "bundle_refresh_check_interval": 1,
            "min_file_process_interval": 60,
            "parsing_processes": 2,
        },
        "triggerer": {"job_heartbeat_sec": 1, "capacity": 100},
        "logging": {
            "base_log_folder": home / "logs",
            "worker_log_server_port": ports.worker_logs,
            "trigger_log_server_port": ports.triggerer_logs,
            "colored_console_log": False,
        },
        "usage_data_collection": {"enabled": False},
    }
    variables = {
        f"AIRFLOW__{section.upper()}__{name.upper()}": str(value)
        for section, entries in options.items()
        for name, value in entries.items()
    }
    return {"AIRFLOW_HOME": str(home), **variables}


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the host's environment without anybody's Airflow settings, with this package importable.

    Args:
        extra: Variables that are added last.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    # Four Airflow processes that may not keep bytecode compile all of Airflow four times, at each start.
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    inherited["PYTHONPATH"] = os.pathsep.join(_source_roots() + _split(os.environ.get("PYTHONPATH")))
    local = [*_split(os.environ.get("NO_PROXY"), ","), "127.0.0.1", "localhost"]
    inherited["NO_PROXY"] = inherited["no_proxy"] = ",".join(dict.fromkeys(local))
    return {**inherited, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **extra}


def _source_roots() -> list[str]:
    """List the roots of this package that are not an interpreter's own: it runs from its source tree."""
    roots = [str(Path(entry).resolve().parent) for entry in airflow_resumable.__path__]
    return [
        root for root in dict.fromkeys(roots) if Path(root).name not in ("site-packages", "dist-packages")
    ]


def _split(value: str | None, separator: str = os.pathsep) -> list[str]:
    return [part for part in (value or "").split(separator) if part]
