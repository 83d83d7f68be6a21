# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The ResourceManagers of one YARN cluster, spoken to over their REST API alone: no JVM is started.

https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/ResourceManagerRest.html
"""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from airflow_resumable.jobs.errors import JobNotFound

if TYPE_CHECKING:
    from requests import Response
    from requests.auth import AuthBase

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# YarnApplicationState, and of the ResourceManager's own RMAppState what older ones let through.
ACTIVE = frozenset({"NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING", "FINAL_SAVING"})
STOPPING = frozenset({"KILLING"})
SUCCEEDED = frozenset({"FINISHED/SUCCEEDED"})
FAILED = frozenset(
    {"FAILED", "KILLED", "FINISHED/FAILED", "FINISHED/KILLED", "FINISHED/UNDEFINED", "FINISHED/ENDED"}
)
# The application itself has ended; its final status says how.
_FINISHED = frozenset({"FINISHED", "FINISHING"})

LOOK_TIMEOUT = (5.0, 30.0)
"""Seconds to connect and to read: the parent's."""
KILL_SECONDS = 1.5
"""Seconds for a kill request, all ResourceManagers together: a dying task has no more."""

_PREFIX = "/ws/v1/cluster"
_LONGEST_REASON = 500
_STANDBY = re.compile(r"\AThis is standby RM")


class ResourceManagerUnreachable(ConnectionError):
    """No active ResourceManager has answered; asking again may help."""


class ResourceManagerRefused(PermissionError):
    """A ResourceManager answered 401 or 403."""


class _NoUsableAnswer(Exception):
    def __init__(self, what: str, *, refused: bool = False, active: str = "") -> None:
        super().__init__(what)
        self.refused = refused
        self.active = active


@dataclass(frozen=True, slots=True)
class Application:
    """An application as the ResourceManager tells of it.

    Args:
        id: ``application_<start of the ResourceManager>_<number>``.
        state, final_status: The ResourceManager's words.
        tags: Its tags, in lower case.
        diagnostics: Why it ended.
    """

    id: str
    state: str
    final_status: str
    tags: frozenset[str] = frozenset()
    diagnostics: str = ""

    @property
    def status(self) -> str:
        """State and final status as one word: the latter counts once the application has finished."""
        return f"FINISHED/{self.final_status}" if self.state in _FINISHED else self.state

    @property
    def said(self) -> str:
        """The status, and behind a colon why the application failed, cut short."""
        why = " ".join(self.diagnostics.split())
        if self.status not in FAILED or not why:
            return self.status
        return f"{self.status}: {why[:_LONGEST_REASON]}{'...' if len(why) > _LONGEST_REASON else ''}"

    @property
    def number(self) -> tuple[int, ...]:
        """What orders ids by their age: the ResourceManager's start, and a number counted from there."""
        return tuple(int(part) for part in self.id.split("_")[1:] if part.isdecimal())

    @property
    def is_live(self) -> bool:
        """Whether it may still do work."""
        return self.status not in SUCCEEDED | FAILED

    @classmethod
    def read(cls, app: dict[str, Any]) -> Application:
        """Return an application from the REST API's object.

        Raises:
            KeyError, TypeError: It is none.
        """
        tags = str(app.get("applicationTags") or "").split(",")
        return cls(
            id=str(app["id"]),
            state=str(app["state"]),
            final_status=str(app["finalStatus"]),
            tags=frozenset(tag.strip() for tag in tags if tag.strip()),
            diagnostics=str(app.get("diagnostics") or "").strip(),
        )


