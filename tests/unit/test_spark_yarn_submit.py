# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Spark on YARN: what goes to spark-submit, and what becomes of a submit that fails or is cut short.

ResourceManager and spark-submit are stand-ins, see `airflow_resumable.testing.yarn_stand_in`; their request
log counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.sdk import JobFailed
from airflow_resumable.testing.task_tries import TaskTries
from tests.spark_attempts import until
from tests.yarn_service import CONNECTION, YarnService, YarnTask, clients, connection, make

# spark-submit isn't waited for once its id is known.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


def tags_of(yarn_service: YarnService) -> list[list[str]]:
    """Return the tags of every application that was taken."""
    return [row["tags"] for row in yarn_service.requests("submit") if row.get("created")]


def test_tags_are_added_to_the_users_own(yarn_service: YarnService) -> None:
    """Token and family come after what the conf has; the user's conf itself stays as it is."""
    conf = {"spark.yarn.tags": "Nightly, team-a,nightly"}
    operator, tries = make(yarn_service.spark_submit, conf=conf), TaskTries()
    tries.run(operator)
    token = tries.record(operator)["token"]
    ours = [f"airflow-resumable-family:{token[1:17]}", f"airflow-resumable-token:{token}"]
    assert tags_of(yarn_service) == [[*ours, "nightly", "team-a"]]
    assert operator.conf == conf


@pytest.mark.parametrize("place", ["properties_file", "SPARK_CONF_DIR", "SPARK_HOME"])
def test_tags_of_a_properties_file_are_not_lost(
    yarn_service: YarnService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A property on the command line replaces that of a file, so the file's tags are repeated there."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "conf"
    folder.mkdir()
    file = folder / "spark-defaults.conf"
    file.write_text("# tags\nspark.yarn.tagsx no\nspark.yarn.tags = one\n  spark.yarn.tags two,three\n")
    arguments: dict[str, Any] = {"properties_file": str(file)} if place == "properties_file" else {}
    if not arguments:
        monkeypatch.setenv(place, str(folder if place == "SPARK_CONF_DIR" else tmp_path))
    TaskTries().run(make(yarn_service.spark_submit, **arguments))
    assert tags_of(yarn_service)[0][2:] == ["three", "two"]


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"spark.yarn.tags": "a,b,c,d,e,f,g,h,i"}, "9 tags .*leave 8 at most"),
        ({"spark.yarn.tags": "x" * 101}, "printable ASCII"),
        ({"spark.yarn.tags": "grün"}, "grün"),
        ({"spark.yarn.submit.waitAppCompletion": "true"}, "waitAppCompletion='true' is not allowed"),
    ],
)
def test_a_conf_that_can_not_be_kept_is_refused(
    yarn_service: YarnService, conf: dict[str, Any], said: str
) -> None:
    """Before spark-submit is started, with the property, its value and the remedy."""
    with pytest.raises(ValueError, match=said):
        TaskTries().run(make(yarn_service.spark_submit, conf=conf))
    assert yarn_service.requests("new") == []


def test_eight_tags_of_the_users_are_fine(yarn_service: YarnService) -> None:
    """YARN takes ten."""
    TaskTries().run(make(yarn_service.spark_submit, conf={"spark.yarn.tags": "a,b,c,d,e,f,g,h"}))
    assert len(tags_of(yarn_service)[0]) == 10


def test_env_vars_reach_spark_submit(yarn_service: YarnService, tmp_path: Path) -> None:
    """As by the parent: they are how a task names another Hadoop configuration."""
    script = tmp_path / "told"
    script.write_text(
        f'#!/bin/sh\necho "$HADOOP_CONF_DIR" > {tmp_path}/seen\nexec {yarn_service.spark_submit} "$@"\n'
    )
    script.chmod(0o755)
    TaskTries().run(make(script, env_vars={"HADOOP_CONF_DIR": "/etc/other"}))
    assert (tmp_path / "seen").read_text() == "/etc/other\n"


