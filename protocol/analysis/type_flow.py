"""Type flow: what may stand at a place for one reader, by what its writers promise (SPEC R3.2, R4.4, R4.6).

A writer promises what its tool's `_output` and its delegate's schema admit, or the very `_output` that a model wrote
into it; its method makes something of that. The context gives its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protocol.calls.call import Call
from protocol.calls.tools import Executor
from protocol.graph.lanes import Lane
from protocol.graph.promises import Promises
from protocol.graph.writers import Writers
from protocol.language.errors import Conflict, segments
from protocol.language.paths import MISSING
from protocol.language.references import Path, Reference
from protocol.schemas import Schema
from protocol.state.fold import Fold
from protocol.state.operations import Method
from protocol.submission.layout import Layout

from .algebra import EVERYTHING, NOTHING, Algebra, Values, types_of

_MOST_WRITERS: Final = 8
"""Where more calls write, nothing is said of what stands there."""
_OBJECT: Final = {"type": "object"}
_LIST: Final = {"type": "array"}
_TEXT_OR_LIST: Final = {"type": ["array", "string"]}
_CONTAINER: Final = {"type": ["array", "object"]}
_ERROR: Final = {
    "type": "object",
    "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
    "required": ["type", "message"],
}
FAILURES: Final = "error"
"""The kind of what fails (SPEC R7.2): nothing is promised of it."""


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


class TypeFlow:
    """What calls promise; the same in all lanes."""

    def __init__(self, layout: Layout, algebra: Algebra) -> None:
        self._layout = layout
        self._algebra = algebra
        self._promises: dict[tuple[str, str, str], Values] = {}
        self._inputs = Promises(layout.submission.context)
        self._announced: dict[tuple[int, Reference], Values] = {}

    def schemas(self, call: Call) -> list[Schema]:
        """The schemas that a call's result has to fit."""
        if call.given is not MISSING:
            return [{"const": call.given}]
        tool = self._layout.tools.get(call.tool)
        if call.runner.executor is Executor.ACTIVITY and (tool is None or tool.output_schema is None):
            tool = self._layout.returns.get(call.runner.name)  # the function's own annotation
        found = [tool.output_schema] if tool is not None and tool.output_schema is not None else []
        if call.runner.executor is Executor.DELEGATE:
            definition = self._layout.submission.delegates.get(call.runner.name)
            schema = definition.get("schema") if isinstance(definition, Mapping) else None
            found += [schema] if isinstance(schema, dict | bool) else []
        return found

    def result(self, call: Call) -> Values:
        """What a call promises of its result."""
        if call.given is not MISSING:
            return self._algebra.only(call.given)
        key = (call.tool, call.runner.executor, call.runner.name)
        if key not in self._promises:
            self._promises[key] = EVERYTHING
            for schema in self.schemas(call):
                promised = self._algebra.described_by(schema)
                self._promises[key] = self._algebra.both(self._promises[key], promised)
        return self._promises[key]

    def announced(self, place: Reference, instance: str | None) -> Iterator[Source]:
        """What the schemas of input messages say of a value that comes later (SPEC R6.3)."""
        for promise in self._inputs.seen_by(instance):
            key = promise.at, place
            if key not in self._announced and promise.names(place):
                self._announced[key] = self._algebra.made_of(promise.schema_of(place))
            if key in self._announced:
                yield Source(self._announced[key], promised=self._announced[key])

    def effects(self, call: Call, place: Reference) -> Iterator[Source]:
        """What a call may leave at a place, by each of its output paths there."""
        result, groups = self.result(call), call.output.alternatives if call.output is not None else ()
        for group in groups:
            given = [result]
            if len(groups) > 1 and group is groups[-1]:
                given.append(self._algebra.described_by(_ERROR))
            for own in group:
                if own.overlaps(place):
                    for values in given:
                        inside = place.path[len(own.path) + (call.method is Method.PUSH) :]
                        yield Source(self._effect(values, call.method, own, place), call, values, inside)

    def _effect(self, result: Values, method: Method, own: Reference, place: Reference) -> Values:
        of, along = self._algebra.described_by, self._algebra.along
        depth = len(own.path) - len(place.path)
        if depth > 0:
            below = own.path[len(place.path) :]
            if method is Method.SET and all(isinstance(segment, str) for segment in below):
                found = result
                for segment in reversed(below):
                    found = self._algebra.around(found, str(segment))
                return found
            return of(_OBJECT if isinstance(below[0], str) else _CONTAINER)
        rest = place.path[len(own.path) :]
        match method:
            case Method.SET:
                return along(result, rest)
            case Method.PUSH if rest:
                return along(result, rest[1:]) if isinstance(rest[0], int) else NOTHING
            case Method.PUSH:
                return of(_LIST)
            case Method.CONCAT if rest:
                return EVERYTHING if isinstance(rest[0], int) else NOTHING
            case Method.CONCAT:
                return self._algebra.both(of(_TEXT_OR_LIST), _loose(result, of))
            case Method.ASSIGN if not rest:
                return of(_OBJECT)
        return _loose(along(result, rest), of)


