# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The masters of a standalone cluster: who leads, what a state means, and what an answer is worth."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_resumable.jobs.adapter import Observation, observe
from airflow_resumable.jobs.errors import JobNotFound
from airflow_resumable.jobs.transient import is_transient
from airflow_resumable.operators._spark_listing import ACTIVE, FAILED, SUCCEEDED
from airflow_resumable.operators._spark_master import MasterRefused, Masters, MastersUnreachable
from airflow_resumable.operators._spark_standalone import StandaloneTarget
from airflow_resumable.operators.spark_submit import ResumableSparkSubmitOperator
from airflow_resumable.testing.ports import free_port
from tests import spark_replies as replies
from tests.spark_replies import DRIVER, Replies, driver, page, status

STATUS, KILL, PAGE = "GET /v1/submissions/status/", "POST /v1/submissions/kill/", "GET /json/"
Start = Callable[..., Replies]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start servers that answer; they end with the test."""
    with ExitStack() as stack:
        yield lambda answers, **options: stack.enter_context(Replies(answers, **options))


@pytest.fixture
def pair(start: Start) -> Callable[[dict[str, Any], dict[str, Any]], tuple[Masters, Replies, Replies]]:
    """Two masters on the same port of two addresses, the REST gateway and the web UI of each in one."""

    def both(first: dict[str, Any], second: dict[str, Any]) -> tuple[Masters, Replies, Replies]:
        one = start(first)
        two = start(second, host="127.0.0.2", port=one.port)
        return masters("127.0.0.1,127.0.0.2", one.port, one.port), one, two

    return both


def masters(hosts: str, rest_port: int, webui_port: int) -> Masters:
    """Return the masters at some hosts, whose RPC port is another."""
    url = "spark://" + ",".join(f"{host}:7077" for host in hosts.split(","))
    return Masters(url, rest_port=rest_port, webui_port=webui_port)


def test_a_standby_that_is_asked_first_is_passed_over(
    pair: Callable[..., tuple[Masters, Replies, Replies]],
) -> None:
    """The leader's answer counts, and from then on the leader is asked first."""
    both, standby, leader = pair({STATUS: replies.NOT_LEADER}, {STATUS: status("RUNNING")})

    assert [both.driver_state(DRIVER) for _ in range(3)] == ["RUNNING"] * 3
    assert (len(standby.requests), len(leader.requests)) == (1, 3)


def test_a_new_leader_is_found(pair: Callable[..., tuple[Masters, Replies, Replies]]) -> None:
    """The leader is gone and the standby has taken over: its answer counts."""
    both, first, second = pair({STATUS: status("RUNNING")}, {STATUS: replies.NOT_LEADER})
    assert both.driver_state(DRIVER) == "RUNNING"
    first.replies, second.replies = {STATUS: replies.NOT_READY}, {STATUS: status("FINISHED")}

    assert both.driver_state(DRIVER) == "FINISHED"


@pytest.mark.parametrize("other", [replies.NOT_LEADER, replies.NOT_READY, (502, "bad gateway"), "{cut off"])
def test_only_a_leader_says_that_there_is_no_such_driver(
    pair: Callable[..., tuple[Masters, Replies, Replies]], other: Any
) -> None:
    """The leader doesn't know the driver: that is the answer, whatever the other master says."""
    both, _, _ = pair({STATUS: other}, {STATUS: replies.NO_SUCH_DRIVER})
    with pytest.raises(JobNotFound, match=DRIVER):
        both.driver_state(DRIVER)


@pytest.mark.parametrize(
    "answer",
    [
        replies.NOT_LEADER,
        replies.NOT_READY,
        {"success": False, "message": "something new"},
        (500, "<html>"),
        "{cut off",
        "[]",
        "{}",
        (401, {}),
    ],
)
def test_an_answer_that_settles_nothing_is_asked_for_again(start: Start, answer: Any) -> None:
    """No leader, or no proper answer: a transient error that names the URLs, never "no such driver"."""
    server = start({STATUS: answer, PAGE: page(state="RECOVERING")})
    with pytest.raises(MastersUnreachable) as caught:
        masters("127.0.0.1", server.port, server.port).driver_state(DRIVER)

    assert is_transient(caught.value)
    assert f"{server.url}/v1/submissions/status/{DRIVER}" in str(caught.value)
    assert f"{server.url}/json/: the master is RECOVERING" in str(caught.value)
    assert "rest-port" in str(caught.value)


def test_an_answer_without_a_state_is_an_unknown_state(start: Start) -> None:
    """As Spark answers while it recovers."""
    server = start({STATUS: status(None)})

    assert masters("127.0.0.1", server.port, server.port).driver_state(DRIVER) == "UNKNOWN"