class ResourceManagers:
    """The ResourceManagers of one cluster; which of them is active is found out, and may change.

    Args:
        addresses: ``host:port`` or URL of the web application of one or several, comma-separated.
        auth: Put on every request, as by the parent.
        connection: The Airflow connection's id, for error messages.
    """

    def __init__(
        self, addresses: str, *, auth: AuthBase | None = None, connection: str = "spark_default"
    ) -> None:
        self.urls = base_urls(addresses)
        self.connection = connection
        self._auth = auth
        self._active = self.urls[0] if self.urls else ""

    @property
    def location(self) -> str:
        """The addresses, as they go on record."""
        return ",".join(self.urls)

    def is_same_cluster_as(self, addresses: str) -> bool:
        """Say whether one of some addresses is one of these."""
        return bool(
            {urlsplit(url).netloc for url in self.urls} & {urlsplit(u).netloc for u in base_urls(addresses)}
        )

    def page(self, app_id: str) -> str:
        """Return the URL of an application's page in the ResourceManager's web UI."""
        return f"{self._active}/cluster/app/{quote(app_id, safe='')}"

    def application(self, app_id: str) -> Application:
        """Return an application.

        Raises:
            JobNotFound: The active ResourceManager has no such application.
            ResourceManagerRefused, ResourceManagerUnreachable: There is no answer; names every URL.
        """
        path = f"{_PREFIX}/apps/{quote(app_id, safe='')}"

        def read(url: str, response: Response) -> Application:
            return Application.read(_object(url, response)["app"])

        return self._ask(path, {}, read)

    def find(self, tag: str, since: datetime) -> tuple[Application, ...]:
        """Return the applications with a tag that were submitted at `since` or later, in one request.

        Raises:
            ResourceManagerRefused, ResourceManagerUnreachable: As from `application`.
        """
        query = {
            "applicationTags": tag,
            "startedTimeBegin": str(int(since.timestamp() * 1000)),
            # The long part of an application, and of no use here; a ResourceManager before 2.9 ignores it.
            "deSelects": "resourceRequests",
        }

        def read(url: str, response: Response) -> tuple[Application, ...]:
            # "apps" is null or empty where nothing was found, by version.
            listed = (_object(url, response)["apps"] or {}).get("app") or ()
            found = [Application.read(app) for app in ([listed] if isinstance(listed, dict) else listed)]
            # Whoever drops the query on its way would make everything ours; who hides tags, nothing.
            if untold := [app.id for app in found if not app.tags]:
                raise _NoUsableAnswer(f"{url} lists {', '.join(untold[:3])} without tags, asked by tag")
            return tuple(app for app in found if tag in app.tags)

        return self._ask(f"{_PREFIX}/apps", query, read)

    def kill(self, app_id: str) -> None:
        """Ask for an application's end; return when the active ResourceManager has taken the request.

        Raises:
            JobNotFound: It has no such application.
            ResourceManagerRefused, ResourceManagerUnreachable: None took the request within
                `KILL_SECONDS`.
        """
        path = f"{_PREFIX}/apps/{quote(app_id, safe='')}/state"
        answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        for url in self.urls:
            run = partial(self._kill_at, url, path, answers.put)
            threading.Thread(target=run, name="yarn-kill", daemon=True).start()
        deadline = time.monotonic() + KILL_SECONDS
        troubles: list[BaseException] = []
        for _ in self.urls:
            try:
                trouble = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                troubles.append(TimeoutError(f"no answer from {self.location} within {KILL_SECONDS} s"))
                break
            if trouble is None:
                return
            if isinstance(trouble, JobNotFound):
                raise trouble
            troubles.append(trouble)
        text = f"no ResourceManager took the kill request: {'; '.join(map(str, troubles))}"
        if any(isinstance(one, _NoUsableAnswer) and one.refused for one in troubles):
            raise ResourceManagerRefused(text)
        raise ResourceManagerUnreachable(text)

    def _kill_at(self, url: str, path: str, put: Callable[[BaseException | None], None]) -> None:
        try:
            response = self._request("PUT", url + path, KILL_SECONDS, json={"state": "KILLED"})
            # A standby that knows of no active one answers 200, too, in plain text.
            state = _object(url + path, response)["state"]
            _log.info("kill request %s: %s, the application is %s", path, response.status_code, state)
        except _NoUsableAnswer as standby:
            # Only where the active one isn't asked anyway.
            if standby.active and standby.active not in self.urls:
                self._kill_at(standby.active, path, put)
            else:
                put(standby)
        except JobNotFound as missing:
            put(missing)
        except Exception as error:
            put(_NoUsableAnswer(f"{url}{path}: {type(error).__name__}: {error}"))
        else:
            put(None)

    def _ask(self, path: str, query: dict[str, str], read: Callable[[str, Response], _T]) -> _T:
        waiting = sorted(self.urls, key=lambda url: url != self._active)
        asked: list[str] = []
        troubles: list[_NoUsableAnswer] = []
        while waiting:
            url = waiting.pop(0)
            asked.append(url)
            try:
                answer = read(url, self._request("GET", url + path, LOOK_TIMEOUT, params=query))
            except _NoUsableAnswer as error:
                troubles.append(error)
                if error.active and error.active not in asked:
                    waiting = [error.active, *(one for one in waiting if one != error.active)]
            except (KeyError, TypeError, AttributeError) as error:
                what = f"{url}{path} is not a ResourceManager's answer ({type(error).__name__}: {error})"
                troubles.append(_NoUsableAnswer(what))
            else:
                if url != self._active:
                    _log.info("the active ResourceManager is %s", url)
                self._active = url
                return answer
        text = (
            f"{'; '.join(map(str, troubles))}. Set yarn_resourcemanager_webapp_address in the extra of "
            f"connection {self.connection!r} to the addresses of all ResourceManagers, comma-separated, "
            "where these are not the cluster's"
        )
        if any(error.refused for error in troubles):
            raise ResourceManagerRefused(text)
        raise ResourceManagerUnreachable(text)

    def _request(self, method: str, url: str, timeout: Any, **more: Any) -> Response:
        import requests

        try:
            # Redirects are followed by hand: requests would leave the credentials behind.
            response = requests.request(
                method, url, auth=self._auth, timeout=timeout, allow_redirects=False, **more
            )
        except requests.RequestException as error:
            raise _NoUsableAnswer(f"{url}: {type(error).__name__}: {error}") from error
        code = response.status_code
        if code in (200, 202) and not _STANDBY.match(response.text):
            return response
        if code == 404 and _remote_exception(response) == "NotFoundException":
            raise JobNotFound(f"{url}: {_gist(response)}")
        if _STANDBY.match(response.text) or code == 307:
            active = _active_by(response, url)
            raise _NoUsableAnswer(f"{url} is the standby (of {active or 'none'})", active=active)
        raise _NoUsableAnswer(f"{url} answered {code} {_gist(response)}", refused=code in (401, 403))


