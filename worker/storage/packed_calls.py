"""Calls, tools and places as a definition and the records of lanes hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acts_celery.protocol.calls.call import Call, make_call
from acts_celery.protocol.calls.tools import Executor, Runner, Tool
from acts_celery.protocol.graph.gathering import Gathers
from acts_celery.protocol.graph.lanes import Lane

PLACES: Final = ("held", "promised", "required")
"""What a record says of the context (see `Lane`)."""


def pack_tools(tools: Mapping[str, Tool]) -> dict[str, Any]:
    """Tools by name, as they are declared."""
    return {name: dict(tool.declaration) for name, tool in tools.items()}


def unpack_tools(declarations: Mapping[str, Any]) -> dict[str, Tool]:
    """The inverse of `pack_tools`."""
    return {name: Tool(name, declaration) for name, declaration in declarations.items()}


def pack_calls(calls: Sequence[Call]) -> list[Any]:
    """Calls, each as index, text, executor, name, and the sources that its model was shown, where there are any."""
    return [[call.index, dict(call.raw), call.runner.executor.value, call.runner.name, *_told(call)] for call in calls]


def unpack_calls(calls: Sequence[Any], tools: Mapping[str, Tool]) -> tuple[Call, ...]:
    """The inverse of `pack_calls`; `tools` are those that the calls name."""
    return tuple(_call(tools, *packed) for packed in calls)


def _told(call: Call) -> list[list[str]]:
    return [sorted(call.told)] if call.told else []


def _call(
    tools: Mapping[str, Tool], index: int, raw: Mapping[str, Any], executor: str, name: str, told: Sequence[str] = ()
) -> Call:
    constants = tools[raw["_tool"]].constants if raw["_tool"] in tools else {}
    call = make_call(index, raw, constants, Runner(Executor(executor), name))
    return replace(call, told=frozenset(told)) if told else call


def all_places_of(lane: Lane) -> dict[str, Any]:
    """The places that the context held or promised when a lane was laid out, as its record has them."""
    return {**_places_of(lane), "gathers": _places_of(lane.gathers) if lane.gathers is not None else None}


def _places_of(laid_out: Lane | Gathers) -> dict[str, frozenset[str]]:
    return {name: frozenset(map(str, getattr(laid_out, name))) for name in PLACES}


def pack_all_places(places: Mapping[str, Any]) -> dict[str, Any]:
    """What `all_places_of` has given."""
    gathers = places["gathers"]
    return pack_places(places) | ({} if gathers is None else {"gathers": pack_places(gathers)})


def pack_places(places: Mapping[str, Any]) -> dict[str, list[str]]:
    """The places of a record, or of what it keeps."""
    return {name: sorted(places[name]) for name in PLACES if places[name] or name == "held"}


def unpack_gathers(fields: Mapping[str, Any] | None) -> Mapping[str, frozenset[str]] | None:
    """The places as the gather calls of the global lane saw them."""
    return None if fields is None else {name: frozenset(fields.get(name, ())) for name in PLACES}
