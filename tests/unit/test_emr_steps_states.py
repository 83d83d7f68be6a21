# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""What the states of EMR's steps mean, what a step's name says, and how far a lookup reads."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.session import get_session  # type: ignore[import-untyped]
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_resumable.jobs.adapter import Observation, observe
from airflow_resumable.jobs.errors import ResumableJobFatal
from airflow_resumable.operators import _emr_states as states
from airflow_resumable.operators._aws_errors import AnswerCutOff
from airflow_resumable.operators._aws_parent import check
from airflow_resumable.operators._emr_arguments import parsed, parts
from airflow_resumable.operators._emr_cluster import MOST_PAGES, EmrCluster
from airflow_resumable.operators._emr_names import LONGEST_NAME, Mark, marked
from airflow_resumable.operators.emr import ResumableEmrAddStepsOperator

TOKEN = "r" + "0123456789abcdef" * 2
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
PAGE = 50


@pytest.fixture(scope="module")
def operator() -> ResumableEmrAddStepsOperator:
    """One operator; it asks nobody here."""
    return ResumableEmrAddStepsOperator(task_id="task", job_flow_id="j-1", retries=2)


def said_of(operator: Any, *seen: str) -> Observation:
    """Return what some steps in these states together are doing."""
    return observe(operator, states.together(seen), operator.get_capabilities())


def test_every_state_of_the_api_is_mapped(operator: ResumableEmrAddStepsOperator) -> None:
    """Read from botocore's model of EMR, so that a state that is added to it fails here."""
    model = get_session().get_service_model("emr")
    seen = {one: said_of(operator, one) for one in model.shape_for("StepState").enum}
    assert seen == {
        "PENDING": Observation.ACTIVE,
        "RUNNING": Observation.ACTIVE,
        "CANCEL_PENDING": Observation.STOPPING,
        "COMPLETED": Observation.SUCCEEDED,
        "CANCELLED": Observation.FAILED,
        "FAILED": Observation.FAILED,
        "INTERRUPTED": Observation.FAILED,
    }


@given(st.text(), st.lists(st.sampled_from(states.ENDED)), st.integers(0, 5))
@example("completed", ["COMPLETED"], 0)
@example("FAILED ", [], 0)
@example("", ["FAILED"], 1)
def test_a_word_never_heard_of_is_no_end(word: str, ends: list[str], place: int) -> None:
    """Whatever EMR may say one day: it is neither failed, and so nothing is added, nor succeeded."""
    subject = ResumableEmrAddStepsOperator(task_id="task", job_flow_id="j-1", retries=2)
    if word in (*states.ENDED, states.ADDED, states.CLUSTER_GONE):
        return
    seen = [*ends[:place], word, *ends[place:]]
    assert said_of(subject, *seen).is_live


@given(st.lists(st.sampled_from(("PENDING", "RUNNING", "CANCEL_PENDING", *states.ENDED)), min_size=1))
def test_steps_have_failed_only_when_all_have_ended(seen: list[str]) -> None:
    """While one is alive, the next try could add it a second time."""
    subject = ResumableEmrAddStepsOperator(task_id="task", job_flow_id="j-1", retries=2)
    alive = any(one not in states.ENDED for one in seen)
    said = said_of(subject, *seen)
    assert said.is_live is alive
    if not alive:
        assert (said is Observation.SUCCEEDED) is (set(seen) == {"COMPLETED"})


@given(st.text(max_size=400), st.integers(1, 256))
def test_a_mark_is_read_back_from_any_name(name: str, of: int) -> None:
    """And the name stays within what EMR takes, with as much of the user's own as there is room for."""
    mark = Mark(TOKEN, of, of, "0a1b2c")
    marked_name = mark.put_on(name)
    assert Mark.read(marked_name) == mark
    assert len(marked_name) <= LONGEST_NAME
    assert marked_name.startswith(name[:180])


def test_steps_are_marked_in_their_order() -> None:
    """The given ones are left as they are."""
    given_steps = [{"Name": "a", "HadoopJarStep": {}}, {"Name": "b", "HadoopJarStep": {}}]
    names = [step["Name"] for step in marked(given_steps, TOKEN, "ff")]
    assert names == [f"a [{TOKEN} 1/2 ff]", f"b [{TOKEN} 2/2 ff]"]
    assert [step["Name"] for step in given_steps] == ["a", "b"]


STEPS = [{"Name": "a", "HadoopJarStep": {"Jar": "x", "Args": ["1"]}}]


