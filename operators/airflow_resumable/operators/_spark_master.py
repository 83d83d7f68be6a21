# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The masters of one Spark standalone cluster, spoken to over HTTP alone: no JVM is started."""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import httpx

from airflow_resumable.jobs.errors import JobNotFound
from airflow_resumable.operators._spark_listing import UNKNOWN, Listing, listing_of

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

_log = logging.getLogger(__name__)

_CONNECT_SECONDS = 3.0
LOOK_TIMEOUT = httpx.Timeout(10.0, connect=5.0)
KILL_SECONDS = 1.5
"""Seconds for a kill request, all masters together: a dying task has no more."""

_NOTHING_TO_KILL = "already finished or does not exist"


class MastersUnreachable(ConnectionError):
    """No master that leads the cluster has answered; asking again may help."""


class MasterRefused(PermissionError):
    """A master answered 401 or 403."""


class _NoUsableAnswer(Exception):
    def __init__(self, what: str, *, refused: bool = False) -> None:
        super().__init__(what)
        self.refused = refused


class Masters:
    """The masters of one cluster: the REST gateway first, the web UI's JSON page where there is none.

    Args:
        url: ``spark://host[:port][,host[:port]...]``; the ports are not used.
        rest_scheme, rest_port: How to reach the REST gateway, ``spark.master.rest.port``.
        webui_port: Port of the masters' web UI, ``spark.master.ui.port``.
        connection: The Airflow connection's id, for error messages.
    """

    def __init__(
        self,
        url: str,
        *,
        rest_scheme: str = "http",
        rest_port: int = 6066,
        webui_port: int = 8080,
        connection: str = "spark_default",
    ) -> None:
        self.url = url
        self.rest_scheme = rest_scheme
        self.rest_port = rest_port
        self.webui_port = webui_port
        self.connection = connection
        self._page_first = False
        self._leader = ""

    @classmethod
    def of(cls, hook: SparkSubmitHook, url: str | None = None) -> Masters:
        """Return the masters that a hook's connection names, or those of `url` reached in the same way.

        Raises:
            ValueError: The connection's ``webui-port`` is no port.
        """
        connection, extra = hook._connection, hook.get_connection(hook._conn_id).extra_dejson
        port = extra.get("webui-port", 8080)
        if not str(port).isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(
                f"webui-port={port!r} in the extra of connection {hook._conn_id!r} is not allowed; use the "
                "number of the port on which the Spark master's web UI listens"
            )
        return cls(
            url or connection["master"],
            rest_scheme=connection.get("rest_scheme", "http"),
            rest_port=connection.get("rest_port", 6066),
            webui_port=int(port),
            connection=hook._conn_id,
        )

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The masters' hosts, in the order of the URL; an IPv6 address keeps its brackets."""
        names = []
        for part in self.url.removeprefix("spark://").split(","):
            host = urlsplit(f"//{part.strip()}").hostname
            if host:
                names.append(f"[{host}]" if ":" in host else host)
        return tuple(names)

    def gateway(self, host: str) -> str:
        """Return the base URL of a host's REST gateway."""
        return f"{self.rest_scheme}://{host}:{self.rest_port}"

    def page(self, host: str) -> str:
        """Return the base URL of a host's web UI; where that speaks HTTPS, Spark redirects."""
        return f"http://{host}:{self.webui_port}"

    @property
    def leader(self) -> str:
        """The host that was last seen to lead, else the first."""
        return self._leader or next(iter(self.hosts), "")

    def url_to_submit(self) -> str:
        """Return the master URL without the masters at whose port nobody listens.

        spark-submit's RPC client gives up when it can't connect to every master, one that is down included,
        see ClientApp in org.apache.spark.deploy.
        """
        parts = [part.strip() for part in self.url.removeprefix("spark://").split(",")]
        if len(parts) < 2:
            return self.url
        troubles = {part: why for part in parts if (why := _why_no_connection(part))}
        if not troubles or len(troubles) == len(parts):
            return self.url
        _log.warning(
            "spark-submit is not given these masters, which are down: %s",
            "; ".join(f"{part} ({why})" for part, why in troubles.items()),
        )
        return "spark://" + ",".join(part for part in parts if part not in troubles)

    def _leader_first(self) -> list[str]:
        # A dead master costs a connect time-out; it should do so once per change of leader.
        return sorted(self.hosts, key=lambda host: host != self._leader)

    def is_same_cluster_as(self, url: str) -> bool:
        """Say whether a master URL shares a host with this one."""
        return bool(set(self.hosts) & set(Masters(url).hosts))

    def driver_state(self, driver_id: str) -> str:
        """Return the master's word for a driver's state.

        Raises:
            JobNotFound: The leading master has no such driver.
            MastersUnreachable: No leading master answered, neither over REST nor on its page; names every
                URL.
        """
        ways = [self._state_over_rest, self._state_on_page]
        if self._page_first:
            ways.reverse()
        troubles: list[str] = []
        for way in ways:
            try:
                state = way(driver_id)
            except MastersUnreachable as error:
                troubles.append(str(error))
                continue
            on_page = way == self._state_on_page
            if on_page and not self._page_first:
                _log.warning(
                    "%s; watching driver %s on the master's page instead, which can't cancel it. Set "
                    "rest-port (and rest-scheme) in the extra of connection %r, and "
                    "spark.master.rest.enabled=true on the master",
                    troubles[0],
                    driver_id,
                    self.connection,
                )
            self._page_first = on_page
            return state
        raise MastersUnreachable(
            f"{'; '.join(troubles)}. Set rest-port and webui-port in the extra of connection "
            f"{self.connection!r} where these URLs are not the cluster's"
        )

    def check_answering(self) -> None:
        """Make sure that a driver could be watched.

        Raises:
            MastersUnreachable: As from `driver_state`.
        """
        try:
            self.driver_state("driver-none")
        except JobNotFound:
            return

    def _state_over_rest(self, driver_id: str) -> str:
        unknown_to, troubles = "", []
        for host in self._leader_first():
            url = f"{self.gateway(host)}/v1/submissions/status/{quote(driver_id, safe='')}"
            try:
                answer = self._json("GET", url)
                if answer.get("success") is True:
                    self._leader = host
                    # Spark leaves the state out when it has none to tell, while a master recovers.
                    return str(answer.get("driverState") or UNKNOWN)
                # Only a master that leads answers "no such driver", and it does so without a message.
                if answer.get("success") is False and not answer.get("message"):
                    unknown_to = url
                else:
                    raise _NoUsableAnswer(f"{url} answered {_gist(answer)}")
            except _NoUsableAnswer as error:
                troubles.append(str(error))
        if unknown_to:
            raise JobNotFound(f"{unknown_to} has no driver {driver_id}")
        raise MastersUnreachable("; ".join(troubles))

    def _state_on_page(self, driver_id: str) -> str:
        try:
            listing = self.listing()
        except MasterRefused as error:
            raise MastersUnreachable(str(error)) from error
        driver = listing.driver(driver_id)
        if driver is None:
            raise JobNotFound(f"{listing.page} lists no driver {driver_id}")
        return driver.state

    def listing(self) -> Listing:
        """Return what the leading master lists on its JSON page.

        Raises:
            MastersUnreachable: No leading master answered.
            MasterRefused: None answered, and one of them with 401 or 403.
        """
        troubles: list[_NoUsableAnswer] = []
        for host in self._leader_first():
            url = f"{self.page(host)}/json/"
            try:
                page = self._json("GET", url)
                if page.get("status") != "ALIVE":
                    raise _NoUsableAnswer(f"{url}: the master is {page.get('status')}")
                listing = listing_of(self.page(host), page)
                self._leader = host
                return listing
            except _NoUsableAnswer as error:
                troubles.append(error)
            except (KeyError, TypeError, ValueError) as error:
                troubles.append(
                    _NoUsableAnswer(f"{url} is not a master's page ({type(error).__name__}: {error})")
                )
        text = "; ".join(map(str, troubles))
        raise MasterRefused(text) if any(one.refused for one in troubles) else MastersUnreachable(text)

    def kill(self, driver_id: str) -> None:
        """Ask every master at once to kill a driver; return when one has taken the request.

        A driver that has ended, or that the leading master doesn't know, is nothing to kill.

        Raises:
            MastersUnreachable: No master took the request within `KILL_SECONDS`.
        """
        urls = [
            f"{self.gateway(host)}/v1/submissions/kill/{quote(driver_id, safe='')}" for host in self.hosts
        ]
        troubles = [f"{url} did not answer within {KILL_SECONDS} s" for url in urls]

        def ask(index: int) -> bool:
            try:
                answer = self._json("POST", urls[index], timeout=httpx.Timeout(KILL_SECONDS))
            except _NoUsableAnswer as error:
                troubles[index] = str(error)
                return False
            if answer.get("success") is True or _NOTHING_TO_KILL in str(answer.get("message")):
                _log.info("driver %s: %s", driver_id, _gist(answer))
                return True
            troubles[index] = f"{urls[index]} answered {_gist(answer)}"
            return False

        if not any(_at_once(ask, range(len(urls)), KILL_SECONDS)):
            raise MastersUnreachable(f"no master took the kill request: {'; '.join(troubles)}")

    def text(self, url: str) -> str:
        """Return the text at a URL of the cluster.

        Raises:
            MastersUnreachable: It could not be read.
        """
        try:
            return self._request("GET", url, httpx.Timeout(5.0, connect=2.0)).text
        except _NoUsableAnswer as error:
            raise MastersUnreachable(str(error)) from error

    def _json(self, method: str, url: str, timeout: httpx.Timeout = LOOK_TIMEOUT) -> dict[str, Any]:
        response = self._request(method, url, timeout)
        try:
            answer = response.json()
        except ValueError as error:
            raise _NoUsableAnswer(f"{url} answered no JSON ({error})") from error
        if not isinstance(answer, dict):
            raise _NoUsableAnswer(f"{url} answered {type(answer).__name__}, not a JSON object")
        return answer

    def _request(self, method: str, url: str, timeout: httpx.Timeout) -> httpx.Response:
        try:
            response = self._client.request(method, url, timeout=timeout)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _NoUsableAnswer(f"{url}: {type(error).__name__}: {error}") from error
        if response.status_code != 200:
            code = response.status_code
            raise _NoUsableAnswer(f"{url} answered {code} {_message(response)}", refused=code in (401, 403))
        return response

    @cached_property
    def _client(self) -> httpx.Client:
        # A kept connection would outlive a restarted master, and the operator.
        return httpx.Client(
            verify=_trusted(),
            follow_redirects=True,
            limits=httpx.Limits(max_keepalive_connections=0),
        )