def test_the_web_ui_stands_in_for_a_gateway_that_is_off(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """REST is refused: states come from the page, a missing driver is missing, and it is said once."""
    server, rest = start({PAGE: page(driver(state="FINISHED"))}), free_port()
    both = masters("127.0.0.1", rest, server.port)

    assert [both.driver_state(DRIVER) for _ in range(3)] == ["FINISHED"] * 3
    (said,) = [one.getMessage() for one in caplog.records]
    assert f":{rest}/v1/submissions/status/" in said
    assert "rest-port" in said
    with pytest.raises(JobNotFound):
        both.driver_state("driver-other")


def test_a_page_that_may_not_be_read_is_said_loudly(start: Start) -> None:
    """403 on the list of drivers is not a transient error."""
    server = start({PAGE: (403, "Forbidden")})
    with pytest.raises(MasterRefused, match="answered 403") as caught:
        masters("127.0.0.1", server.port, server.port).listing()

    assert not is_transient(caught.value)


@pytest.mark.parametrize("answer", ["{cut off", "[]", "{}", {"status": "ALIVE"}, {"status": "STANDBY"}])
def test_a_page_that_is_none_is_not_an_empty_list(start: Start, answer: Any) -> None:
    """Anything but a leading master's page is an error: "no drivers" would mean "submit"."""
    server = start({PAGE: answer})
    with pytest.raises(MastersUnreachable):
        masters("127.0.0.1", server.port, server.port).listing()


def test_every_master_is_asked_to_kill(pair: Callable[..., tuple[Masters, Replies, Replies]]) -> None:
    """The leader takes the request, the standby's refusal doesn't matter."""
    both, standby, leader = pair({KILL: replies.KILL_NOT_LEADER}, {KILL: replies.KILL_TAKEN})
    both.kill(DRIVER)

    assert leader.requests == [f"POST /v1/submissions/kill/{DRIVER}"]
    assert standby.requests in ([], leader.requests)


def test_a_driver_that_has_ended_is_none_to_kill(start: Start) -> None:
    """Spark's answer for that is a failure, and a fine one."""
    server = start({KILL: replies.NOTHING_TO_KILL})

    masters("127.0.0.1", server.port, server.port).kill(DRIVER)


def test_a_kill_that_nobody_takes_is_an_error_in_time(
    pair: Callable[..., tuple[Masters, Replies, Replies]],
) -> None:
    """One master refuses, one doesn't answer: an error that names both, after a second and a half."""
    released = threading.Event()

    def hang(request: str) -> dict[str, Any]:
        released.wait(30)
        return replies.KILL_TAKEN

    both, _, _ = pair({KILL: (401, {"message": "no"})}, {KILL: hang})
    with pytest.raises(MastersUnreachable) as caught:
        both.kill(DRIVER)
    released.set()

    assert "127.0.0.1" in str(caught.value)
    assert "answered 401 no" in str(caught.value)
    assert "127.0.0.2" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("spark://m1:7077", ("m1",)),
        ("spark://m1", ("m1",)),
        ("spark://m1:7077,m2:7077", ("m1", "m2")),
        ("spark://m1:6066, m2", ("m1", "m2")),
        ("spark://[::1]:7077", ("[::1]",)),
    ],
)
def test_hosts_are_read_from_the_master_url(url: str, hosts: tuple[str, ...]) -> None:
    """Several masters, IPv6, with and without ports."""
    assert Masters(url).hosts == hosts


def test_the_same_cluster_under_a_longer_url_is_the_same() -> None:
    """A master that was added doesn't make it another cluster."""
    assert Masters("spark://m1:7077,m2:7077").is_same_cluster_as("spark://m2:7077")
    assert not Masters("spark://m1:7077").is_same_cluster_as("spark://other:7077")


@pytest.mark.parametrize("port", ["eight", "0", 65536, "", None])
def test_a_wrong_port_of_the_web_ui_is_refused(port: Any) -> None:
    """The error names the extra, the value and the connection."""
    hook: Any = SimpleNamespace(
        _connection={"master": "spark://m1:7077"},
        _conn_id="spark_prod",
        get_connection=lambda conn_id: SimpleNamespace(extra_dejson={"webui-port": port}),
    )
    with pytest.raises(ValueError, match="spark_prod") as caught:
        Masters.of(hook)

    assert f"webui-port={port!r}" in str(caught.value)


def test_states_are_told_apart() -> None:
    """Every state of Spark's DriverState has its meaning."""
    assert {state: observed(state) for state in (*ACTIVE, *SUCCEEDED, *FAILED, "UNKNOWN", "")} == {
        "SUBMITTED": Observation.ACTIVE,
        "RUNNING": Observation.ACTIVE,
        "RELAUNCHING": Observation.ACTIVE,
        "FINISHED": Observation.SUCCEEDED,
        "FAILED": Observation.FAILED,
        "KILLED": Observation.FAILED,
        "ERROR": Observation.FAILED,
        "UNKNOWN": Observation.UNKNOWN,
        "": Observation.UNKNOWN,
    }


@given(st.text().filter(lambda text: text not in ACTIVE | SUCCEEDED | FAILED))
def test_any_other_state_is_unknown(state: str) -> None:
    """A state that nobody has heard of never leads to a submit."""
    assert observed(state) is Observation.UNKNOWN


def observed(state: str) -> Observation:
    """Return what the protocol makes of a state."""
    operator = ResumableSparkSubmitOperator(task_id="task", retries=1)
    operator._target = StandaloneTarget.__new__(StandaloneTarget)
    return observe(operator, state, operator.get_capabilities())


def test_a_master_that_is_down_is_not_handed_to_spark_submit(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """spark-submit is given the masters that can be connected to, in their order; the log has the others."""
    up, down = start({}).port, free_port()
    url = f"spark://127.0.0.1:{down},127.0.0.1:{up},localhost:{up}"

    assert Masters(url).url_to_submit() == f"spark://127.0.0.1:{up},localhost:{up}"
    (said,) = [one.getMessage() for one in caplog.records]
    assert f"127.0.0.1:{down}" in said


def test_a_url_of_masters_that_are_all_down_stays_as_it_is() -> None:
    """As does that of one master: spark-submit says what is wrong."""
    down, other = free_port(), free_port()
    for url in (f"spark://127.0.0.1:{down}", f"spark://127.0.0.1:{down},127.0.0.1:{other}"):
        assert Masters(url).url_to_submit() == url
    assert Masters("spark://m1,m2").url_to_submit() == "spark://m1,m2"
