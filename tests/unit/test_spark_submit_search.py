# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Which of the listed drivers is ours: told by launch commands, waited for, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_resumable.jobs.errors import JobNotSettled
from airflow_resumable.operators._driver_search import Before, DriverSearch, snapshot
from airflow_resumable.operators._spark_master import MasterRefused, Masters, MastersUnreachable
from airflow_resumable.testing.ports import free_port
from tests import spark_replies as replies
from tests.spark_replies import Replies, driver, page

TOKEN = "r2683277e9aa667e08d4c45e2349a297d"
NOW = datetime(2026, 11, 29, 18, 26, 30, tzinfo=UTC)
STARTED = int(NOW.timestamp() * 1000)
NOTHING_BEFORE = Before(frozenset())

Cluster = Callable[..., tuple[Masters, Replies]]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Start a master's and a worker's web UI in one; `logs` are the workers' answers by driver."""
    with ExitStack() as stack:

        def start(*drivers: dict[str, Any], logs: dict[str, Any] | None = None) -> tuple[Masters, Replies]:
            server = stack.enter_context(Replies({}))

            def log_of(request: str) -> Any:
                return next(
                    (text for one, text in (logs or {}).items() if f"driverId={one}&" in request),
                    replies.NO_LOG,
                )

            server.replies = {
                "GET /json/": page(*drivers, workers={"worker-1": server.url}),
                "GET /log/": log_of,
                "GET /proxy/": "<html>the master's own page</html>",
            }
            return Masters("spark://127.0.0.1:7077", webui_port=server.port), server

        yield start


def search(masters: Masters, before: Before | None = NOTHING_BEFORE, **options: Any) -> DriverSearch:
    """Return a search for our token."""
    return DriverSearch(masters, TOKEN, before=before, since=NOW - timedelta(minutes=5), **options)


def found(one: DriverSearch, patience: float = 0.0) -> list[str]:
    """Return the ids that a search settles on."""
    return [driver.id for driver in one.settle(patience)]


def test_ours_is_told_from_others_by_its_launch_command(cluster: Cluster) -> None:
    """Another token, no token, and ours; running and ended ones."""
    masters, _ = cluster(
        *(
            driver(name, state)
            for name, state in [("d-1", "RUNNING"), ("d-2", "RUNNING"), ("d-3", "FINISHED")]
        ),
        logs={"d-1": replies.log("r" + "0" * 32), "d-2": replies.log(TOKEN), "d-3": replies.log(None)},
    )

    assert found(search(masters)) == ["d-2"]


def test_a_mark_in_the_drivers_own_output_is_not_believed(cluster: Cluster) -> None:
    """Only the launch command counts: an application may print anything."""
    told = replies.log(None, after=f'"-Dspark.airflow.resumable.mark={TOKEN}"\n')
    masters, _ = cluster(driver("d-1"), logs={"d-1": told})

    assert found(search(masters)) == []


def test_a_launch_command_that_is_cut_off_tells_nothing(cluster: Cluster) -> None:
    """Half a command without a mark isn't a command without a mark."""
    masters, _ = cluster(driver("d-1"), logs={"d-1": replies.log(None)[:160]})
    with pytest.raises(JobNotSettled, match=r"d-1 \(RUNNING, .* shows no launch command"):
        found(search(masters))


def test_a_driver_that_was_listed_before_the_submit_is_not_asked_about(cluster: Cluster) -> None:
    """Ten thousand old drivers cost one request for the list, and one for the new driver's log."""
    old = [driver(f"old-{number}", "FINISHED", started=STARTED - number) for number in range(10_000)]
    masters, server = cluster(*old, driver("d-1"), logs={"d-1": replies.log(TOKEN)})
    before = Before.of(masters.listing(), "SleepApp")
    server.requests.clear()
    assert len(before.drivers) == 500
    known = Before(before.drivers - {"d-1"}, before.main_class, before.oldest)

    assert found(search(masters, known)) == ["d-1"]
    assert len(server.requests) == 2


def test_what_was_before_comes_back_from_the_record(cluster: Cluster) -> None:
    """The intent's JSON gives the same list; anything else gives none."""
    masters, _ = cluster(driver("d-1"), driver("d-2", "SUBMITTED", worker=None))
    before = Before.of(masters.listing(), "Main")

    assert Before.load(before.dump()) == before
    others: list[Any] = [None, [], {}, {"drivers": "d-1"}, "x"]
    assert [Before.load(value) for value in others] == [None] * 5


def test_without_a_list_from_before_the_time_of_the_intent_counts(cluster: Cluster) -> None:
    """Drivers that the master took long before the intent are not looked at, the others are."""
    masters, server = cluster(
        driver("d-old", started=STARTED - 600_000),
        driver("d-new", started=STARTED),
        logs={"d-old": replies.log(TOKEN), "d-new": replies.log(TOKEN)},
    )

    assert found(search(masters, None)) == ["d-new"]
    assert not any("d-old" in request for request in server.requests)


def test_another_main_class_is_another_job(cluster: Cluster) -> None:
    """The master lists the class: a driver of another one needn't be told, not even while it is queued."""
    masters, _ = cluster(driver("d-1", "SUBMITTED", worker=None, main_class="Other"))

    assert found(search(masters, Before(frozenset(), "SleepApp"))) == []


@pytest.mark.parametrize("state", ["FAILED", "KILLED", "ERROR"])
def test_a_failed_driver_need_not_be_told(cluster: Cluster, state: str) -> None:
    """Whether it was ours or not, a new one is due."""
    masters, _ = cluster(driver("d-1", state), driver("d-2", state, worker=None))

    assert found(search(masters)) == []


