# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The REST client for ResourceManagers, at the stand-in, and at replies that the stand-in doesn't give."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from requests.auth import HTTPBasicAuth

from airflow_resumable.jobs.errors import JobNotFound
from airflow_resumable.operators import _yarn_rm as rm
from airflow_resumable.operators._yarn_rm import (
    Application,
    ResourceManagerRefused,
    ResourceManagers,
    ResourceManagerUnreachable,
)
from airflow_resumable.testing.ports import free_port
from airflow_resumable.testing.yarn_stand_in import YarnStandIn
from tests.spark_replies import Replies

APPS = "GET /ws/v1/cluster/apps"
LONG_AGO = datetime.now(UTC) - timedelta(days=1)


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[YarnStandIn]:
    """A stand-in with two ResourceManagers that remembers as many applications as a test has."""
    with YarnStandIn(tmp_path / "yarn", managers=2, max_completed=20_000) as running:
        yield running


def app(**changes: Any) -> dict[str, Any]:
    """Return an application as the REST API shows it."""
    return {
        "id": "application_1_0001",
        "state": "RUNNING",
        "finalStatus": "UNDEFINED",
        "applicationTags": "red,blue",
        **changes,
    }


@pytest.mark.parametrize(
    ("state", "final", "kind"),
    [
        ("NEW", "UNDEFINED", "active"),
        ("NEW_SAVING", "UNDEFINED", "active"),
        ("SUBMITTED", "UNDEFINED", "active"),
        ("ACCEPTED", "UNDEFINED", "active"),
        ("RUNNING", "UNDEFINED", "active"),
        ("FINAL_SAVING", "SUCCEEDED", "active"),
        ("KILLING", "UNDEFINED", "stopping"),
        ("FINISHED", "SUCCEEDED", "succeeded"),
        ("FINISHING", "SUCCEEDED", "succeeded"),
        ("FINISHED", "FAILED", "failed"),
        ("FINISHED", "KILLED", "failed"),
        ("FINISHED", "UNDEFINED", "failed"),
        ("FINISHED", "ENDED", "failed"),
        ("FAILED", "FAILED", "failed"),
        ("FAILED", "UNDEFINED", "failed"),
        ("KILLED", "KILLED", "failed"),
        ("KILLED", "SUCCEEDED", "failed"),
        ("FINISHED", "SPLENDID", "nothing"),
        ("HIBERNATING", "SUCCEEDED", "nothing"),
    ],
)
def test_every_state_has_one_meaning(state: str, final: str, kind: str) -> None:
    """State and final status together; what nobody has heard of is neither success nor failure."""
    status = Application.read(app(state=state, finalStatus=final)).status
    sets = {
        "active": rm.ACTIVE,
        "stopping": rm.STOPPING,
        "succeeded": rm.SUCCEEDED,
        "failed": rm.FAILED,
    }
    assert [name for name, words in sets.items() if status in words] == [kind] * (kind in sets)


def test_a_long_reason_is_cut_short() -> None:
    """A failure tells why in one line; what runs or has succeeded tells its status alone."""
    long = Application.read(app(state="FAILED", diagnostics="AM died\n" + "x" * 9000)).said
    assert long.startswith("FAILED: AM died xxx")
    assert len(long) < 600
    assert Application.read(app(diagnostics="AM is launched")).said == "RUNNING"


def test_addresses_are_read_as_by_the_parent() -> None:
    """Without a scheme they are HTTP; slashes at the end and empty parts don't count."""
    assert rm.base_urls(" rm1:8088, https://rm2:8090/ ,") == ("http://rm1:8088", "https://rm2:8090")
    one = ResourceManagers("rm1:8088,rm2:8088")
    assert one.is_same_cluster_as("http://rm2:8088,http://rm3:8088")
    assert not one.is_same_cluster_as("rm4:8088")


