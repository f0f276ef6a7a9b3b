"""Type flow: what may stand at a place for one reader, by what its writers promise (SPEC R3.2, R4.4, R4.6).

A writer promises what its tool's `_output` and its delegate's schema admit, or the very `_output` that a model wrote
into it; its method makes something of that. The context gives its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.elements import list_schema
from acts_celery.protocol.calls.tools import Executor, Tool
from acts_celery.protocol.graph.lanes import Lane
from acts_celery.protocol.graph.promises import Promises
from acts_celery.protocol.graph.writers import Writers
from acts_celery.protocol.language.errors import Conflict, segments
from acts_celery.protocol.language.messages import ERROR
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.language.references import Path, Reference
from acts_celery.protocol.schemas import Schema
from acts_celery.protocol.schemas.algebra import EVERYTHING, NOTHING, Algebra, Values, of_types, types_of
from acts_celery.protocol.state.operations import Method
from acts_celery.protocol.submission.layout import Layout

MOST_WRITERS: Final = 8
"""Where more calls write, nothing is said of what stands there."""
_ERROR: Final = {
    "type": "object",
    "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
    "required": ["type", "message"],
}


@dataclass(frozen=True, slots=True)
class Source:
    """One of the origins of what stands at a place."""

    values: Values
    """What may come from there."""
    writer: Call | None = None
    """None for the context, or for what an input message promises."""
    promised: Values = EVERYTHING
    """All that the writer promises, of which the values are a part."""
    inside: Path = ()
    """The way from what the writer promises to the place."""
    value: Any = MISSING
    """What the context holds."""


class Results:
    """What calls promise of their results, and what those leave where they are written."""

    def __init__(
        self, tools: Mapping[str, Tool], returns: Mapping[str, Tool], delegates: Mapping[str, Any], algebra: Algebra
    ) -> None:
        self._tools = tools
        self._returns = returns
        self._delegates = delegates
        self._algebra = algebra
        self._promises: dict[tuple[str, str, str, bool], Values] = {}

    def schemas(self, call: Call) -> list[Schema]:
        """The schemas that a call's result has to fit."""
        if call.given is not MISSING:
            return [{"const": call.given}]
        tool = self._tools.get(call.tool)
        if call.runner.executor is Executor.ACTIVITY and (tool is None or tool.output_schema is None):
            tool = self._returns.get(call.runner.name)  # the function's own annotation
        found = [tool.output_schema] if tool is not None and tool.output_schema is not None else []
        if call.runner.executor is Executor.DELEGATE:
            definition = self._delegates.get(call.runner.name)
            schema = definition.get("schema") if isinstance(definition, Mapping) else None
            found += [schema] if isinstance(schema, dict | bool) else []
        return [list_schema(schema) for schema in found or [True]] if call.each else found

    def result(self, call: Call) -> Values:
        """What a call promises of its result."""
        if call.given is not MISSING:
            return self._algebra.only(call.given)
        key = (call.tool, call.runner.executor, call.runner.name, bool(call.each))
        if key not in self._promises:
            self._promises[key] = EVERYTHING
            for schema in self.schemas(call):
                promised = self._algebra.described_by(schema)
                self._promises[key] = self._algebra.both(self._promises[key], promised)
        return self._promises[key]

    def effects(self, call: Call, place: Reference) -> Iterator[Source]:
        """What a call may leave at a place, by each of its output paths there."""
        result, groups = self.result(call), call.alternatives
        for group in groups:
            given = [result]
            if len(groups) > 1 and group is groups[-1]:
                given.append(self._algebra.described_by(_ERROR))
            for own in group:
                if own.overlaps(place):
                    for values in given:
                        inside = place.path[len(own.path) + (call.method is Method.PUSH) :]
                        yield Source(self.effect(values, call.method, own, place), call, values, inside)

    def effect(self, result: Values, method: Method, own: Reference, place: Reference) -> Values:
        """What is at a place, as far as it comes from a result that is written at an output path."""
        if below := own.path[len(place.path) :]:
            if method is Method.SET and all(isinstance(segment, str) for segment in below):
                return reduce(self._algebra.around, map(str, reversed(below)), result)
            return of_types(["object"] if isinstance(below[0], str) else ["array", "object"])
        rest = place.path[len(own.path) :]
        match method:
            case Method.SET:
                return self._algebra.along(result, rest)
            case Method.PUSH if rest:
                return self._algebra.along(result, rest[1:]) if isinstance(rest[0], int) else NOTHING
            case Method.PUSH:
                return self._algebra.around(result, None)
            case Method.CONCAT if rest:
                return EVERYTHING if isinstance(rest[0], int) else NOTHING
            case Method.CONCAT:
                return of_types(types_of(result) & {"array", "string"})
            case Method.ASSIGN if not rest:
                return of_types(["object"])
        found = self._algebra.along(result, rest)
        return of_types(types_of(found)) if "object" in types_of(found) else found  # an object may come to hold more


