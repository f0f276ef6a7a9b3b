"""Elements: a call with `_each` is carried out once for each element of the lists it is given (SPEC R4.10).

An element is numbered among the calls of its lane like a call of its own, beyond all calls: claims, leases, tokens and
results name it by that number as they name a call by its index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.language.paths import type_name
from acts_celery.protocol.schemas import Schema, excerpt

from .call import Call
from .tools import Tool

_SPAN: Final = 10_000_000
"""More than a run has calls, or a call elements; its square has no more digits than a script's numbers keep, 14."""


def element_index(call: int, element: int) -> int:
    """The number of an element (from 0) of a call."""
    return (call + 1) * _SPAN + element


def call_of(index: int) -> int:
    """The call that an index means, or whose element it numbers."""
    return index // _SPAN - 1 if index >= _SPAN else index


def element_of(index: int) -> int | None:
    """Which element (from 0) of its call an index numbers; None where it is a call's."""
    return index % _SPAN if index >= _SPAN else None


def elements_of(call: Call, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each element is carried out with, from resolved parameters without `list_problems`."""
    lists = zip(*(parameters[name] for name in call.each), strict=True)
    return [{**parameters, **dict(zip(call.each, values, strict=True))} for values in lists]


def list_problems(call: Call, parameters: Mapping[str, Any]) -> Iterator[Problem]:
    """What keeps resolved parameters from having elements: all lists of a call must be equally long."""
    first = parameters.get(call.each[0])
    for name in call.each:
        value = parameters.get(name)
        if not isinstance(value, list):
            yield Problem(pointer(name), f"_each takes a list, and this is {type_name(value)}")
        elif isinstance(first, list) and len(value) != len(first):
            text = f"_each takes lists of one length: {len(value)} here, {len(first)} at {pointer(call.each[0])}"
            yield Problem(pointer(name), text)


def list_schema(schema: Schema, *, with_null: bool = True) -> Schema:
    """The schema of lists of what a schema admits; null stands for an element that has failed."""
    items = {"anyOf": [schema, {"type": "null"}]} if with_null else schema
    return excerpt({"type": "array", "items": items}, schema)


def parameter_problems(call: Call, parameters: Mapping[str, Any], tool: Tool) -> Iterator[Problem]:
    """What a tool's schema says against resolved parameters (SPEC R4.1); of a call with `_each`, against those of each
    element.
    """
    if call.each and (unfit := list(list_problems(call, parameters))):
        yield from unfit
        return
    for one in elements_of(call, parameters) if call.each else [parameters]:
        yield from tool.problems(call.with_parameters(one))