def _why_no_connection(address: str) -> str:
    """Return why nothing can be sent to a ``host:port``; empty when it can, or when no port is named."""
    parts = urlsplit(f"//{address}")
    if not parts.hostname or not parts.port:
        return ""
    try:
        socket.create_connection((parts.hostname, parts.port), _CONNECT_SECONDS).close()
    except OSError as error:
        return str(error)
    return ""


def _trusted() -> ssl.SSLContext:
    # The stock operator asks by curl and by requests; whoever made those trust a private authority
    # must not have to do it a third time.
    context = ssl.create_default_context()
    for path in filter(None, map(os.environ.get, ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))):
        context.load_verify_locations(**{"capath" if os.path.isdir(path) else "cafile": path})
    return context


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["message"])[:200]
    except (ValueError, KeyError, TypeError):
        return response.reason_phrase


def _gist(answer: dict[str, Any]) -> str:
    message = str(answer.get("message") or json.dumps(answer))
    # A master that doesn't lead answers with a Java stack trace.
    lines = [line for line in message.splitlines() if line.strip() and not line.startswith("\t")]
    return " ".join(lines)[:300]


def _at_once(call: Callable[[int], bool], arguments: Sequence[int], seconds: float) -> Iterator[bool]:
    """Call with each argument, all at once, and yield the answers as they come, for at most `seconds`."""
    answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
    for argument in arguments:
        run = partial(_put_answer, answers, call, argument)
        threading.Thread(target=run, name="spark-kill", daemon=True).start()
    deadline = time.monotonic() + seconds
    for _ in arguments:
        try:
            yield answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return


def _put_answer(answers: queue.SimpleQueue[bool], call: Callable[[int], bool], argument: int) -> None:
    answers.put(call(argument))
