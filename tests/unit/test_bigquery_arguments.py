# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The BigQuery operator's arguments: the parent's, each with its meaning or refused with a reason."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.google.cloud.operators.bigquery import BigQueryInsertJobOperator
from airflow.sdk import Context

from airflow_resumable.jobs.errors import ResumableJobFatal
from airflow_resumable.jobs.token import TokenMint
from airflow_resumable.operators import _bigquery_parent as parent
from airflow_resumable.operators._bigquery_conflict import Verdict, judge
from airflow_resumable.operators._bigquery_jobs import TOKEN_LABEL, Place
from airflow_resumable.operators._bigquery_links import showing
from airflow_resumable.operators._bigquery_pause import Pause
from airflow_resumable.operators._bigquery_plan import Plan, stock_prefix
from airflow_resumable.operators._bigquery_search import MOST_LOOKS, Search
from airflow_resumable.operators.bigquery import ResumableBigQueryInsertJobOperator
from tests.bigquery_service import SUCCEEDS, defaults

TOKEN = "r" + "0123456789abcdef" * 2
SAME_FAMILY = "r" + "0123456789abcdef" + "f" * 16
ANOTHERS = "r" + "f" * 32
PLACE = Place("proj", "US")


def operator(**arguments: Any) -> ResumableBigQueryInsertJobOperator:
    return ResumableBigQueryInsertJobOperator(**{**defaults(SUCCEEDS), **arguments})


def test_what_the_parent_shows_is_kept() -> None:
    """Every argument, template field and link."""
    ours, theirs = ResumableBigQueryInsertJobOperator, BigQueryInsertJobOperator
    for name in (
        "template_fields",
        "template_ext",
        "template_fields_renderers",
        "ui_color",
        "external_id_key",
    ):
        assert getattr(ours, name) == getattr(theirs, name)
    assert [type(link) for link in ours.operator_extra_links] == [
        type(link) for link in theirs.operator_extra_links
    ]
    accepted = dict.fromkeys(inspect.signature(theirs.__init__).parameters)
    for name in ("self", "kwargs"):
        accepted.pop(name)
    values = {
        **defaults(SUCCEEDS),
        "project_id": "p",
        "job_id": "mine",
        "force_rerun": False,
        "reattach_states": {"RUNNING"},
        "impersonation_chain": ["a", "b"],
        "cancel_on_kill": False,
        "result_retry": theirs(**defaults(SUCCEEDS)).result_retry,
        "result_timeout": 3.0,
        "deferrable": True,
        "durable": True,
    }
    assert set(accepted) <= set(values)
    one, other = ours(**values), theirs(**values)
    assert {name: getattr(one, name) for name in accepted} == {
        name: getattr(other, name) for name in accepted
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"reattach_states": "RUNNING"}, "reattach_states='RUNNING' is not allowed; use a set of strings"),
        ({"poll_interval": 0}, "poll_interval=0 is not allowed; use a number of seconds, more than 0"),
        ({"poll_interval": "4"}, "poll_interval='4' is not allowed"),
        ({"result_timeout": -1}, "result_timeout=-1 is not allowed"),
        (
            {"job_id": "a job"},
            "job_id='a job' is not allowed; use letters, digits, '_' and '-', 990 characters",
        ),
        ({"job_id": "a" * 991}, "990 characters at most"),
        ({"durable": "yes"}, "durable='yes' is not allowed"),
        ({"resume_policy": {"on_clear": "again"}}, "on_clear='again' is not allowed"),
    ],
)
def test_a_wrong_argument_is_refused_at_parse_time(arguments: dict[str, Any], said: str) -> None:
    """Naming the argument, the value and what is allowed."""
    with pytest.raises((TypeError, ValueError)) as refused:
        operator(**arguments)
    assert said in str(refused.value)


def test_a_template_is_not_judged_before_it_is_rendered() -> None:
    """It may become anything."""
    operator(job_id="{{ ds }}")


