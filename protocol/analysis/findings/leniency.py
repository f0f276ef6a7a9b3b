"""Leniency: a layout that takes whatever a result may bring, and holds all else against its schemas (SPEC R4.1, R4.6).

What is made up for a result shows nothing of what it will be. So that a refusal says something of the plan, the tools
and the schemas of kinds are loosened wherever results reach: what is refused even then, they cannot mend. They stay as
they are where it is certain that what is promised never fits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any, Final

from protocol.analysis.inventions import ways_of
from protocol.analysis.samples import sample
from protocol.calls.call import Call
from protocol.calls.tools import Tool
from protocol.graph.writers import Writers
from protocol.language.errors import segments
from protocol.language.messages import kind_of
from protocol.language.paths import MISSING, nest
from protocol.language.references import Expression, Path, Reference
from protocol.schemas import compiled
from protocol.state.operations import Method
from protocol.submission.layout import Layout

from .effects import result_schema
from .effort import count
from .fitting import misfit
from .memory import Memory

_TRANSPARENT: Final = frozenset({
    "$comment", "$defs", "$id", "$schema", "additionalProperties", "default", "deprecated", "description", "examples",
    "items", "maxItems", "maxProperties", "minItems", "minProperties", "properties", "readOnly", "required", "title",
    "type", "writeOnly",
})  # fmt: skip
"""Keywords that say nothing of what is inside of a value but for each part by itself, and how many there are."""

_STEPS: Final = 10
"""How much work it is to look at one place, in steps (see `effort`)."""
_MOST_WRITERS: Final = 16
"""Where more write what one parameter reads, nothing of it is looked at."""


def lenient(layout: Layout) -> Layout:
    """The same layout, its tools and schemas loosened wherever results of calls reach. Counts its steps; may raise
    `TooCostly`.
    """
    reached = _Reached(layout)
    tools = {name: _loosened_tool(tool, reached.parameters(tool)) for name, tool in layout.tools.items()}
    context = [
        {**message, "schema": _loosened_at(message["schema"], reached.kinds.get(kind_of(message), ()))}
        if "schema" in message
        else message
        for message in layout.submission.context
    ]
    return replace(layout, tools=tools, submission=replace(layout.submission, context=context))


class _Reached:
    """Where results come to stand, in kinds and in what tools are given."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._memory = Memory(layout.tools, layout.submission.delegates, {})
        self._writers = Writers(layout.calls)
        self._schemas: dict[str, list[Any]] = {}
        for message in layout.submission.context:
            if "schema" in message:
                self._schemas.setdefault(str(kind_of(message)), []).append(message["schema"])

    @cached_property
    def kinds(self) -> dict[str, set[Path]]:
        """Where in a kind calls write what is not made up by its schema; of a list pushed onto, the elements."""
        found: dict[str, set[Path]] = {}
        for call in self._layout.calls:
            for place in self._brought[call.index]:
                if not self._is_made_by_kind(call, place):
                    path = (*place.path, 0) if call.method is Method.PUSH else place.path
                    found.setdefault(place.kind, set()).add(path)
        return found

    @cached_property
    def _calls_of(self) -> dict[str, list[Call]]:
        found: dict[str, list[Call]] = {}
        for call in self._layout.calls:
            found.setdefault(call.tool, []).append(call)
        return found

    @cached_property
    def _brought(self) -> dict[int, list[Reference]]:
        return {call.index: list(_brought(self._layout, call)) for call in self._layout.calls}

    def _is_made_by_kind(self, call: Call, place: Reference) -> bool:
        """Whether nothing is known of a result but what the schema of its kind says, and it is made up such as that."""
        schemas = self._schemas.get(place.kind, ())
        is_known = result_schema(call, self._layout.tools, self._layout.submission.delegates) is not True
        is_one = call.output is not None and all(len(group) == 1 for group in call.output.alternatives)
        if is_known or not is_one or len(schemas) != 1 or call.method is not Method.SET or not place.path:
            return False
        whole = compiled(schemas[0])
        parts = whole.parts(place.path)
        if not parts or "$ref" in str(parts):
            return False
        return not whole.problems(nest(sample({"allOf": parts}), place.path), partial=True)

    def parameters(self, tool: Tool) -> set[Path]:
        """Where in what a tool is given."""
        return {
            path
            for call in self._calls_of.get(tool.name, ())
            for at, expression in call.reads
            for path in self._through(call, tool, at, expression)
        }

    def _through(self, reader: Call, tool: Tool, at: str, expression: Expression) -> Iterator[Path]:
        """Through one expression; where that makes one value of several, it is the whole."""
        whole: Path = tuple(int(key) if key.isdecimal() else key for key in segments(at))
        is_one = all(len(group) == 1 for group in expression.alternatives)
        for read in expression.references:
            writers = {index for line in self._writers.lines(read) for index in line.calls} - {reader.index}
            is_one = is_one and len(writers) <= _MOST_WRITERS
            for writer in (self._layout.calls[index] for index in writers):
                count(_STEPS * len(self._brought[writer.index]))
                for place in self._brought[writer.index]:
                    path = (*whole, *place.path[len(read.path) :])
                    if place.overlaps(read) and not (is_one and self._never_fits(writer, place, read, tool, path)):
                        yield path if is_one else whole

    def _never_fits(self, writer: Call, place: Reference, read: Reference, tool: Tool, path: Path) -> bool:
        """Whether what a call leaves where it is read is certain to be something else than a tool wants there."""
        wanted = self._memory.shape(tool.compiled.schema, path, in_lists=True)
        below = read.path[len(place.path) :]
        is_whole = writer.method is Method.SET and len(ways_of(writer)) == 1
        if is_whole and misfit(self._memory.result(writer).at(below), wanted) is not None:
            return True
        schemas = self._schemas.get(place.kind, ())
        inner = max(place.path, read.path, key=len)
        return len(schemas) == 1 and misfit(self._memory.shape(schemas[0], inner), wanted) is not None


