# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""One container of the node stand-in: a process of this host, its log, and its status."""

from __future__ import annotations

import asyncio
import bisect
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_resumable.testing.kubernetes.mounts import Mounts

NO_IMAGE = "does-not-exist"
"""A word in an image's name that makes it one that can't be pulled."""

_LOOK_EVERY = 0.05


def now() -> str:
    """Return this moment as Kubernetes spells it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ContainerRun:
    """Runs one container, and again where its pod's restart policy says so.

    Args:
        spec: The container, as in the pod's spec.
        mounts: Its mounts.
        folder: Where its log is kept.

    Attributes:
        environment: Its variables, the ones of the node left out; to be set before its start.
    """

    def __init__(self, spec: Mapping[str, Any], mounts: Mounts, folder: Path) -> None:
        self.name: str = spec["name"]
        self.mounts = mounts
        self.log = folder / f"{self.name}.log"
        self.restarts = 0
        self.process: asyncio.subprocess.Process | None = None
        self.ended = asyncio.Event()
        self.spec = spec
        self.environment: Mapping[str, str] = {}
        self._state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
        self._last_state: dict[str, Any] = {}
        self._stopping = False
        # How long the log was, and when: a kubelet stamps each line as it is written.
        self._lengths: list[int] = []
        self._stamps: list[datetime] = []

    @property
    def is_pullable(self) -> bool:
        """Whether its image can be had."""
        return NO_IMAGE not in self.spec.get("image", "")

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return "running" in self._state

    @property
    def is_stopping(self) -> bool:
        """Whether it is never to be started again."""
        return self._stopping

    @property
    def has_started(self) -> bool:
        """Whether its process has run, or runs."""
        return "waiting" not in self._state or bool(self._last_state)

    @property
    def exit_code(self) -> int | None:
        """How it ended, None before that."""
        ended = self._state.get("terminated")
        return None if ended is None else int(ended["exitCode"])

    @property
    def status(self) -> dict[str, Any]:
        """Its status, as in the pod's."""
        return {
            "name": self.name,
            "image": self.spec.get("image", ""),
            "imageID": "stand-in",
            "ready": self.is_running,
            "started": self.is_running,
            "restartCount": self.restarts,
            "containerID": f"process://{self.process.pid}" if self.process else "",
            "state": self._state,
            "lastState": self._last_state,
        }

    def command(self) -> list[str]:
        """Return what is run for it."""
        words = [*(self.spec.get("command") or ()), *(self.spec.get("args") or ())]
        return [self.mounts.spell(_expand(word, self.environment)) for word in words] or ["true"]

    async def start(self, command: list[str]) -> None:
        """Start its process, unless it is never to be started again."""
        if self._stopping:
            return
        variables = {**os.environ, **self.environment}
        environment = {name: self.mounts.spell(value) for name, value in variables.items()}
        where = self.mounts.spell(self.spec.get("workingDir") or "")
        with self.log.open("ab") as log:
            try:
                self.process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=where if where and Path(where).is_dir() else self.log.parent,
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"{error}\n".encode())
                self._end(128, "ContainerCannotRun", now())
                return
        self._state = {"running": {"startedAt": now()}}

    async def wait(self) -> None:
        """Wait for the end of its process."""
        if self.process is None or not self.is_running:
            return
        began = self._state["running"]["startedAt"]
        ended = asyncio.create_task(self.process.wait())
        while not ended.done():
            self.look_at_log()
            await asyncio.wait([ended], timeout=_LOOK_EVERY)
        self.look_at_log()
        code = ended.result()
        # What it left behind ends with it, as in a container.
        self.signal(signal.SIGKILL)
        self._end(code if code >= 0 else 128 - code, "Completed" if code == 0 else "Error", began)

    def fail_to_pull(self) -> None:
        """Note that its image can't be had."""
        message = f"image {self.spec.get('image')!r} can't be pulled"
        self._state = {"waiting": {"reason": "ErrImagePull", "message": message}}

    def lose(self) -> None:
        """Note that its process ended while nobody looked."""
        self._end(137, "ContainerStatusUnknown", now())

    def back_off(self) -> None:
        """Wait to be started again."""
        message = "back-off restarting failed container"
        self._last_state = self._state
        self._state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}

    def look_at_log(self) -> None:
        """Note when the log has grown."""
        size = self.log.stat().st_size if self.log.exists() else 0
        if size > (self._lengths[-1] if self._lengths else 0):
            self._lengths.append(size)
            self._stamps.append(datetime.now(UTC))

    def written_at(self, offset: int) -> datetime:
        """Return when the byte at this place of the log was written."""
        self.look_at_log()
        return self._stamps[min(bisect.bisect_right(self._lengths, offset), len(self._stamps) - 1)]

    def stop_for_good(self) -> None:
        """Never start it again."""
        self._stopping = True

    def may_restart(self, policy: str) -> bool:
        """Say whether it is to be started once more."""
        again = policy == "Always" or (policy == "OnFailure" and self.exit_code != 0)
        return again and not self._stopping

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its processes."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def _end(self, code: int, reason: str, began: str) -> None:
        self._state = {
            "terminated": {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": now()}
        }


def _expand(word: str, environment: Mapping[str, str]) -> str:
    # $(NAME), as https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/
    for name, value in environment.items():
        word = word.replace(f"$({name})", value)
    return word