def test_jobs_of_no_attempt_are_not_looked_for() -> None:
    """Nobody can say which ids they have, and "none" would be a guess."""
    with pytest.raises(ResumableJobFatal, match=r"family abc .* not in one"):
        operator().find_jobs_by_family("abc", datetime.now(UTC), Context())


class _NothingElse:
    """Has a job under every id, so that a search finds no end."""

    def __init__(self) -> None:
        self.asked = 0

    def get(self, job_id: str, place: Place) -> Any:
        self.asked += 1
        return SimpleNamespace(
            state="DONE", error_result=None, labels={}, project=place.project, location=place.location
        )


def test_a_search_has_an_end() -> None:
    """It says that it isn't complete, rather than find less."""
    client: Any = _NothingElse()
    mint = TokenMint("here", "dag", "run", "task", -1, None)
    with pytest.raises(ResumableJobFatal, match="can't all be found"):
        Search(client, Plan("mine", PLACE), PLACE).by_family(mint, range(2))
    assert client.asked == MOST_LOOKS


def test_an_installed_provider_that_lacks_something_is_named() -> None:
    """With what is missing and the versions that have it."""
    with pytest.raises(ImportError, match=r"BigQueryInsertJobOperator .* has no _made_up, .* 22\.8\.0"):
        parent.check(BigQueryInsertJobOperator, ("_made_up",))


def test_cancel_on_kill_keeps_its_meaning() -> None:
    """False: neither a user's stop nor a final failure cancels; what the policy itself says comes first."""
    assert operator().resumable_policy().on_user_stop == "cancel"
    kept = operator(cancel_on_kill=False).resumable_policy()
    assert (kept.on_user_stop, kept.on_final_failure, kept.on_clear) == ("keep", "keep", "resubmit")
    said = operator(cancel_on_kill=False, resume_policy={"on_user_stop": "cancel"}).resumable_policy()
    assert (said.on_user_stop, said.on_final_failure) == ("cancel", "keep")


def test_a_task_that_the_provider_has_deferred_is_answered_as_by_the_provider() -> None:
    """Its Dag was edited while the provider's own trigger watched the job."""
    event = {"status": "success", "message": "done", "job_id": "theirs"}
    assert operator().execute_complete({}, event) == "theirs"
    with pytest.raises(Exception, match="it failed"):
        operator().execute_complete({}, {"status": "error", "message": "it failed"})


# --- ids ---


def test_an_id_is_the_providers_with_the_token_at_its_end() -> None:
    """Whatever letters a Dag's name has, BigQuery takes it."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    prefix = stock_prefix("my-dag.1", "group.täsk", moment)
    assert prefix == "airflow_my_dag_1_group_t_sk_2026_01_02T03_04_05_00_00"
    assert Plan(prefix, PLACE).named(TOKEN) == f"{prefix}_{TOKEN}"


def test_a_plan_comes_back_from_the_record() -> None:
    """And what another version or operator has put there is none."""
    plan = Plan("prefix", Place("proj", None), exact=True)
    assert Plan.of(plan.recorded) == plan
    assert Plan.of(None) is None
    assert Plan.of({"project": "proj"}) is None


# --- whose a job is ---


def taken(state: str, reason: str | None = None, label: str | None = None) -> Any:
    return SimpleNamespace(
        job_id="taken",
        state=state,
        error_result={"reason": reason} if reason else None,
        labels={TOKEN_LABEL: label} if label else None,
    )


@pytest.mark.parametrize("first", [True, False], ids=["A1", "A2"])
@pytest.mark.parametrize(
    "job", [taken("PENDING"), taken("RUNNING"), taken("DONE"), taken("DONE", "invalid")], ids=str
)
def test_a_tasks_own_job_is_its_own_in_any_state(job: Any, first: bool) -> None:
    """It carries the token."""
    job.labels = {TOKEN_LABEL: TOKEN}
    assert judge(job, TOKEN, set(), first_try=first) is Verdict.ADOPT


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_live_job_of_before_a_clear_is_not_run_beside(state: str) -> None:
    """Its record is gone, its label tells whose it was; the next try looks again."""
    with pytest.raises(Exception, match="before it was cleared, is still") as refused:
        judge(taken(state, label=SAME_FAMILY), TOKEN, {state}, first_try=False)
    assert type(refused.value).__name__ == "ResumableJobError"


@pytest.mark.parametrize("reason", [None, "invalid"])
def test_an_ended_job_of_before_a_clear_is_run_again(reason: str | None) -> None:
    """Under an id of its own."""
    job = taken("DONE", reason, SAME_FAMILY)
    assert judge(job, TOKEN, set(), first_try=False) is Verdict.OWN_ID


@pytest.mark.parametrize("label", [None, ANOTHERS, "no token"])
def test_a_label_that_is_no_token_of_this_task_is_anothers(label: str | None) -> None:
    """So the provider's rules hold."""
    with pytest.raises(Exception, match="which this task has not started, is DONE"):
        judge(taken("DONE", label=label), TOKEN, {"DONE"}, first_try=True)