@pytest.mark.parametrize("flag", [False, True])
def test_without_an_address_nothing_is_submitted(
    yarn_service: YarnService, monkeypatch: pytest.MonkeyPatch, flag: bool
) -> None:
    """The error names the extra, the connection, and the way around."""
    monkeypatch.setenv(CONNECTION, connection(""))
    with pytest.raises(
        ValueError, match=r"yarn_resourcemanager_webapp_address in its extra.*durable=False"
    ) as e:
        TaskTries().run(make(yarn_service.spark_submit, yarn_track_via_rm_api=flag))
    assert "spark_default" in str(e.value)
    assert yarn_service.requests("new") == []


def test_not_durable_is_the_parents_way(yarn_service: YarnService, monkeypatch: pytest.MonkeyPatch) -> None:
    """spark-submit waits for the end, no ResourceManager is asked by us, and nothing of ours is a tag."""
    monkeypatch.setenv(CONNECTION, connection(""))
    operator, tries = make(yarn_service.spark_submit, durable=False), TaskTries()
    tries.run(operator)
    assert tags_of(yarn_service) == [[]]
    assert tries.record(operator) is None
    assert yarn_service.requests("find") == []


def test_switched_off_it_is_the_parent(yarn_service: YarnService, monkeypatch: pytest.MonkeyPatch) -> None:
    """``[resumable] enabled = False``: the provider follows the application, under its own key alone."""
    monkeypatch.setenv("AIRFLOW__RESUMABLE__ENABLED", "False")
    operator, tries = make(yarn_service.spark_submit), TaskTries()
    tries.run(operator)
    assert tags_of(yarn_service) == [[]]
    assert (tries.record(operator), tries.store.get("spark_job_id")) == (None, yarn_service.submitted()[0])


def test_an_application_that_yarn_refuses_at_once_is_not_taken_for_none(yarn_service: YarnService) -> None:
    """A queue that doesn't exist: spark-submit fails, the application is there, FAILED, with our tag."""
    tries = TaskTries()
    yarn_service.yarn.fail("submit", "lost_reply")
    with pytest.raises(JobFailed, match="FAILED"):
        tries.run(make(yarn_service.spark_submit, {"state": "FAILED", "final": "FAILED"}))
    tries.run(make(yarn_service.spark_submit))
    assert len(yarn_service.submitted()) == 2


def test_a_spark_submit_that_fails_for_itself_fails_the_try(yarn_service: YarnService) -> None:
    """No application has the tag: the error shows what spark-submit said, and the next try starts one."""
    tries = TaskTries()
    yarn_service.yarn.fail("submit", "unavailable")
    with pytest.raises(Exception, match=r"Error code is: 1(.|\n)*503"):
        tries.run(make(yarn_service.spark_submit))
    tries.run(make(yarn_service.spark_submit))
    assert len(yarn_service.submitted()) == 1


def test_spark_submit_dies_with_its_task_and_what_it_had_submitted_is_found(
    yarn_service: YarnService, yarn_task: Callable[..., YarnTask]
) -> None:
    """SIGKILL while the ResourceManager's answer to the submit is on its way: the tag finds it."""
    ours = yarn_task()
    yarn_service.yarn.fail("submit", "hang_after", seconds=60)
    attempt = ours.start()
    until(lambda: bool(yarn_service.submitted()))
    assert clients(yarn_service)
    attempt.kill()
    until(lambda: not clients(yarn_service))
    assert ours.record["external_id"] is None

    yarn_service.release()
    assert ours.attempt(2) is None
    assert yarn_service.submitted() == [ours.record["external_id"]]


def test_the_id_is_not_believed_before_yarn_has_the_application(
    yarn_service: YarnService, yarn_task: Callable[..., YarnTask]
) -> None:
    """spark-submit prints the id before its submit: a task that dies in between leaves nothing to watch."""
    ours = yarn_task()
    yarn_service.yarn.fail("submit", "hang_before", seconds=3600)
    attempt = ours.start()
    until(lambda: bool(yarn_service.requests("new")) and bool(clients(yarn_service)))
    attempt.kill()
    until(lambda: not clients(yarn_service))
    assert ours.record["phase"] == "intent"
    assert ours.driver is None

    yarn_service.release()
    assert ours.attempt(2) is None
    assert yarn_service.submitted() == [ours.record["external_id"]]