def _brought(layout: Layout, writer: Call) -> Iterator[Reference]:
    """The places where a call may leave what only its result says; of a closed object that it joins, the keys."""
    if writer.given is not MISSING:
        return
    keys = None
    if writer.method in (Method.MERGE, Method.ASSIGN):
        keys = _keys(result_schema(writer, layout.tools, layout.submission.delegates))
    for place in writer.written:
        yield from (place,) if keys is None else (Reference(place.kind, (*place.path, key)) for key in keys)


def _keys(result: Any) -> list[str] | None:
    """The keys that a result has, if it has just these."""
    if not isinstance(result, Mapping) or not result.keys() <= _TRANSPARENT or result.get("type") != "object":
        return None
    keys = list(result.get("properties", ()))
    is_closed = result.get("additionalProperties") is False
    return keys if is_closed and set(keys) <= set(result.get("required", ())) else None


def _loosened_tool(tool: Tool, paths: Collection[Path]) -> Tool:
    meta = {key: value for key, value in tool.declaration.items() if key.startswith("_")}
    declared: Any = {key: value for key, value in tool.declaration.items() if key not in meta}
    declared = _loosened_at(declared, paths)
    if declared is True:
        inside = tool.declaration.get("properties", {})
        declared = {"properties": {key: value for key, value in inside.items() if key.startswith("_")}}
    return replace(tool, declaration={**meta, **declared})


def _loosened_at(schema: Any, paths: Collection[Path]) -> Any:
    count(_STEPS * len(paths))
    return reduce(_loosened, sorted(paths, key=str), schema)


def _loosened(schema: Any, path: Path) -> Any:
    """A schema that takes anything at a place, and around it looks only at what it says of each part by itself."""
    if not path:
        return True
    if not isinstance(schema, Mapping):
        return schema
    if not schema.keys() <= _TRANSPARENT:
        return True
    properties, key = schema.get("properties", {}), str(path[0])
    below = properties.get(key, schema.get("additionalProperties", True))
    count(len(properties) // _STEPS)
    loosened = {**schema, "items": True} if isinstance(path[0], int) else {**schema}
    if below is not False:
        loosened["properties"] = {**properties, key: _loosened(below, path[1:])}
    return loosened