# --- links ---


def test_a_link_is_a_url_from_the_start() -> None:
    """What the provider pushes for its links is a dict until the task has ended; other values stay."""
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(try_number=3, xcom_push=lambda key, value: pushed.update({key: value}))
    context = showing({"ti": ti}, BigQueryInsertJobOperator.operator_extra_links)  # type: ignore[typeddict-item]
    context["ti"].xcom_push("bigquery_job_detail", {"project_id": "p", "location": "EU", "job_id": "j"})
    context["ti"].xcom_push("job_id_path", "p:EU:j")
    assert pushed["bigquery_job_detail"].startswith("https://console.cloud.google.com/bigquery?project=p&")
    assert pushed["bigquery_job_detail"].endswith("!1sp!2sj!3sEU")
    assert pushed["job_id_path"] == "p:EU:j"
    assert context["ti"].try_number == 3


# --- how often it asks ---


class Clock:
    """Time that passes only when somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        for name, stand_in in (("monotonic", lambda: self.now), ("sleep", self.sleep)):
            monkeypatch.setattr(f"airflow_resumable.operators._bigquery_pause.time.{name}", stand_in)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def looks_a_minute(self, answer: Any, *, is_query: bool) -> float:
        """Return the looks of an hour, by the minute, when each request is answered by `answer`."""
        pause, looks = Pause("job", PLACE, 30.0), 0
        while self.now < 3600:
            pause(SimpleNamespace(await_query=answer), is_query=is_query)  # type: ignore[arg-type]
            looks += 1
        return looks / 60


def test_a_query_that_runs_is_asked_for_twice_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """By two requests each time: four a minute, where the provider sends twelve."""
    clock = Clock(monkeypatch)

    def waits(job_id: str, place: Place, seconds: float) -> bool:
        clock.sleep(seconds)
        return False

    assert clock.looks_a_minute(waits, is_query=True) == pytest.approx(2, abs=0.1)


def test_any_other_job_is_asked_for_three_times_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the long run, as by Google's own client, whose pauses grow to twenty seconds as well."""
    clock = Clock(monkeypatch)
    assert clock.looks_a_minute(None, is_query=False) <= 3.2


@pytest.mark.parametrize("answer", ["complete", "incomplete", "an error"])
def test_answers_that_come_early_are_no_reason_to_hurry(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that is said to have ended and runs on, or can't be waited for, is looked at as any job is."""
    clock = Clock(monkeypatch)

    def at_once(*_: Any) -> bool:
        if answer == "an error":
            raise PermissionError
        return answer == "complete"

    assert clock.looks_a_minute(at_once, is_query=True) <= 3.3


def test_a_query_that_has_ended_is_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Well or not: nothing is waited for after the first answer."""
    clock = Clock(monkeypatch)
    Pause("job", PLACE, 30.0)(SimpleNamespace(await_query=lambda *_: True), is_query=True)  # type: ignore[arg-type]
    assert clock.now == 0


def test_a_task_without_tries_left_is_told_so() -> None:
    """As by every durable operator."""
    with pytest.warns(UserWarning, match="durable=True with retries=0"):
        operator(retries=0, retry_delay=timedelta(seconds=1))
