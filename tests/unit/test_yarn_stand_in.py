# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The ResourceManager stand-in and its spark-submit: what the tests of Spark on YARN take for granted."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_resumable.testing.yarn_stand_in import YarnStandIn

Submit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[YarnStandIn]:
    """A stand-in with two ResourceManagers that remembers three ended applications."""
    with YarnStandIn(tmp_path / "yarn", managers=2, max_completed=3) as running:
        yield running


@pytest.fixture
def submit(yarn: YarnStandIn, tmp_path: Path) -> Submit:
    """Run the stand-in for spark-submit to its end."""
    program = yarn.spark_submit(tmp_path)

    def run(*confs: str, **plan: Any) -> subprocess.CompletedProcess[str]:
        command = [str(program), "--master", "yarn"]
        for conf in confs:
            command += ["--conf", conf]
        command += ["--name", "work", "--deploy-mode", "cluster", "app.jar", json.dumps(plan)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    return run


def get(yarn: YarnStandIn, path: str, name: str = "rm1") -> httpx.Response:
    """Ask one of the ResourceManagers."""
    return httpx.get(f"{yarn.url(name)}/ws/v1/cluster{path}")


def test_spark_submit_waits_for_the_end_unless_it_is_told_not_to(yarn: YarnStandIn, submit: Submit) -> None:
    """It prints what Spark's YARN client prints; a failed application is its failure when it waits."""
    done = submit("spark.yarn.tags=One,two", final="FAILED", seconds=0.3)
    assert done.returncode == 1
    assert "finished with FINISHED, FAILED" in done.stderr
    done = submit("spark.yarn.submit.waitAppCompletion=false", gate="/nowhere/at/all")
    assert done.returncode == 0
    first, second = yarn.submitted()
    lines = [line.partition("INFO ")[2] for line in done.stderr.splitlines() if second in line]
    assert lines[1:3] == [
        f"Client: Submitting application {second} to ResourceManager",
        f"YarnClientImpl: Submitted application {second}",
    ]
    assert yarn.applications()[first]["applicationTags"] == "one,two"
    assert yarn.is_live(second)


def test_applications_are_found_by_any_of_some_tags_their_start_and_their_state(yarn: YarnStandIn) -> None:
    """As by a ResourceManager: tags in any case, states in any case, and null for none."""
    ids = [yarn.submit(tags=[tag], gate="/nowhere") for tag in ("red", "Green", "blue")]

    def found(query: str) -> list[str]:
        apps = get(yarn, f"/apps?{query}").json()["apps"]
        return [app["id"] for app in apps["app"]] if apps else []

    assert found("applicationTags=RED,green") == ids[:2]
    assert found("states=running&user=somebody&limit=1") == ids[:1]
    assert found("states=finished") == []
    assert found("startedTimeBegin=99999999999999") == []
    assert get(yarn, "/apps?states=odd").status_code == 400


def test_tags_that_yarn_refuses_are_refused(yarn: YarnStandIn, submit: Submit) -> None:
    """More than ten, or one of more than a hundred characters: nothing is taken."""
    assert submit(f"spark.yarn.tags={','.join(map(str, range(11)))}").returncode == 1
    assert submit(f"spark.yarn.tags={'x' * 101}").returncode == 1
    assert yarn.submitted() == []


def test_a_kill_is_taken_once_and_changes_nothing_that_has_ended(yarn: YarnStandIn) -> None:
    """202 and KILLED; then 200; and nothing but KILLED may be asked for."""
    app = yarn.submit(gate="/nowhere")
    url = f"{yarn.url()}/ws/v1/cluster/apps/{app}/state"
    assert httpx.put(url, json={"state": "RUNNING"}).status_code == 400
    assert httpx.put(url, json={"state": "KILLED"}).status_code == 202
    assert httpx.put(url, json={"state": "KILLED"}).status_code == 200
    told = get(yarn, f"/apps/{app}").json()["app"]
    assert (told["state"], told["finalStatus"]) == ("KILLED", "KILLED")


def test_a_standby_redirects_and_takes_over_what_the_other_knew(yarn: YarnStandIn) -> None:
    """307 with the active one's address; after a fail-over the new one has read the state store."""
    app = yarn.submit(gate="/nowhere")
    assert get(yarn, "/info", "rm2").json()["clusterInfo"]["haState"] == "STANDBY"
    answer = get(yarn, f"/apps/{app}", "rm2")
    assert answer.status_code == 307
    assert answer.headers["Location"] == f"{yarn.url('rm1')}/ws/v1/cluster/apps/{app}"
    yarn.kill("rm1")
    yarn.fail_over("rm2")
    assert get(yarn, f"/apps/{app}", "rm2").json()["app"]["state"] == "RUNNING"
    yarn.fail_over("")
    assert "no active RM" in get(yarn, f"/apps/{app}", "rm2").text


def test_a_restart_keeps_the_applications_or_loses_them(yarn: YarnStandIn) -> None:
    """With recovery it goes on with what it knew; without, an id is unknown, as a remote exception."""
    app = yarn.submit(gate="/nowhere")
    yarn.restart()
    assert yarn.is_live(app)
    yarn.restart(recover=False)
    answer = get(yarn, f"/apps/{app}")
    assert answer.status_code == 404
    assert answer.json()["RemoteException"]["exception"] == "NotFoundException"
    assert yarn.submitted() == [app]


def test_ended_applications_are_forgotten_oldest_first(yarn: YarnStandIn) -> None:
    """Three are remembered; one that runs doesn't count."""
    runs = yarn.submit(gate="/nowhere")
    ended = [yarn.submit() for _ in range(5)]
    for app in ended:
        get(yarn, f"/apps/{app}")
    assert set(yarn.applications()) == {runs, *ended[2:]}


def test_faults_are_met_in_order_and_logged(yarn: YarnStandIn) -> None:
    """A refused request does nothing, one with a lost reply does; both are in the log."""
    app = yarn.submit(gate="/nowhere")
    yarn.fail("kill", "unavailable")
    yarn.fail("kill", "lost_reply")
    url = f"{yarn.url()}/ws/v1/cluster/apps/{app}/state"
    assert httpx.put(url, json={"state": "KILLED"}).status_code == 503
    assert yarn.is_live(app)
    with pytest.raises(httpx.HTTPError):
        httpx.put(url, json={"state": "KILLED"})
    assert not yarn.is_live(app)
    assert [row["fault"] for row in yarn.requests("kill")] == ["unavailable", "lost_reply"]
