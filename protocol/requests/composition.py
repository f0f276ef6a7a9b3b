"""Composition: the one schema of everything that a model may answer (SPEC R12.3).

Its properties stand in the order in which a model writes: what advises comes before what it advises on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from acts_celery.protocol.schemas.addresses import normalized

from .asides import compose_asides
from .call_schemas import compose_call
from .request import Request
from .widening import Definitions, Widening, closed


@lru_cache(maxsize=64)
def compose(request: Request) -> dict[str, Any]:
    """The composed schema: a closed object of `calls` and `output`, all of it required. It hangs on the request alone,
    so it is the same in every tick, and made once.
    """
    definitions = Definitions()
    return closed(dict(_properties(request, definitions)), definitions)


def properties_of_calls(schema: Mapping[str, Any]) -> frozenset[str]:
    """The properties that calls of any tool may have, by a composed schema."""
    calls = schema["properties"]["calls"].get("items", {}).get("anyOf", ())
    return frozenset(name for call in calls for name in call["properties"])


def _properties(request: Request, definitions: Definitions) -> Iterator[tuple[str, Any]]:
    yield from compose_asides(request, definitions)
    calls = [compose_call(request, tool, definitions) for tool in request.tools.values()]
    yield "calls", {"type": "array", "items": {"anyOf": calls}} if calls else {"type": "array", "maxItems": 0}
    yield "output", _output(request, definitions)


def _output(request: Request, definitions: Definitions) -> dict[str, Any]:
    """The request's schema, in which references may stand for values (SPEC R4.9), or null: not yet."""
    if request.schema is False:  # there is none: see `read_request`
        return {"type": "null"}
    document = normalized(request.schema)
    schema = Widening("output", document, definitions).value(document)
    branches = schema["anyOf"] if isinstance(schema, dict) and schema.keys() == {"anyOf"} else [schema]
    return {"anyOf": [*branches, *([] if {"type": "null"} in branches else [{"type": "null"}])]}