class TypeFlow(Results):
    """What may stand at places, by what calls promise; the same in all lanes."""

    def __init__(self, layout: Layout, algebra: Algebra) -> None:
        super().__init__(layout.tools, layout.returns, layout.submission.delegates, algebra)
        self._layout = layout
        self._inputs = Promises(layout.submission.context)
        self._announced: dict[tuple[int, Reference], Values] = {}

    def announced(self, place: Reference, instance: str | None) -> Iterator[Source]:
        """What the schemas of input messages say of a value that comes later (SPEC R6.3)."""
        for promise in self._inputs.seen_by(instance):
            key = promise.at, place
            if key not in self._announced and promise.names(place):
                self._announced[key] = self._algebra.made_of(promise.schema_of(place))
            if key in self._announced:
                yield Source(self._announced[key], promised=self._announced[key])

    def sources(self, lane: Lane, writers: Writers, reader: Call, place: Reference) -> tuple[Source, ...]:
        """All origins of what a call may read at a place, by all who write in its lane; none where they are too many,
        or one promises nothing.
        """
        found = dict.fromkeys(index for line in writers.lines(place) for index in line.calls[: MOST_WRITERS + 2])
        found.pop(reader.index, None)
        if place.kind == ERROR or len(found) > MOST_WRITERS:
            return ()
        calls = [self._layout.calls[index - self._layout.submission.first] for index in sorted(found)]
        sources = [source for writer in calls for source in self.effects(writer, place)]
        if any(source.promised == EVERYTHING == source.values for source in sources):
            return ()
        if not any(self._replaces(writer, lane, reader, place) for writer in calls):
            try:
                value = self._layout.context.fold(lane.instance).value(place)
            except Conflict:
                return ()
            held = [Source(EVERYTHING, value=value)] if value is not MISSING else self.announced(place, lane.instance)
            sources.extend(held)
        return tuple(sources)

    def _replaces(self, writer: Call, lane: Lane, reader: Call, place: Reference) -> bool:
        """Whether what the context holds at a place is gone by this writer when a call reads there."""
        if writer.method is not Method.SET or len(writer.written) != 1 or len(writer.written[0].path) > len(place.path):
            return False
        is_seen = lane.instance is None or writer.index in lane.graph.waits
        is_on_top = is_seen or not self._layout.context.fold(lane.instance).has_own(place)
        return is_on_top and writer.index in lane.graph.writers(reader.index, place)


def path_of(call: Call, at: str) -> Path:
    """The place in a call that a JSON pointer leads to."""
    value: Any = call.raw
    path: Path = ()
    for segment in segments(at):
        key = int(segment) if isinstance(value, list) else segment
        value, path = value[key], (*path, key)
    return path


def flows(layout: Layout) -> Iterator[tuple[list[Lane], Writers]]:
    """The lanes, those that share a graph together, and all who write in them."""
    lanes: dict[int, list[Lane]] = {}
    for lane in layout.lanes.values():
        lanes.setdefault(id(lane.graph), []).append(lane)
    shared = Writers(layout.lanes[None].calls if None in layout.lanes else ())
    for alike in lanes.values():
        yield alike, shared if alike[0].instance is None else Writers(alike[0].calls, shared)