@pytest.mark.parametrize(
    ("state", "worker", "why"),
    [
        ("SUBMITTED", None, "no worker has it yet"),
        ("RELAUNCHING", None, "no worker has it yet"),
        ("RUNNING", "worker-1", "shows no launch command"),
        ("RUNNING", "worker-gone", "the log of its worker can't be read"),
        ("FINISHED", "worker-1", "shows no launch command"),
        ("FINISHED", "worker-gone", "the log of its worker can't be read"),
        ("WHATEVER", "worker-1", "shows no launch command"),
    ],
)
def test_a_driver_that_can_not_be_told_stops_the_submit(
    cluster: Cluster, state: str, worker: str | None, why: str
) -> None:
    """Queued, just launched, on a worker out of reach, its directory cleaned up: named, never guessed."""
    masters, _ = cluster(driver("d-1", state, worker=worker))
    with pytest.raises(JobNotSettled) as caught:
        found(search(masters))

    assert f"d-1 ({state}, {why}" in str(caught.value).replace(f"{masters.page('127.0.0.1')} ", "")
    assert "Nothing was submitted" in str(caught.value)
    assert f"-Dspark.airflow.resumable.mark={TOKEN}" in str(caught.value)
    assert caught.value.external_id == "d-1"


def test_after_a_clear_a_finished_driver_need_not_be_told(cluster: Cluster) -> None:
    """Only what is alive has to be cancelled."""
    masters, _ = cluster(driver("d-1", "FINISHED"))

    assert found(search(masters, ended_matter=False)) == []


def test_a_blanked_out_mark_tells_nothing(cluster: Cluster) -> None:
    """A cluster whose redaction takes our property: said with the remedy, not read as "not ours"."""
    masters, _ = cluster(driver("d-1"), logs={"d-1": replies.log("*********(redacted)")})
    with pytest.raises(JobNotSettled, match=r"spark\.redaction\.regex"):
        found(search(masters))


def test_a_live_driver_of_ours_ends_the_search(cluster: Cluster) -> None:
    """Nothing is submitted then, so whatever else is queued doesn't matter."""
    masters, _ = cluster(
        driver("d-1", "SUBMITTED", worker=None), driver("d-2"), logs={"d-2": replies.log(TOKEN)}
    )

    assert found(search(masters), patience=60.0) == ["d-2"]


def test_a_driver_is_waited_for_until_it_is_launched(cluster: Cluster) -> None:
    """Queued at the first look, launched at the second: adopted."""
    masters, server = cluster()
    looks = iter([driver("d-1", "SUBMITTED", worker=None), driver("d-1")])
    server.replies["GET /json/"] = lambda request: page(next(looks), workers={"worker-1": server.url})
    server.replies["GET /log/"] = replies.log(TOKEN)

    assert found(search(masters), patience=60.0) == ["d-1"]


def test_a_worker_behind_the_masters_reverse_proxy_is_read_there(cluster: Cluster) -> None:
    """The worker's own address is out of reach; the master passes its pages on."""
    masters, server = cluster(driver("d-1"))
    server.replies = {
        "GET /json/": page(driver("d-1"), workers={"worker-1": f"http://127.0.0.1:{free_port()}"}),
        "GET /proxy/worker-1/log/": replies.log(TOKEN),
    }

    assert found(search(masters)) == ["d-1"]


def test_a_silent_worker_is_asked_once_per_look(cluster: Cluster) -> None:
    """Many drivers on one dead worker cost one time-out, not many."""
    masters, server = cluster(*(driver(f"d-{number}", worker="worker-gone") for number in range(20)))
    with pytest.raises(JobNotSettled):
        found(search(masters))

    assert sum(request.startswith("GET /proxy/") for request in server.requests) == 1


def test_a_list_that_was_readable_before_must_be_readable_now(cluster: Cluster) -> None:
    """The web UI is gone: an error, not "nothing found"."""
    masters, server = cluster()
    server.replies = {"GET /json/": (503, "")}
    with pytest.raises(MastersUnreachable):
        found(search(masters))


def test_a_list_that_was_never_readable_stops_nothing(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The open window that was warned about before the submit: said again, and submitted."""
    masters, server = cluster()
    server.replies = {"GET /json/": (403, "")}

    assert found(search(masters, None)) == []
    assert "the next one is its double" in caplog.text
    assert "webui-port" in caplog.text


@pytest.mark.parametrize("answer", [(503, ""), (403, "")])
def test_an_unreadable_list_is_warned_about_before_the_submit(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    """REST answers, the web UI doesn't: no snapshot, one warning with the remedy."""
    _, server = cluster()
    server.replies = {"GET /json/": answer, "GET /v1/submissions/status/": replies.NO_SUCH_DRIVER}
    masters = Masters("spark://127.0.0.1", rest_port=server.port, webui_port=server.port)

    assert snapshot(masters, "SleepApp", 0.0) is None
    (said,) = [one.getMessage() for one in caplog.records]
    assert "webui-port" in said
    assert "starts a second one" in said


def test_masters_that_answer_nothing_are_an_error_before_the_submit(cluster: Cluster) -> None:
    """A driver that could not be watched is not started."""
    _, server = cluster()
    server.replies = {}
    with pytest.raises(MastersUnreachable):
        snapshot(Masters("spark://127.0.0.1", rest_port=server.port, webui_port=server.port), None, 0.0)


def test_refused_and_unreachable_are_different_errors() -> None:
    """Permission problems are not waited out."""
    assert not issubclass(MasterRefused, MastersUnreachable)
