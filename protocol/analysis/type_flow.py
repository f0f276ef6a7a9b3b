"""Type flow: which values a reader may find at a place, by what its writers promise (SPEC R3.2, R4.4, R4.6).

A writer promises what its tool's `_output` and its delegate's schema admit, or the very `_output` that a model wrote
into it. Its method decides what of that is at the place. The context promises the value that it holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import islice
from typing import Any, Final

from .. import limits
from ..calls.call import Call, list_schema
from ..calls.tools import Executor, Tool
from ..errors import Conflict, Speller, segments
from ..messages import ERROR
from ..paths import MISSING
from ..plan.checked_plan import CheckedPlan
from ..plan.graph import Writers
from ..plan.lanes import Lane
from ..plan.places import Promises
from ..references import Path, Reference
from ..schemas import Schema
from ..schemas.algebra import EVERYTHING, NOTHING, Algebra, Values, described, is_empty, of_types, types_of
from ..schemas.walk import schemas_at
from ..state.operations import Method

_ERROR: Final = {
    "type": "object",
    "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
    "required": ["type", "message"],
}


@dataclass(frozen=True, slots=True)
class ValueSource:
    """One of the origins of the value at a place."""

    values: Values
    """The values that may come from it."""
    writer: Call | None = None
    """None for the context, or for what an input message promises."""
    promised: Values = EVERYTHING
    """The whole results that the writer promises; `values` are a part of them."""
    inside: Path = ()
    """The path from the result to that part."""
    value: Any = MISSING
    """The value in the context."""


class Results:
    """The types of calls' results, and of the values that these leave at places."""

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
        """The type that a call promises for its result."""
        if call.given is not MISSING:
            return self._algebra.only(call.given)
        key = (call.tool, call.runner.executor, call.runner.name, bool(call.each))
        if key not in self._promises:
            self._promises[key] = EVERYTHING
            for schema in self.schemas(call):
                promised = self._algebra.described_by(schema)
                self._promises[key] = self._algebra.both(self._promises[key], promised)
        return self._promises[key]

    def effects(self, call: Call, place: Reference) -> Iterator[ValueSource]:
        """The values that a call may leave at a place, by each of its output paths there."""
        result, groups = self.result(call), call.alternatives
        for group in groups:
            given = [result]
            if len(groups) > 1 and group is groups[-1]:
                given.append(self._algebra.described_by(_ERROR))
            for own in group:
                if own.overlaps(place):
                    for values in given:
                        inside = place.path[len(own.path) + (call.method is Method.PUSH) :]
                        yield ValueSource(self.effect(values, call.method, own, place), call, values, inside)

    def effect(self, result: Values, method: Method, own: Reference, place: Reference) -> Values:
        """The part of a result, written at an output path, that can be at a place."""
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
    """The values that calls may find at places."""

    def __init__(self, plan: CheckedPlan, algebra: Algebra) -> None:
        super().__init__(plan.tools, plan.returns, plan.submission.delegates, algebra)
        self._plan = plan
        self._inputs = Promises(plan.submission.context)
        self._announced: dict[tuple[int, Reference], Values] = {}

    def announced(self, place: Reference, instance: str | None) -> Iterator[ValueSource]:
        """The values that input messages announce by their schemas (SPEC R6.3)."""
        for promise in self._inputs.seen_by(instance):
            key = promise.at, place
            if key not in self._announced and promise.names(place):
                self._announced[key] = self._algebra.made_of(promise.schema_of(place))
            if key in self._announced:
                yield ValueSource(self._announced[key], promised=self._announced[key])

    def sources(self, lane: Lane, writers: Writers, reader: Call, place: Reference) -> tuple[ValueSource, ...]:
        """All origins of what a call may read at a place; empty where they are too many or one promises nothing.

        `writers` are those of the call's lane.
        """
        found = dict.fromkeys(index for line in writers.lines(place) for index in line.calls[: limits.MOST_WRITERS + 2])
        found.pop(reader.index, None)
        if place.kind == ERROR or len(found) > limits.MOST_WRITERS:
            return ()
        calls = [self._plan.calls[index - self._plan.submission.first] for index in sorted(found)]
        sources = [source for writer in calls for source in self.effects(writer, place)]
        if any(source.promised == EVERYTHING == source.values for source in sources):
            return ()
        if not any(self._replaces(writer, lane, reader, place) for writer in calls):
            try:
                value = self._plan.context.fold(lane.instance).value(place)
            except Conflict:
                return ()
            held = (
                [ValueSource(EVERYTHING, value=value)] if value is not MISSING else self.announced(place, lane.instance)
            )
            sources.extend(held)
        return tuple(sources)

    def _replaces(self, writer: Call, lane: Lane, reader: Call, place: Reference) -> bool:
        """Whether what the context holds at a place is gone by this writer when a call reads there."""
        if writer.method is not Method.SET or len(writer.written) != 1 or len(writer.written[0].path) > len(place.path):
            return False
        is_seen = lane.instance is None or writer.index in lane.graph.waits
        is_on_top = is_seen or not self._plan.context.fold(lane.instance).has_own(place)
        return is_on_top and writer.index in lane.graph.writers(reader.index, place)


