"""Misfits: what is there or promised, and can never be what its place takes (SPEC R4.1, R4.6).

A parameter whose value only the context can give is held against its tool's schema as it stands. A result is held
against the schema of the kind it is written to. Calls told of here are sure to fail once they run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from .admission import shape_at
from .calls import Call
from .effects import result_schema
from .errors import Conflict
from .findings import Finding
from .fitting import misfit
from .graph import Writers
from .lanes import Lane
from .operations import Method
from .paths import MISSING
from .promises import parameter_shape
from .references import Expression, Reference
from .resolution import Fold
from .tools import Tool

MOST_HELD: Final = 20_000
"""So many calls are held against values of the context, over all instances."""


def unfit_values(lane: Lane, writers: Writers, fold: Fold, tools: Mapping[str, Tool]) -> Iterator[Finding]:
    """The parameters that read a value of the context which their tool does not admit."""
    for call in lane.calls:
        for at, expression in call.reads if not call.is_thought else ():
            place = _given_place(call, expression, writers, fold)
            wanted = parameter_shape(call, at, tools) if place is not None else None
            if place is None or wanted is None:
                continue
            try:
                problems = wanted.problems(fold.value(place))
            except Conflict:  # told as such
                continue
            if problems:
                where = f" in instance {lane.instance!r}" if lane.instance is not None else ""
                yield Finding(
                    "warning",
                    f"call {call.index} ({call.tool}) reads {place} at {at}, where the context holds{where} what does "
                    f"not fit: {problems[0].message}; change the value, the path or the schema",
                    (call.index,),
                )


def unfit_results(lane: Lane, fold: Fold, tools: Mapping[str, Tool]) -> Iterator[Finding]:
    """The calls whose result is never what the schema of its kind admits at the place."""
    for call in lane.calls:
        if call.output is None or len(call.output.alternatives) > 1 or call.method is not Method.SET:
            continue
        given = shape_at(result_schema(call, tools))
        for place in call.output.references:
            schema = fold.schema(place.kind)
            if schema is MISSING or not place.path:
                continue
            wanted = shape_at(schema, place.path)
            why = "it admits nothing there" if wanted.is_impossible else misfit(given, wanted)
            if why:
                yield Finding(
                    "warning",
                    f"call {call.index} ({call.tool}) writes to {place} what the schema of {place.kind} forbids: "
                    f"{why}; change the path, or one of the schemas",
                    (call.index,),
                )


def _given_place(call: Call, expression: Expression, writers: Writers, fold: Fold) -> Reference | None:
    """The place that an expression is sure to take its value from, where no other call has a hand in it."""
    group = expression.alternatives[0]
    if any(writers.has_other(place, than=call.index) for place in group) or not all(map(fold.exists, group)):
        return None
    return group[-1]