def base_urls(addresses: str) -> tuple[str, ...]:
    """Return the base URLs of comma-separated addresses; one without a scheme is HTTP, as by the parent."""
    parts = [part.strip().rstrip("/") for part in addresses.split(",")]
    return tuple(part if "://" in part else f"http://{part}" for part in parts if part)


def _hosts(urls: Iterable[str]) -> set[str]:
    return {urlsplit(url).netloc for url in urls}


def _object(url: str, response: Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError as error:
        raise _NoUsableAnswer(f"{url} answered no JSON: {response.text[:100]!r}") from error
    if not isinstance(answer, dict):
        raise _NoUsableAnswer(f"{url} answered {type(answer).__name__}, not a JSON object")
    return answer


def _remote_exception(response: Response) -> str:
    try:
        return str(response.json()["RemoteException"]["exception"])
    except (ValueError, KeyError, TypeError):
        return ""


def _gist(response: Response) -> str:
    try:
        return str(response.json()["RemoteException"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return " ".join(response.text.split())[:300]


def _active_by(response: Response, asked: str) -> str:
    """Return the base URL of the active one by a standby's redirect, empty where it names none to follow."""
    # Since Hadoop 2.7 in Location, before that in "Refresh: 3; url=...".
    target = response.headers.get("Location") or response.headers.get("Refresh", "").partition("url=")[2]
    base, found, _ = target.strip().partition(_PREFIX)
    # Credentials that went over TLS don't go on without.
    if (
        not found
        or not base.startswith(("http://", "https://"))
        or (asked.startswith("https://") and not base.startswith("https://"))
    ):
        return ""
    return base.rstrip("/")