def path_of(call: Call, at: str) -> Path:
    """The place in a call that a JSON pointer leads to."""
    value: Any = call.properties
    path: Path = ()
    for segment in segments(at):
        key = int(segment) if isinstance(value, list) else segment
        value, path = value[key], (*path, key)
    return path


def flows(plan: CheckedPlan) -> Iterator[tuple[list[Lane], Writers]]:
    """Groups of lanes that share a graph, each with all who write in them."""
    lanes: dict[int, list[Lane]] = {}
    for lane in plan.lanes.values():
        lanes.setdefault(id(lane.graph), []).append(lane)
    shared = Writers(plan.lanes[None].calls if None in plan.lanes else ())
    for alike in lanes.values():
        yield alike, shared if alike[0].instance is None else Writers(alike[0].calls, shared)


# Fields: parts of results that are read and that no writer promises (SPEC R3.5, R4.6).


@dataclass(frozen=True, slots=True)
class FieldFault:
    """Why nothing is at a place, and what to write instead."""

    code: str
    why: str
    instead: str


class Fields:
    """Finds fields that are read and that results do not have."""

    def __init__(self, plan: CheckedPlan, algebra: Algebra, flow: TypeFlow) -> None:
        self._plan = plan
        self._algebra = algebra
        self._flow = flow
        self._speller = Speller(likeness=0.6)

    def fault(self, reader: Call, place: Reference, source: ValueSource) -> FieldFault | None:
        """Why a source never has a value at a place, or is hardly meant to."""
        values, above = source.promised, len(place.path) - len(source.inside)
        if source.writer is None or source.promised == EVERYTHING:
            return None
        if above and is_empty(source.values) and not source.inside:
            return _of_list(place, above - 1)
        for position, segment in enumerate(source.inside):
            types, below = types_of(values), self._algebra.at(values, segment)
            names = self._listed(source.writer, source.inside[:position])
            if is_empty(below) or (types == {"object"} and below == EVERYTHING and names):
                depth, what = above + position, Reference(place.kind, place.path[: above + position])
                if "object" not in types and (types != {"array"} or isinstance(segment, int)):
                    instead = f"write {what}" if isinstance(segment, int) else f"read {what}"
                    return FieldFault("ACT205", f"{what} is {described(values)} and has no part {segment!r}", instead)
                if "object" not in types:
                    return _of_list(place, depth)
                if isinstance(segment, int) and "array" not in types and str(segment) not in names:
                    why = f"{what} is an object, and {segment} is an index"
                    return FieldFault("ACT205", why, f"write {_with(place, depth)}")
                if str(segment) not in names and (is_empty(below) or self._is_slip(reader, place, depth, names)):
                    near, some = self._nearest(str(segment), names), ", ".join(names[: limits.TYPE_FLOW_MOST_NAMES])
                    some += ", …" * (len(names) > limits.TYPE_FLOW_MOST_NAMES)
                    why = f"{what} has no field {str(segment)!r}; it has {some or 'none'}"
                    instead = f"name one of its fields: {some}" if names else f"read {what}"
                    return FieldFault("ACT204", why, instead if near is None else f"write {_with(place, depth, near)}")
            values = below
        return None

    def _is_slip(self, reader: Call, place: Reference, depth: int, names: list[str]) -> bool:
        """Whether a field that an open object does not list is probably none of it: its name is nearly one that is
        listed, or whatever else is read there is listed.
        """
        key = str(place.path[depth])
        read = self._read[reader.instance, place.key[: depth + 1]]
        return self._nearest(key, names) is not None or read.issubset({key, *names})

    @cached_property
    def _read(self) -> dict[tuple[str | None, tuple[str, ...]], set[str]]:
        """The keys that calls read below each place, in each instance."""
        found = defaultdict[tuple[str | None, tuple[str, ...]], set[str]](set)
        for call in self._plan.calls:
            for place in call.read:
                for depth in range(1, len(place.key)):
                    found[call.instance, place.key[:depth]].add(place.key[depth])
        return found

    def _listed(self, writer: Call, path: Path) -> list[str]:
        """The fields that a promise lists at a path; none where others have a name by a pattern."""
        found: dict[str, None] = {}
        for schema in self._flow.schemas(writer):
            for part in schemas_at(schema, path):
                if "patternProperties" in part:
                    return []
                constant = part.get("const")
                found.update(dict.fromkeys(part.get("properties", ())))
                found.update(dict.fromkeys(constant if isinstance(constant, dict) else ()))
        return list(islice(found, limits.MOST_KNOWN))

    def _nearest(self, key: str, names: list[str]) -> str | None:
        """The field that was probably meant: the same but for case and underscores, or nearly the same."""
        plain = {name.replace("_", "").lower(): name for name in reversed(names)}
        return plain.get(key.replace("_", "").lower()) or self._speller.nearest(key, names)


def _of_list(place: Reference, depth: int) -> FieldFault:
    """The fault of reading a list by a key."""
    why = f"{Reference(place.kind, place.path[:depth])} is a list, and {place.path[depth]!r} is a key"
    return FieldFault("ACT205", why, f"write {_with(place, depth, 0, place.path[depth])} to read the first element")


def _with(place: Reference, depth: int, *instead: str | int) -> Reference:
    """A place in which one segment is replaced."""
    return Reference(place.kind, (*place.path[:depth], *instead, *place.path[depth + 1 :]))
