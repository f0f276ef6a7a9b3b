"""Calls and tools as a definition and the records of lanes hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from acts_celery.protocol.calls.call import Call, make_call
from acts_celery.protocol.calls.tools import Executor, Runner, Tool


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
