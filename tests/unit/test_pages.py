# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The API that the checkpoint tests load from: its faults, its log and its hold are what they rely on."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from typing import Any

import httpx
import pytest

from airflow_resumable.testing.pages import PagesError, PagesServer


def get(server: PagesServer, path: str) -> httpx.Response:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        return client.get(path)


def load(server: PagesServer) -> list[int]:
    """Load every row as a client does that advances by what came and asks again after an error."""
    ids: list[int] = []
    while True:
        reply = get(server, f"/rows?offset={len(ids)}&limit=10")
        if reply.is_success:
            page = reply.json()
            ids += [row["id"] for row in page["rows"]]
            if page["next"] is None:
                return ids
            assert page["next"] == len(ids)


def told(server: PagesServer) -> list[tuple[int, int]]:
    return [(request["offset"], request["status"]) for request in server.log()]


def test_pages_tell_all_rows_and_where_the_next_begins() -> None:
    """The last page says that there is no next one, also when it is full."""
    with PagesServer(rows=30) as server:
        assert load(server) == list(range(30))
        assert told(server) == [(0, 200), (10, 200), (20, 200)]
        assert get(server, "/rows?offset=30").json() == {"rows": [], "next": None}


def test_each_fault_comes_once_and_where_it_was_asked_for() -> None:
    """A short page, a 500, an empty page that promises more, a 429: the rows are all there in the end."""
    with PagesServer(rows=65, short_at=[10], fail_at=[19], empty_at=[29], throttle_at=[39]) as server:
        assert load(server) == list(range(65))
        assert told(server) == [
            (0, 200),
            (10, 200),
            (19, 500),
            (19, 200),
            (29, 200),
            (29, 200),
            (39, 429),
            (39, 200),
            (49, 200),
            (59, 200),
        ]


def test_a_throttled_reply_says_when_to_come_back() -> None:
    """Retry-After is in seconds."""
    with PagesServer(throttle_at=[0]) as server:
        assert get(server, "/rows").headers["Retry-After"] == "1"


def test_an_item_is_the_row_of_that_number() -> None:
    """Rows and items are the same data, so loads of both can be compared."""
    with PagesServer(rows=3) as server:
        assert [get(server, f"/items/{number}").json() for number in range(3)] == get(server, "/rows").json()[
            "rows"
        ]
        assert [request["item"] for request in server.log()] == [0, 1, 2, None]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/rows?offset=-1", 400, "offset='-1' is not accepted; allowed: a whole number, 0 or more"),
        ("/rows?limit=0", 400, "limit='0' is not accepted; allowed: a whole number, 1 or more"),
        ("/rows?limit=many", 400, "limit='many' is not accepted"),
        ("/items/3", 404, "there is no item 3; items are 0 to 2"),
        ("/items/x", 400, "n='x' is not accepted"),
        ("/other", 404, "there is no GET /other"),
    ],
)
def test_a_bad_request_is_refused_and_not_logged(path: str, status: int, words: str) -> None:
    """The reply names the field, the value and what is allowed; the log has only what was asked for."""
    with PagesServer(rows=3) as server:
        reply = get(server, path)

        assert reply.status_code == status
        assert words in reply.json()["message"]
        assert server.log() == []


def test_a_bad_hold_is_refused() -> None:
    """A misspelt hold, which would hold nothing, is an error."""
    with PagesServer() as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        reply = client.post("/hold", json={"row_from": 3})

        assert reply.status_code == 400
        assert "allowed: rows_from, items_from, items" in reply.json()["message"]


def test_held_requests_are_answered_after_the_release_and_not_before() -> None:
    """What is held is known, has no status, and gets its ordinary answer in the end."""
    with PagesServer(rows=10) as server:
        server.hold(items=[2], items_from=8)
        answers: dict[int, Any] = {}

        def ask(number: int) -> None:
            answers[number] = get(server, f"/items/{number}").json()["id"]

        threads = [threading.Thread(target=ask, args=[number]) for number in (2, 8, 9)]
        for thread in threads:
            thread.start()
        ask(5)
        held = server.wait_held(3)
        before = dict(answers)
        server.release()
        for thread in threads:
            thread.join()

        assert sorted(request["item"] for request in held) == [2, 8, 9]
        assert {request["status"] for request in held} == {None}
        assert before == {5: 5}
        assert answers == {2: 2, 5: 5, 8: 8, 9: 9}
        assert {request["status"] for request in server.log()} == {200}


def test_waiting_for_requests_that_do_not_come_ends() -> None:
    """The error says what was asked for until then."""
    with PagesServer() as server:
        get(server, "/items/7")
        with pytest.raises(TimeoutError, match=r"0 of 1 requests held within 0\.1 s.*'item': 7"):
            server.wait_held(timeout=0.1)


def test_a_client_that_was_killed_gets_no_answer() -> None:
    """A held request whose client is gone keeps the status null, and what was asked for is in the log."""
    with PagesServer(rows=50, fail_at=[20]) as server:
        server.hold(rows_from=20)
        code = f"import urllib.request as r; r.urlopen({server.url + '/rows?offset=20'!r})"
        with subprocess.Popen([sys.executable, "-S", "-c", code], env={}) as client:
            server.wait_held()
            client.kill()
        server.release()
        assert get(server, "/rows?offset=30").status_code == 200

        assert told(server) == [(20, None), (30, 200)]


def test_replies_overtake_each_other_when_they_are_delayed() -> None:
    """A delay makes items come back in another order than they were asked for."""
    with PagesServer(rows=8, delay=0.5) as server:
        order: list[int] = []

        def ask(number: int) -> None:
            get(server, f"/items/{number}")
            order.append(number)

        threads = [threading.Thread(target=ask, args=[number]) for number in range(1, 8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert order != sorted(order)


def test_a_server_that_cannot_start_says_why() -> None:
    """The port that is in use is named, and what to do."""
    with PagesServer() as server:
        port = int(server.url.rpartition(":")[2])
        with (
            pytest.raises(PagesError, match=f"port {port} of 127.0.0.1.*choose another --port"),
            PagesServer(port=port),
        ):
            pass


def test_the_server_ends_with_its_parent() -> None:
    """A test run that is killed leaves no server behind."""
    code = (
        "import sys; from airflow_resumable.testing.pages import PagesServer\n"
        "with PagesServer() as server: print(server._process.pid, flush=True); sys.stdin.read()"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as parent:
        assert parent.stdout is not None
        server = os.pidfd_open(int(parent.stdout.readline()))
        try:
            assert select.select([server], [], [], 0)[0] == []
            parent.kill()
            # A pidfd is readable once its process has ended, see pidfd_open(2).
            assert select.select([server], [], [], 20)[0] == [server]
        finally:
            os.close(server)
