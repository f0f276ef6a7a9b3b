"""Misfits: what is there or promised, and can never be what its place takes (SPEC R4.1, R4.6).

A parameter whose value only the context can give is held against what its tool and its activity admit. A result is held
against the schema of the kind it is written to. Calls told of here are sure to fail once they run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from protocol.calls.call import Call
from protocol.language.errors import Conflict
from protocol.language.paths import MISSING
from protocol.language.references import Expression, Reference
from protocol.schemas import Schema
from protocol.state.operations import Method

from .cases import Shape
from .demands import parameter_at
from .effects import source_of
from .finding import FAILURES, Finding
from .fitting import misfit
from .memory import Memory
from .sight import Sight
from .types import ALL_TYPES, json_types

_TAKEN: Final = {
    Method.ASSIGN: frozenset({"object"}),
    Method.CONCAT: frozenset({"array", "string"}),
}
"""The types of results that a method takes; the others take any."""


def unfit_values(sight: Sight) -> Iterator[Finding]:
    """The parameters that read a value of the context which their tool, or its activity, does not admit."""
    for call in sight.lane.calls:
        for at, expression in call.reads if not call.is_thought else ():
            place = _given_place(call, expression, sight)
            demands = sight.memory.demands(parameter_at(call, at)) if place is not None else ()
            if place is None or not demands:
                continue
            try:
                value = sight.fold.value(place)
            except Conflict:  # told as such
                continue
            unmet = next(((demand, problem) for demand in demands for problem in demand.problems(value)), None)
            if unmet is not None:
                demand, problem = unmet
                yield Finding(
                    "warning",
                    f"call {call.index} ({call.tool}) reads {place} at {at}, where the context holds what does "
                    f"not fit{demand.whose}: {problem.message}; change the value, the path or the schema",
                    (call.index,),
                    lost=call.index,
                )


def unfit_results(sight: Sight) -> Iterator[Finding]:
    """The calls whose result their method cannot take, or is never what the schema of its kind admits at the place."""
    for call in sight.lane.calls:
        if call.output is None or len(call.output.alternatives) > 1:
            continue
        given = sight.memory.result(call)
        if not given.is_impossible and not given.types & _TAKEN.get(call.method, ALL_TYPES):
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) can never write its result by {call.method}, which takes "
                f"{' or '.join(json_types(_TAKEN[call.method]))}: it gives {' or '.join(json_types(given.types))}; "
                "change the method, or the schema",
                (call.index,),
                lost=call.index,
            )
            continue
        for place in call.output.references:
            schema = sight.fold.schema(place.kind)
            is_known = schema is not MISSING and place.kind != FAILURES
            why = _refusal(call, place, schema, sight.memory) if is_known else None
            if why:
                yield Finding(
                    "warning",
                    f"call {call.index} ({call.tool}) writes to {place} what the schema of {place.kind} forbids: "
                    f"{why}; change the path, or one of the schemas",
                    (call.index,),
                    lost=call.index,
                )


def _refusal(call: Call, place: Reference, schema: Schema, memory: Memory) -> str | None:
    """Why a kind's schema never admits a result: the same in all lanes that have the schema."""
    key = ("refusal", source_of(call), call.method, place, id(schema))
    return memory.once(key, _why_refused, call.method, memory.result(call), place, memory.shape(schema))


def _why_refused(method: Method, given: Shape, place: Reference, schema: Shape) -> str | None:
    """Why it never does, by what is judged of a value while more can still come (see `growth`)."""
    *above, wanted = accumulate(place.path, Shape.below, initial=schema)
    growing = above if method is Method.SET else [*above, wanted]
    if any(shape.says("const", "enum") for shape in growing):
        return None  # what can still grow may come to be one of these
    if wanted.is_impossible:
        return "it admits nothing there" if place.path else None
    match method:
        case Method.SET:
            return misfit(given, wanted) if place.path else None
        case Method.PUSH:
            return _element_refusal(given, wanted)
        case Method.CONCAT:
            return _type_refusal(given.types & _TAKEN[method], wanted)
        case Method.ASSIGN:
            return _type_refusal(_TAKEN[method], wanted) or _property_refusal(given.only("object"), wanted)
    return _type_refusal(given.types, wanted)


def _type_refusal(types: frozenset[str], wanted: Shape) -> str | None:
    if types & wanted.types:
        return None
    return f"{' or '.join(json_types(types))} is not {' or '.join(json_types(wanted.types))}"


def _element_refusal(given: Shape, wanted: Shape) -> str | None:
    """Which element it is, nobody can tell: a schema that speaks of the first ones apart is taken to admit it."""
    why = _type_refusal(frozenset({"array"}), wanted)
    lists = wanted.only("array")
    if why is not None or lists.says("prefixItems"):
        return why
    element = lists.below(0)
    return "it admits no element there" if element.is_impossible else misfit(given, element)


def _property_refusal(given: Shape, wanted: Shape) -> str | None:
    objects = wanted.only("object")
    for key in sorted(given.required):
        part = objects.below(key)
        why = "is not admitted" if part.is_impossible else misfit(given.below(key), part)
        if why is not None:
            return f"in {key!r}, it {why}" if part.is_impossible else f"in {key!r}, {why}"
    return None


def _given_place(call: Call, expression: Expression, sight: Sight) -> Reference | None:
    """The place that an expression is sure to take its value from, where no other call has a hand in it."""
    group = expression.alternatives[0]
    if any(place.kind == FAILURES for place in group):
        return None
    if any(sight.writers.has_other(place, than=call.index) for place in group) or not all(
        map(sight.fold.exists, group)
    ):
        return None
    return group[-1]