def path_of(call: Call, at: str) -> Path:
    """The place in a call that a JSON pointer leads to."""
    value: Any = call.raw
    path: Path = ()
    for segment in segments(at):
        key = int(segment) if isinstance(value, list) else segment
        value, path = value[key], (*path, key)
    return path


def _loose(values: Values, of: Any) -> Values:
    """What values become that are merged into others: objects and lists may come to hold more."""
    types = types_of(values)
    if not types & {"object", "array"}:
        return values
    return of({"type": sorted(types)}) if types else NOTHING


class LaneFlow:
    """What the readers of lanes with one and the same graph come by."""

    def __init__(self, flow: TypeFlow, lane: Lane, shared: Sequence[Call]) -> None:
        self._flow = flow
        self.lane = lane
        self._own = frozenset(call.index for call in lane.calls)
        self._calls = {call.index: call for call in (*shared, *lane.calls)}
        self._writers = Writers(lane.calls, Writers(shared) if shared else None)

    def sources(self, reader: Call, place: Reference, fold: Fold) -> tuple[Source, ...]:
        """All origins of what a call may read at a place; none where they are too many, or one promises nothing."""
        if place.kind == FAILURES:
            return ()
        found: dict[int, None] = {}
        for line in self._writers.lines(place):
            found.update(dict.fromkeys(line.calls[: _MOST_WRITERS + 2]))
        found.pop(reader.index, None)
        if len(found) > _MOST_WRITERS:
            return ()
        writers = [self._calls[index] for index in sorted(found)]
        sources = [source for writer in writers for source in self._flow.effects(writer, place)]
        if any(source.promised == EVERYTHING == source.values for source in sources):
            return ()
        if not self._is_replaced(reader, place, writers, fold):
            try:
                value = fold.value(place)
            except Conflict:
                return ()
            if value is not MISSING:
                sources.append(Source(EVERYTHING, value=value))
            else:
                sources += self._flow.announced(place, self.lane.instance)
        return tuple(sources)

    def _is_replaced(self, reader: Call, place: Reference, writers: Sequence[Call], fold: Fold) -> bool:
        """Whether what the context holds at a place is gone when a call reads there."""
        waited = self.lane.graph.writers(reader.index, place) if writers else ()
        return any(
            writer.method is Method.SET
            and writer.index in waited
            and len(writer.written) == 1
            and len(writer.written[0].path) <= len(place.path)
            and (self.lane.instance is None or writer.index in self._own or not fold.has_own(place))
            for writer in writers
        )


def flows(layout: Layout, flow: TypeFlow) -> Iterator[tuple[LaneFlow, list[Lane]]]:
    """The lanes, those that share a graph together."""
    lanes: dict[int, list[Lane]] = {}
    for lane in layout.lanes.values():
        lanes.setdefault(id(lane.graph), []).append(lane)
    shared = layout.lanes[None].calls if None in layout.lanes else ()
    for alike in lanes.values():
        yield LaneFlow(flow, alike[0], shared if alike[0].instance is not None else ()), alike
