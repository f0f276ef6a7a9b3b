"""Surroundings: scopes, tools and meta-properties that do not do what they seem to (SPEC R4.1, R4.3, R8)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from protocol.calls.call import place_in
from protocol.calls.tools import Executor
from protocol.submission.layout import Layout

from .finding import Finding, on_call
from .known_places import KnownPlaces
from .type_flow import FAILURES

_MOST_NAMED: Final = 3
_WHOLE_MESSAGES: Final = frozenset({"text", "system"})
"""Kinds of messages that are no data and may be scopes (SPEC R8.3)."""
_CALLS_INSIDE: Final = (("parameters",), ("input_schema",), ("inputSchema",), ("function", "parameters"))
"""Where other systems keep the schema of a tool's calls."""


def surrounding_findings(layout: Layout) -> Iterator[Finding]:
    """Everything that follows from what stands around the calls' parameters."""
    places = KnownPlaces(layout)
    yield from _empty_scopes(layout, places)
    yield from _left_out(layout)
    yield from _idle_properties(layout)
    yield from _wrapped_tools(layout)


def _empty_scopes(layout: Layout, places: KnownPlaces) -> Iterator[Finding]:
    """Scopes that show nothing, where one with nearly the same name would."""
    for call in layout.calls:
        at = place_in(call.raw, "_scopes")
        for index, scope in enumerate(call.scopes):
            if scope.kind == FAILURES or scope.kind in _WHOLE_MESSAGES or call.is_thought:
                continue
            where: tuple[str | int, ...] = (*at, index) if at else ()
            why = f"is shown nothing of {call.properties['_scopes'][index]}"
            if not places.has(scope) and (near := places.nearest(scope)) is not None:
                why += ": the context does not hold it and no call writes it"
                yield on_call(layout, "ACT401", call, why, f"write {near if near.path else near.kind}", *where)


def _left_out(layout: Layout) -> Iterator[Finding]:
    """Scope waits that would close a cycle, and so are none (SPEC R8.3a)."""
    writers: dict[int, list[int]] = {}
    for reader, writer in layout.dropped_waits:
        writers.setdefault(reader, []).append(writer)
    for reader, dropped in writers.items():
        call = layout.calls[reader - layout.submission.first]
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


def _wrapped_tools(layout: Layout) -> Iterator[Finding]:
    """Tools declared as in other systems, whose schema then means nothing (SPEC R4.1)."""
    for name in dict.fromkeys(call.tool for call in layout.calls):
        tool = layout.submission.tools.get(name)
        declaration: Any = tool.declaration if tool is not None else {}
        for path in _CALLS_INSIDE if "properties" not in declaration else ():
            inside = declaration
            for key in path:
                inside = inside.get(key) if isinstance(inside, dict) else None
            if isinstance(inside, dict) and ("properties" in inside or inside.get("type") == "object"):
                where = ".".join(path)
                calls = tuple(islice((call.index for call in layout.calls if call.tool == name), _MOST_NAMED))
                why = f"the tool {name!r} keeps its schema under {where}, where it means nothing: any call fits"
                yield Finding("ACT406", why, calls, None, f"put what is under {where} in place of the declaration")
