"""Promises: where what a call gives can never be what its reader takes (SPEC R4.1, R4.6).

The result of a call is held against the parameter that reads it: `_output` of the one tool against the schema of the
other, at that path. Spoken of is only a reader that can get its value from nowhere else: everything that writes there
comes before it, replaces what was there, and misfits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .admission import Shape, shape_at
from .calls import Call
from .errors import segments
from .findings import Finding
from .fitting import misfit
from .graph import Holds, Writers
from .lanes import Lane
from .operations import Method
from .paths import MISSING, lookup
from .references import Path, Reference
from .tools import Tool

_MOST_WRITERS = 8


def promise_findings(
    lane: Lane, writers: Writers, holds: Holds, calls: Mapping[int, Call], tools: Mapping[str, Tool]
) -> Iterator[Finding]:
    """What the calls of a lane read and can never use. `calls` holds those the lane sees, the global ones included."""
    for call in lane.calls:
        if call.is_thought:
            continue
        for at, expression in call.reads:
            wanted = parameter_shape(call, at, tools)
            for group in expression.alternatives:
                for place in group:
                    # Of several places joined by && the last gives the value; the others need only be there.
                    taken = wanted if place is group[-1] else None
                    yield from _findings(
                        call, at, place, taken, _producers(lane, call, place, writers, calls), holds, tools
                    )


def result_shape(writer: Call, path: Path, tools: Mapping[str, Tool]) -> Shape | None:
    """What a call promises at a path inside its result."""
    if writer.given is not MISSING:
        value = lookup(writer.given, path)
        return shape_at(False if value is MISSING else {"const": value})
    tool = tools.get(writer.tool)
    return shape_at(tool.output_schema, path) if tool is not None and tool.output_schema is not None else None


def parameter_shape(call: Call, at: str, tools: Mapping[str, Tool]) -> Shape | None:
    """What the tool of a call takes at the place of an expression."""
    tool = tools.get(call.tool)
    if tool is None:
        return None
    value: Any = call.raw
    path: Path = ()
    for segment in segments(at):
        key = int(segment) if isinstance(value, list) else segment
        value, path = value[key], (*path, key)
    return shape_at(tool.compiled.schema, path)


def _findings(
    call: Call,
    at: str,
    place: Reference,
    wanted: Shape | None,
    producers: tuple[tuple[Call, Reference], ...],
    holds: Holds,
    tools: Mapping[str, Tool],
) -> Iterator[Finding]:
    told = []
    for producer, target in producers:
        given = result_shape(producer, place.path[len(target.path) :], tools)
        if given is None:
            return
        if given.is_impossible:
            if _can_choose(producer) and holds(place):
                return
            told.append(
                (
                    producer,
                    f"nothing is ever there: what call {producer.index} ({producer.tool}) gives has no such place",
                )
            )
        elif wanted is not None and (why := misfit(given, wanted)) is not None:
            if _can_choose(producer) and holds(place):
                return
            told.append((producer, f"call {producer.index} ({producer.tool}) gives what does not fit: {why}"))
        else:
            return
    for producer, why in told:
        yield Finding(
            "warning",
            f"call {call.index} ({call.tool}) reads {place} at {at}, where {why}; "
            "change the path, or one of the schemas",
            tuple(sorted((producer.index, call.index))),
        )


def _producers(
    lane: Lane, call: Call, place: Reference, writers: Writers, calls: Mapping[int, Call]
) -> tuple[tuple[Call, Reference], ...]:
    """Everybody who writes the place, and where, if it is certain that each of them settles it; else nobody."""
    found: set[int] = set()
    for line in writers.lines(place):
        found.update(line.calls[: _MOST_WRITERS + 2])
    found.discard(call.index)
    waited_for = lane.graph.writers(call.index, place) if len(found) <= _MOST_WRITERS else ()
    if not found or found != set(waited_for):
        return ()
    producers = []
    for index in sorted(found):
        writer = calls[index]
        target = _settled_by(writer, place)
        if target is None:
            return ()
        producers.append((writer, target))
    return tuple(producers)


def _settled_by(writer: Call, place: Reference) -> Reference | None:
    """The one path of a call that replaces all that is at the place, and that no exception is written to."""
    if writer.output is None or writer.method is not Method.SET:
        return None
    touching = [target for target in writer.output.references if target.overlaps(place)]
    if len(touching) != 1 or len(touching[0].path) > len(place.path):
        return None
    if _can_choose(writer) and touching[0] in writer.output.alternatives[-1]:
        return None
    return touching[0]


def _can_choose(writer: Call) -> bool:
    return writer.output is not None and len(writer.output.alternatives) > 1