@pytest.mark.parametrize(
    "given_steps",
    [STEPS, tuple(STEPS), repr(STEPS), json.dumps(STEPS)],
    ids=["list", "tuple", "text", "JSON"],
)
def test_steps_may_be_spelled_in_several_ways(given_steps: Any) -> None:
    """A template or a file that ends in .json renders to text; JSON's own words are understood too."""
    assert parsed(given_steps) == STEPS
    assert parsed('[{"Name": "a", "HadoopJarStep": null}]') == [{"Name": "a", "HadoopJarStep": None}]


@pytest.mark.parametrize(
    ("given_steps", "message"),
    [
        ([], r"steps='\[\]' is not allowed: give a list of one step or more"),
        ("not a list", "it is neither JSON nor Python"),
        ({"Name": "a"}, "give a list of one step or more"),
        ([{"HadoopJarStep": {}}], r"steps\[0\].*give a dict with a Name"),
        (["a"], r"steps\[0\]='a' is not allowed"),
    ],
)
def test_what_is_no_list_of_steps_is_refused(given_steps: Any, message: str) -> None:
    """The error names the argument, the value and what is allowed."""
    with pytest.raises(ValueError, match=message):
        parsed(given_steps)


def test_an_id_of_another_shape_is_refused() -> None:
    """A record that something else has written."""
    with pytest.raises(TypeError, match="has to hold job_flow_id and step_ids"):
        parts(["s-1"])


class History:
    """A cluster's list of steps, newest first, in pages; it counts how often it is read."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self.steps, self.reads = steps, 0

    def list_steps(self, *, ClusterId: str, Marker: str = "0") -> dict[str, Any]:
        """Answer with one page."""
        self.reads += 1
        start = int(Marker)
        more = {"Marker": str(start + PAGE)} if start + PAGE < len(self.steps) else {}
        return {"Steps": self.steps[start : start + PAGE], **more}


def listed(number: int, name: str, age: timedelta, state: str = "COMPLETED") -> dict[str, Any]:
    """Return a step as EMR lists it."""
    status = {"State": state, "Timeline": {"CreationDateTime": NOW - age}}
    return {"Id": f"s-{number}", "Name": name, "Status": status}


def test_a_history_of_ten_thousand_steps_is_not_read() -> None:
    """Only back to the intent: the newest page holds what is older."""
    others = [listed(number, "other", timedelta(hours=1, seconds=number)) for number in range(10_000)]
    history = History([listed(-1, f"mine [{TOKEN} 1/1 ab]", timedelta(seconds=5)), *others])
    (found,) = EmrCluster(history, "j-1").marked(lambda mark: mark.token == TOKEN, NOW - timedelta(minutes=5))
    assert (found.ids, found.state, history.reads) == (("s--1",), "COMPLETED", 1)


def test_a_list_without_an_end_is_an_error() -> None:
    """Never read as "there are none"."""
    others = [listed(number, "other", timedelta(0)) for number in range(PAGE * MOST_PAGES + 1)]
    history = History(others)
    with pytest.raises(ResumableJobFatal, match="nobody can say"):
        EmrCluster(history, "j-1").marked(lambda mark: True, NOW - timedelta(minutes=5))
    assert history.reads == MOST_PAGES


def test_steps_of_two_requests_are_told_apart() -> None:
    """The lowest start comes first, in whatever order they are listed; and steps stand in their own order."""
    names = [f"{name} [{TOKEN} {place}/2 {call}]" for call, place, name in
             (("bb", 2, "y"), ("bb", 1, "x"), ("aa", 2, "y"), ("aa", 1, "x"))]  # fmt: skip
    ages = [timedelta(seconds=one) for one in (1, 1, 2, 2)]
    steps = [listed(number, name, age) for number, (name, age) in enumerate(zip(names, ages, strict=True))]
    for order in itertools.permutations(steps):
        found = EmrCluster(History(list(order)), "j-1").marked(lambda mark: True, NOW - timedelta(minutes=5))
        assert [one.ids for one in found] == [("s-3", "s-2"), ("s-1", "s-0")]


def test_a_request_that_is_listed_in_part_is_asked_for_again() -> None:
    """A part taken for the whole would lose the others; "none" would add them again."""
    history = History([listed(1, f"x [{TOKEN} 1/2 aa]", timedelta(0))])
    with pytest.raises(AnswerCutOff, match=r"of 2 steps .*, 1 are listed so far"):
        EmrCluster(history, "j-1").marked(lambda mark: True, NOW - timedelta(minutes=5))


def test_a_provider_that_lacks_something_is_named() -> None:
    """When the operator is imported, and with the versions that have it."""

    class EmrAddStepsOperator:
        """As of a version that has no hook."""

    with pytest.raises(ImportError, match=r"providers-amazon has no hook, which .*tested with 9\.39\.0"):
        check(EmrAddStepsOperator, ("hook",))
