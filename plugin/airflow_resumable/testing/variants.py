# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The job protocol, broken on purpose in one place each: what a suite of tests must be able to catch.

They are the variants of section 10 of the protocol. ``with broken("no intent"):`` breaks this process;
a suite that passes all the same proves nothing about that rule.
"""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from airflow_resumable.jobs import decision, kill, service
from airflow_resumable.jobs.adapter import Observation, observe
from airflow_resumable.jobs.ledger import JobLedger
from airflow_resumable.jobs.outcome import Outcome
from airflow_resumable.jobs.policies import ResumePolicy
from airflow_resumable.jobs.submission import Submission
from airflow_resumable.jobs.token import TokenMint

Patch = contextlib.AbstractContextManager[Any]


def _no_intent() -> Patch:
    def intent(self: Submission, step: Any) -> Any:
        attempt = self._attempt
        attempt.record = self._new_record(step.generation, step.token)
        attempt.token = step.token
        return attempt.record

    return mock.patch.object(Submission, "_intent", intent)


def _token_per_attempt() -> Patch:
    intent = Submission._intent

    def changed(self: Submission, step: Any) -> Any:
        return intent(self, dataclasses.replace(step, token=f"r{uuid.uuid4().hex}", same_token=False))

    return mock.patch.object(Submission, "_intent", changed)


def _token_never_rotates() -> Patch:
    token = TokenMint.token
    return mock.patch.object(TokenMint, "token", lambda self, max_tries, generation: token(self, 0, 1))


def _no_lookup() -> Patch:
    decide = decision._with_intent

    def blind(facts: Any, record: Any) -> Any:
        can = dataclasses.replace(facts.can, find_by_token=False)
        return decide(dataclasses.replace(facts, can=can), record)

    return mock.patch.object(decision, "_with_intent", blind)


def _first_match() -> Patch:
    decide = decision._with_intent

    def first(facts: Any, record: Any) -> Any:
        return decide(dataclasses.replace(facts, by_token=facts.by_token and facts.by_token[:1]), record)

    return mock.patch.object(decision, "_with_intent", first)


def _unbounded_stopping() -> Patch:
    seconds = ResumePolicy.seconds

    def endless(self: ResumePolicy, name: str) -> float:
        return 1e9 if name == "stopping_timeout" else seconds(self, name)

    return mock.patch.object(ResumePolicy, "seconds", endless)


def _blind_write() -> Patch:
    return mock.patch.object(JobLedger, "check_owner", JobLedger.read)


def _cancel_on_sigterm() -> Patch:
    return mock.patch.object(kill, "action_for", return_value="cancel")


def _missing_is_resubmit() -> Patch:
    def resubmit(facts: Any, record: Any, what: str) -> Any:
        return decision._submit(facts, record.generation + 1, what)

    return mock.patch.object(decision, "_missing", resubmit)


def _clean_up_first() -> Patch:
    succeed = Outcome.succeed

    def early(self: Outcome, record: Any, raw: Any) -> Any:
        self._clean_up(record.external_id, Observation.SUCCEEDED)
        return succeed(self, record, raw)

    return mock.patch.object(Outcome, "succeed", early)


def _unknown_is_failed() -> Patch:
    def hasty(*args: Any) -> Observation:
        seen = observe(*args)
        return Observation.FAILED if seen is Observation.UNKNOWN else seen

    return mock.patch.object(service, "observe", hasty)


def _always_next_generation() -> Patch:
    def next_one(facts: Any, record: Any) -> Any:
        return decision._submit(facts, record.generation + 1, "broken on purpose")

    return mock.patch.object(decision, "_with_id", next_one)


VARIANTS: dict[str, Callable[[], Patch]] = {
    "no intent": _no_intent,
    "a token per attempt": _token_per_attempt,
    "a token that never rotates": _token_never_rotates,
    "no lookup before a second submit": _no_lookup,
    "lookup that takes the first match": _first_match,
    "unbounded wait on stopping": _unbounded_stopping,
    "blind write without reading the owner": _blind_write,
    "cancel on SIGTERM": _cancel_on_sigterm,
    "not found read as resubmit": _missing_is_resubmit,
    "clean-up before the outcome": _clean_up_first,
    "unknown status read as failed": _unknown_is_failed,
    "generation + 1 on every attempt": _always_next_generation,
}
"""Each variant by the name that section 10 of the protocol gives it."""


@contextlib.contextmanager
def broken(variant: str) -> Iterator[None]:
    """Break this process's protocol for the length of a block.

    Args:
        variant: A key of `VARIANTS`.

    Raises:
        ValueError: There is no such variant; names those there are.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant={variant!r} is not known; use one of {', '.join(VARIANTS)}")
    with VARIANTS[variant]():
        yield