@pytest.mark.parametrize("hadoop_2", [False, True])
def test_the_active_one_is_found_and_asked_first_from_then_on(yarn: YarnStandIn, hadoop_2: bool) -> None:
    """The standby is named first: it is asked once, whether it redirects by 307 or by a Refresh header."""
    if hadoop_2:
        yarn.answer_as_hadoop_2()
    yarn.fail_over("rm2")
    ours = yarn.submit(gate="/nowhere")
    managers = ResourceManagers(yarn.address)

    assert managers.application(ours).status == "RUNNING"
    assert managers.application(ours).status == "RUNNING"
    assert [row["rm"] for row in yarn.requests("status")] == ["rm1", "rm2", "rm2"]
    assert managers.page(ours) == f"{yarn.url('rm2')}/cluster/app/{ours}"


def test_a_standby_alone_leads_to_the_active_one(yarn: YarnStandIn) -> None:
    """The connection names one ResourceManager, which is the standby: looks and kills follow its redirect."""
    ours = yarn.submit(gate="/nowhere", tags=["red"])
    managers = ResourceManagers(yarn.url("rm2"))
    managers.kill(ours)
    assert managers.application(ours).status == "KILLED"
    assert [one.id for one in managers.find("red", LONG_AGO)] == [ours]


def test_a_fail_over_is_followed(yarn: YarnStandIn) -> None:
    """The active one dies, the other takes over."""
    ours = yarn.submit(gate="/nowhere")
    managers = ResourceManagers(yarn.address)
    assert managers.application(ours).is_live
    yarn.kill("rm1")
    yarn.fail_over("rm2")
    assert managers.application(ours).is_live
    managers.kill(ours)
    assert not managers.application(ours).is_live


def test_no_active_one_is_an_error_that_names_all(yarn: YarnStandIn) -> None:
    """Nobody leads: asking again may help, and nothing is taken for missing."""
    yarn.fail_over("")
    with pytest.raises(ResourceManagerUnreachable) as raised:
        ResourceManagers(yarn.address).application("application_1_0001")
    for part in (yarn.url("rm1"), yarn.url("rm2"), "yarn_resourcemanager_webapp_address", "spark_default"):
        assert part in str(raised.value)


def test_an_application_that_is_not_known_is_told_from_a_wrong_address(yarn: YarnStandIn) -> None:
    """YARN's own 404 is an answer; a web server's isn't, nor is no server at all."""
    managers = ResourceManagers(yarn.url())
    with pytest.raises(JobNotFound, match="application_1_0001 not found"):
        managers.application("application_1_0001")
    yarn.fail("status", "html")
    with pytest.raises(ResourceManagerUnreachable, match="404"):
        managers.application("application_1_0001")
    with pytest.raises(ResourceManagerUnreachable, match="ConnectionError"):
        ResourceManagers(f"127.0.0.1:{free_port()}").application("application_1_0001")


@pytest.mark.parametrize("fault", ["forbidden", "unauthorized"])
def test_a_refusal_is_not_asked_again(yarn: YarnStandIn, fault: str) -> None:
    """401 and 403 are loud, at a look, a search and a kill."""
    managers = ResourceManagers(yarn.url())
    yarn.fail("any", fault, times=3)
    with pytest.raises(ResourceManagerRefused):
        managers.find("red", LONG_AGO)
    with pytest.raises(ResourceManagerRefused):
        managers.application("application_1_0001")
    with pytest.raises(ResourceManagerRefused):
        managers.kill("application_1_0001")


def test_credentials_go_with_every_request(yarn: YarnStandIn) -> None:
    """Also with the one that follows a standby's redirect."""
    ours = yarn.submit(gate="/nowhere")
    managers = ResourceManagers(yarn.url("rm2"), auth=HTTPBasicAuth("me", "secret"))
    managers.application(ours)
    managers.kill(ours)
    rows = yarn.requests("status") + yarn.requests("kill")
    assert [(row["rm"], row["user"][:6]) for row in rows] == [("rm2", "Basic "), ("rm1", "Basic ")] * 2


