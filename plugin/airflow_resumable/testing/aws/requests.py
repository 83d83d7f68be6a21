# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""Which AWS action a request is and what it asks for, read by botocore's own models."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

SERVICES = ("emr", "emr-serverless", "emr-containers")
_TARGET = "ElasticMapReduce."


@dataclass(frozen=True, slots=True)
class Call:
    """A request to one of `SERVICES`.

    Attributes:
        service: The boto3 client's name.
        action: Like ``StartJobRun``.
        parameters: By the names that boto3 gives them; timestamps as they were sent.
    """

    service: str
    action: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Route:
    method: str
    path: re.Pattern[str]
    service: str
    action: str
    uri: dict[str, str]
    query: dict[str, tuple[str, bool]]


def decode(method: str, target: str, headers: Mapping[str, str], body: bytes) -> Call | None:
    """Return what a request is; None when it belongs to another service.

    Args:
        method: The HTTP method.
        target: Path and query.
        headers: By lower-case name.
        body: The whole of it.
    """
    if (wanted := headers.get("x-amz-target", "")).startswith(_TARGET):
        return Call("emr", wanted.removeprefix(_TARGET), _json(body))
    parts = urlsplit(target)
    for route in _routes():
        if route.method == method and (found := route.path.fullmatch(parts.path)):
            parameters = _json(body)
            for name, value in found.groupdict().items():
                parameters[route.uri[name]] = unquote(value)
            for name, values in parse_qs(parts.query).items():
                member, many = route.query.get(name, (name, False))
                parameters[member] = values if many else values[-1]
            return Call(route.service, route.action, parameters)
    return None


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body) if body else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@functools.cache
def _routes() -> tuple[_Route, ...]:
    import botocore.session  # type: ignore[import-untyped]

    session = botocore.session.get_session()
    routes = []
    for service in SERVICES[1:]:
        model = session.get_service_model(service)
        for action in model.operation_names:
            operation = model.operation_model(action)
            uri, query = {}, {}
            for member, shape in operation.input_shape.members.items() if operation.input_shape else ():
                place, name = shape.serialization.get("location"), shape.serialization.get("name", member)
                if place == "uri":
                    uri[name] = member
                elif place == "querystring":
                    query[name] = (member, shape.type_name == "list")
            pattern = re.sub(r"\{(\w+)\+?\}", r"(?P<\1>[^/]+)", operation.http["requestUri"])
            routes.append(_Route(operation.http["method"], re.compile(pattern), service, action, uri, query))
    return tuple(routes)
