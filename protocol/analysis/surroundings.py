"""Surroundings: scopes, tools, settings and messages that do not do what they seem to (SPEC R1.3, R4.1, R8)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from protocol.calls.call import Call, place_in
from protocol.calls.tools import Executor, Tool
from protocol.graph.graph import Graph
from protocol.graph.readers import places_seen
from protocol.graph.writers import Writers
from protocol.language.errors import pointer
from protocol.language.messages import DATA_TYPES, is_written, kind_of, read_data
from protocol.language.references import Reference
from protocol.schemas import joined
from protocol.submission.layout import Layout

from .finding import Finding, on_call
from .foreign_formats import calls_inside
from .known_places import KnownPlaces
from .type_flow import FAILURES

_MOST_SCOPES: Final = 50
"""So many wide scopes are looked at, each by a walk along all that its call waits for."""
_MOST_NAMED: Final = 3
_WHOLE_MESSAGES: Final = frozenset({"text", "system"})
"""Kinds of messages that are no data and may be scopes (SPEC R8.3)."""
_DESCRIBING: Final = ("title", "description")
_NOT_WRITTEN: Final = ("input", FAILURES)
"""An input comes from outside, also later (SPEC R6.3)."""


def surrounding_findings(layout: Layout) -> Iterator[Finding]:
    """Everything that follows from what stands around the calls' parameters."""
    places = KnownPlaces(layout)
    yield from _empty_scopes(layout, places)
    yield from _wide_scopes(layout)
    yield from _left_out(layout)
    yield from _idle_properties(layout)
    yield from _missing_paths(layout)
    yield from _wrapped_tools(layout)
    yield from _hidden_data(layout)
    yield from _never_written(layout, places)


def _empty_scopes(layout: Layout, places: KnownPlaces) -> Iterator[Finding]:
    """Scopes that show nothing, where another one would: it is misspelt, or only an instance has it."""
    for call in layout.calls:
        at = place_in(call.raw, "_scopes")
        for index, scope in enumerate(call.scopes):
            if scope.kind == FAILURES or scope.kind in _WHOLE_MESSAGES or call.is_thought:
                continue
            where: tuple[str | int, ...] = (*at, index) if at else ()
            why = f"is shown nothing of {call.properties['_scopes'][index]}"
            if not places.has(scope):
                near = places.nearest(scope)
                if near is not None:
                    why += ": the context does not hold it and no call writes it"
                    yield on_call(layout, "ACT401", call, why, f"write {near if near.path else near.kind}", *where)
            elif (
                call.instance is None
                and not call.gather
                and not layout.submission.is_template
                and (name := places.holder(scope))
            ):
                why = f"{why}: it has no _instance, and only instances such as {name!r} hold it"
                yield on_call(layout, "ACT402", call, why, f'give the call "_instance": "{name}"', *where)


def _wide_scopes(layout: Layout) -> Iterator[Finding]:
    """Whole kinds in scopes for which alone a call waits for others (SPEC R8.3a)."""
    left = _MOST_SCOPES
    for lane in {id(lane.calls): lane for lane in layout.lanes.values()}.values():
        writers = Writers(lane.calls)
        for call in lane.calls:
            whole = [scope for scope in call.scopes if not scope.path and scope.kind not in _WHOLE_MESSAGES]
            if not whole or call.is_thought or left <= 0:
                continue
            earlier = {
                index for scope in whole for line in writers.lines(scope) for index in line.calls if index < call.index
            }
            left -= 1
            delaying = sorted(earlier - _awaited(lane.graph, call, whole)) if earlier else []
            if delaying:
                some = ", ".join(map(str, delaying[:_MOST_NAMED])) + ", …" * (len(delaying) > _MOST_NAMED)
                kinds = ", ".join(scope.kind for scope in whole)
                place = next((str(own) for own in _call(layout, delaying[0]).written if own.kind in kinds), "")
                why = f"has all of {kinds} in its _scopes and waits for calls {some} only because of that"
                yield on_call(
                    layout,
                    "ACT403",
                    call,
                    why,
                    f"list the places that it needs, such as {place}, to let it run at the same time",
                    *place_in(call.raw, "_scopes"),
                )


def _call(layout: Layout, index: int) -> Call:
    """The call of an index."""
    return layout.calls[index - layout.submission.first]


def _awaited(graph: Graph, call: Call, whole: list[Reference]) -> set[int]:
    """The calls that a call waits for in any case, one through another."""
    read = (*graph.waits.get(call.index, {}).values(), *_narrow(graph, call, whole))
    stack, seen = [node for nodes in read for node in nodes], set[int]()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(graph.directly_before(node))
    return seen


def _narrow(graph: Graph, call: Call, whole: list[Reference]) -> Iterator[tuple[int, ...]]:
    return (nodes for place, nodes in graph.scopes.get(call.index, {}).items() if place not in whole)