def test_credentials_do_not_leave_tls() -> None:
    """A redirect from HTTPS to HTTP is not followed, nor one to another path."""
    response = requests.Response()
    response.headers["Location"] = "http://rm2:8088/ws/v1/cluster/apps/x"
    assert rm._active_by(response, "http://rm1:8088/ws/v1/cluster/apps/x") == "http://rm2:8088"
    assert rm._active_by(response, "https://rm1:8090/ws/v1/cluster/apps/x") == ""
    response.headers["Location"] = "http://rm2:8088/login"
    assert rm._active_by(response, "http://rm1:8088/ws/v1/cluster/apps/x") == ""


def test_a_search_among_ten_thousand_others_is_one_request(yarn: YarnStandIn) -> None:
    """By tag, and from a moment on; the ResourceManager does the rest."""
    yarn.add_others(10_000)
    ours = yarn.submit(gate="/nowhere", tags=["Ours"])
    managers = ResourceManagers(yarn.url())
    assert [one.id for one in managers.find("ours", LONG_AGO)] == [ours]
    assert managers.find("ours", datetime.now(UTC) + timedelta(minutes=1)) == ()
    assert len(yarn.requests()) == 4  # two of them are the submit's


@pytest.mark.parametrize("nothing", [None, {}, "", {"app": []}, {"app": None}])
def test_nothing_found_has_many_shapes(nothing: Any) -> None:
    """``apps`` is null, empty or a list without members, by the version of Hadoop."""
    with Replies({APPS: {"apps": nothing}}) as server:
        assert ResourceManagers(server.url).find("red", LONG_AGO) == ()


def test_a_listing_is_not_believed_blindly() -> None:
    """One application as an object; others' ones when a proxy drops the query; none without tags."""
    with Replies({APPS: {"apps": {"app": app()}}}) as server:
        managers = ResourceManagers(server.url)
        assert [one.id for one in managers.find("red", LONG_AGO)] == ["application_1_0001"]
        assert managers.find("green", LONG_AGO) == ()
        server.replies[APPS] = {"apps": {"app": [app(applicationTags="")]}}
        with pytest.raises(ResourceManagerUnreachable, match="without tags"):
            managers.find("red", LONG_AGO)


@pytest.mark.parametrize(
    "answer", ["<html>login</html>", "[]", {}, {"app": None}, {"app": {"id": "x"}}, (500, "boom")]
)
def test_an_answer_that_is_none_is_asked_for_again(answer: Any) -> None:
    """A login page, cut-off JSON, an object of another kind: no answer, whatever else."""
    with Replies({APPS: answer}) as server, pytest.raises(ResourceManagerUnreachable):
        ResourceManagers(server.url).application("application_1_0001")


def test_a_kill_waits_no_longer_than_a_dying_task_may(yarn: YarnStandIn) -> None:
    """The ResourceManager would answer, much later."""
    ours = yarn.submit(gate="/nowhere")
    yarn.fail("kill", "hang_before", seconds=60)
    with pytest.raises(ResourceManagerUnreachable, match=r"no answer from|Read timed out"):
        ResourceManagers(yarn.url()).kill(ours)


def test_a_kill_that_nobody_leads_to_is_not_taken(yarn: YarnStandIn) -> None:
    """A standby without an active one answers 200, in plain text; a server error is no yes either."""
    ours = yarn.submit(gate="/nowhere")
    yarn.fail("kill", "unavailable")
    with pytest.raises(ResourceManagerUnreachable, match="503"):
        ResourceManagers(yarn.url()).kill(ours)
    yarn.fail_over("")
    with pytest.raises(ResourceManagerUnreachable, match="no active RM"):
        ResourceManagers(yarn.address).kill(ours)
    yarn.fail_over("rm1")
    assert yarn.is_live(ours)


def test_what_has_ended_or_is_unknown_is_none_to_kill(yarn: YarnStandIn) -> None:
    """An ended application stays as it ended; an unknown one is said to be unknown."""
    ended = yarn.submit()
    managers = ResourceManagers(yarn.address)
    assert managers.application(ended).status == "FINISHED/SUCCEEDED"
    managers.kill(ended)
    assert managers.application(ended).status == "FINISHED/SUCCEEDED"
    with pytest.raises(JobNotFound):
        managers.kill("application_1_0001")
