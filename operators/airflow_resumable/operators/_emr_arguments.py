# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Steps as a Dag gives them, and as they are known once they were added."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import JsonValue


def parsed(steps: Any) -> list[dict[str, Any]]:
    """Return the steps that `steps` was rendered to: a list, or text that spells one.

    Raises:
        ValueError: EMR can't be sent that; names what is wrong.
    """
    given = _literal(steps) if isinstance(steps, str) else steps
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise ValueError(f"steps={str(given)[:80]!r} is not allowed: give a list of one step or more")
    for place, step in enumerate(given):
        if not isinstance(step, Mapping) or not isinstance(step.get("Name"), str):
            raise ValueError(f"steps[{place}]={str(step)[:80]!r} is not allowed: give a dict with a Name")
    return [dict(step) for step in given]


def _literal(text: str) -> Any:
    # The parent takes Python's spelling only; a template file is JSON, which has true and null.
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        try:
            return json.loads(text)
        except ValueError:
            raise ValueError(f"steps={text[:80]!r} is not allowed: it is neither JSON nor Python") from None


def external_id_of(cluster: str, steps: Sequence[str]) -> JsonValue:
    """Return the id under which steps go on record: a step's own id means nothing without its cluster's."""
    return {"job_flow_id": cluster, "step_ids": list(steps)}


def parts(external_id: JsonValue) -> tuple[str, list[str]]:
    """Return the cluster's id and the steps'.

    Raises:
        TypeError: `external_id` is not one of `external_id_of`.
    """
    if not isinstance(external_id, dict) or not isinstance(ids := external_id.get("step_ids"), list):
        raise TypeError(f"{external_id!r} names no steps: it has to hold job_flow_id and step_ids")
    return str(external_id["job_flow_id"]), [str(one) for one in ids]
