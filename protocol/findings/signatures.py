"""Signatures: where a tool's schema admits what the code behind it does not take (SPEC R4.1, R4.2).

A tool that the context declares has a schema of its own, and its activity a signature. Spoken of are the names of
parameters, and values that are not converted on the way in: `"5"` may stand for a number, a list never does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from protocol.calls import Call
from protocol.errors import pointer, shortened
from protocol.references import Expression
from protocol.spelling import Speller
from protocol.tools import Executor

from .cases import Shape, shape_at
from .finding import Finding

Schemas = Mapping[str, Mapping[str, Any]]
Place = Sequence[str | int]

_NUMBERS: Final = frozenset({"integer", "fraction"})


def signature_findings(calls: Iterable[Call], places: Sequence[Place], schemas: Schemas) -> Iterator[Finding]:
    """What activities do not take. `schemas` are those of their signatures, by name; `places` those of the calls."""
    for call in calls:
        schema = schemas.get(call.runner.name) if call.runner.executor is Executor.ACTIVITY else None
        for at, fault in _faults(call, schema) if schema is not None else ():
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) does not fit the signature of its activity {call.runner.name!r}, "
                f"which {fault}; change the call, the tool or the function",
                (call.index,),
                pointer(*places[call.index], *at),
            )


def _faults(call: Call, schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in call.parameters:
            yield (), f"needs {name!r}"
    names = Speller(known)
    for name, value in call.standing_in().items():
        if name.startswith("_"):
            continue
        if name in known:
            shape = shape_at(dict(schema), (name,))
            if not _converts(value, shape):
                yield (name,), f"does not take {shortened(repr(call.raw[name]))} as {name!r}"
        elif schema.get("additionalProperties") is False:
            yield (name,), f"takes no {name!r}{names.hint(name)}"


def _converts(value: Any, shape: Shape) -> bool:
    """Whether a value may pass for one of a shape, with the conversions that activities are called with."""
    types = shape.types
    match value:
        case Expression():
            return True
        case None:
            return "null" in types
        case bool():
            return bool(types & {"boolean", *_NUMBERS})
        case int() | float():
            # a date, a duration or the like can be a number as well
            return bool(types & {"boolean", *_NUMBERS}) or ("string" in types and shape.says("format"))
        case str():
            return bool(types & {"string", "boolean"}) or (bool(types & _NUMBERS) and _is_number(value))
        case list():
            return "array" in types
    return "object" in types


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