def _left_out(layout: Layout) -> Iterator[Finding]:
    """Scope waits that would close a cycle, and so are none (SPEC R8.3a)."""
    writers: dict[int, list[int]] = {}
    for reader, writer in layout.dropped_waits:
        writers.setdefault(reader, []).append(writer)
    for reader, dropped in writers.items():
        call = _call(layout, reader)
        some = ", ".join(map(str, dropped[:_MOST_NAMED])) + ", …" * (len(dropped) > _MOST_NAMED)
        why = f"does not wait for calls {some}, which write in its _scopes: they wait for it"
        remedy = "list the places that it needs, or take the reference out that closes the cycle"
        yield on_call(layout, "ACT408", call, why, remedy, *place_in(call.raw, "_scopes"))


def _idle_properties(layout: Layout) -> Iterator[Finding]:
    """Meta-properties without effect: a method without a path, a result beside what gives one."""
    for call in layout.calls:
        if call.output is None and call.raw.get("_outputMethod") is not None:
            why = "has an _outputMethod and no _outputPath: its result goes nowhere"
            yield on_call(layout, "ACT404", call, why, "add an _outputPath", "_outputMethod")
        if call.raw.get("_output") is not None and call.runner.executor is not Executor.LATENT:
            is_certain = call.runner.executor is Executor.DELEGATE or call.runner.name in layout.signatures
            if is_certain or call.properties.get("_activity"):
                why = f"has an _output, and {call.runner.executor} {call.runner.name!r} gives the result"
                yield on_call(layout, "ACT404", call, why, "leave _output out", "_output")


def _missing_paths(layout: Layout) -> Iterator[Finding]:
    """Calls without an output path, of tools that say which it may be."""
    limiting = {name: _limits_path(tool) for name, tool in layout.tools.items()}
    for call in layout.calls:
        if call.output is None and (limit := limiting.get(call.tool)):
            why = f"has no _outputPath, and its tool says what it may be ({limit}): its result goes nowhere"
            yield on_call(layout, "ACT405", call, why, "add an _outputPath that the tool admits")


def _limits_path(tool: Tool) -> str | None:
    """The keyword by which a tool limits output paths."""
    said = tool.document["properties"].get("_outputPath")
    for part in joined((said,), tool.document) if said is not None else ():
        if isinstance(part, dict):
            return next((word for word in ("enum", "oneOf", "anyOf", "pattern") if word in part), None)
    return None


def _wrapped_tools(layout: Layout) -> Iterator[Finding]:
    """Tools declared as in other systems, whose schema then means nothing (SPEC R4.1)."""
    for name in dict.fromkeys(call.tool for call in layout.calls):
        tool = layout.submission.tools.get(name)
        where = calls_inside(tool.declaration) if tool is not None else None
        if where is not None:
            calls = tuple(islice((call.index for call in layout.calls if call.tool == name), _MOST_NAMED))
            why = f"the tool {name!r} keeps its schema under {where}, where it means nothing: any call fits"
            yield Finding("ACT406", why, calls, None, f"put what is under {where} in place of the declaration")


def _hidden_data(layout: Layout) -> Iterator[Finding]:
    """Data under a name that is reserved in a flat message (SPEC R1.3)."""
    read = {place.key[:2] for call in layout.calls for place in places_seen(call) if place.path}
    for index, message in enumerate(layout.context.messages):
        if message.get("type") not in DATA_TYPES or is_written(message):
            continue
        kind = kind_of(message)
        if "data" in message or (kind in DATA_TYPES and kind in message):
            continue
        for key in _DESCRIBING:
            if key in message and (not isinstance(message[key], str) or (kind, key) in read):
                yield Finding(
                    "ACT407",
                    f"the message has {key!r} beside its data, where it describes the message and is not data",
                    (),
                    pointer("context", index, key),
                    f'put the data under "data": {{"{key}": …}}',
                )


def _never_written(layout: Layout, places: KnownPlaces) -> Iterator[Finding]:
    """What a kind's schema requires, no call writes and the context does not hold."""
    if not layout.calls:
        return
    found: dict[Reference, Finding] = {}
    for index, message in enumerate(layout.context.messages):
        data = read_data(message)
        schema = message.get("schema")
        if data is None or is_written(message) or data.kind in _NOT_WRITTEN or not isinstance(schema, dict):
            continue
        required = schema.get("required")
        for key in required if isinstance(required, list) else ():
            place = Reference(data.kind, (key,))
            if not places.has(place):
                found[place] = Finding(
                    "ACT208",
                    f"the schema of {data.kind} requires {key!r}, and no call writes {place}",
                    (),
                    pointer("context", index, "schema", "required"),
                    f"let a call write {place}, or do not require it",
                )
    yield from found.values()
