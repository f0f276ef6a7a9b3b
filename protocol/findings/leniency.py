"""Leniency: tools that take whatever a result may bring, and hold all else against their schemas (SPEC R4.1).

What is made up for a result shows nothing of what it will be. So that a refused call says something of the plan, its
tool is loosened wherever results reach: what is refused even then, they cannot mend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from protocol.calls import Call
from protocol.errors import segments
from protocol.layout import Layout
from protocol.operations import Method
from protocol.paths import MISSING
from protocol.references import Expression, Path, Reference
from protocol.tools import Tool
from protocol.writers import Writers

from .effects import result_schema

_TRANSPARENT: Final = frozenset({
    "$comment", "$defs", "$id", "$schema", "additionalProperties", "default", "deprecated", "description", "examples",
    "properties", "readOnly", "required", "title", "type", "writeOnly",
})  # fmt: skip
"""Keywords that say nothing of what is in an object but for each of its properties, or whether it is there."""


def lenient(layout: Layout) -> Layout:
    """The same layout, its tools loosened wherever results of other calls reach their parameters."""
    writers = Writers(layout.calls)
    reached: dict[str, set[Path]] = {}
    for call in layout.calls:
        for at, expression in call.reads:
            reached.setdefault(call.tool, set()).update(_reached(layout, writers, call, at, expression))
    tools = {name: _loosened_tool(tool, reached.get(name, ())) for name, tool in layout.tools.items()}
    return replace(layout, tools=tools)


def _reached(layout: Layout, writers: Writers, reader: Call, at: str, expression: Expression) -> Iterator[Path]:
    """Where in a call's parameters results come to stand through one expression; of text, and of several values that
    make one, it is the whole.
    """
    whole: Path = tuple(segments(at))
    is_one = all(len(group) == 1 for group in expression.alternatives)
    for read in expression.references:
        for index in {index for line in writers.lines(read) for index in line.calls} - {reader.index}:
            for place in _brought(layout, layout.calls[index]):
                if place.overlaps(read):
                    yield (*whole, *place.path[len(read.path) :]) if is_one else whole


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
    """The only keys that a result can have, if that is known."""
    is_closed = isinstance(result, Mapping) and result.keys() <= _TRANSPARENT and result.get("type") == "object"
    return list(result.get("properties", ())) if is_closed and result.get("additionalProperties") is False else None


def _loosened_tool(tool: Tool, paths: Iterable[Path]) -> Tool:
    meta = {key: value for key, value in tool.declaration.items() if key.startswith("_")}
    declared: Any = {key: value for key, value in tool.declaration.items() if key not in meta}
    for path in sorted(paths, key=str):
        declared = _loosened(declared, path)
    if declared is True:
        inside = tool.declaration.get("properties", {})
        declared = {"properties": {key: value for key, value in inside.items() if key.startswith("_")}}
    return replace(tool, declaration={**meta, **declared})


def _loosened(schema: Any, path: Path) -> Any:
    """A schema that takes anything at a place, and around it does not look at more than what objects hold."""
    if not path:
        return True
    if not isinstance(schema, Mapping):
        return schema
    if not schema.keys() <= _TRANSPARENT:
        return True
    properties, key = schema.get("properties", {}), str(path[0])
    below = properties.get(key, schema.get("additionalProperties", True))
    return {**schema, "properties": {**properties, key: _loosened(below, path[1:])}} if below is not False else schema
