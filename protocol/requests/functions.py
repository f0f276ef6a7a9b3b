"""Functions: a request's tools and its output as the functions of a provider's own tool calling (SPEC R12.6).

    {"name": "refund", "description": "…", "parameters": {"type": "object", "properties": {"order": …}}}
    {"name": "output", "description": "…", "parameters": {"type": "object", "properties": {"output": …}}}

All of it follows from the composed schema, so that is what is written down and sent about. A call's meta-properties are
parameters like the others. What a function cannot say - conditions on a call as a whole - is validated afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.schemas import excerpt

from . import texts
from .composition import compose
from .request import Request
from .tool_texts import function_text

JSON: Final = "json"
TOOLS: Final = "tools"
"""The `wire` of a request whose tools are shown in its messages, and of one whose tools go as functions."""
REQUIRED: Final = "required"
"""Its `tool_choice` where words alone are no answer."""
OUTPUT: Final = "output"
"""The function of the output, and its parameter."""
_ADMITTED: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_ADMITTED: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 64
_SAID: Final = ("type", "properties", "required", "additionalProperties", "patternProperties")
"""The keywords of a call schema that functions have: providers refuse others at the top."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a model may call."""

    tool: str | None
    """The tool that it stands for; None where it is the output."""
    name: str
    description: str
    parameters: dict[str, Any]
    """A JSON Schema of an object."""
    is_strict: bool = False
    """Whether the provider enforces it."""


def wire_names(tools: Iterable[str]) -> dict[str, str]:
    """The names that tools have as functions, by the names that they have here; each is another one.

    >>> wire_names(["files.read", "files_read", "output"])
    {'files.read': 'files_read_2', 'files_read': 'files_read', 'output': 'output_2'}
    """
    tools = list(tools)
    names = {tool: tool for tool in tools if _ADMITTED.fullmatch(tool) and tool != OUTPUT}
    taken = {OUTPUT, *names}
    for tool in tools:
        if tool not in names:
            plain = name = function_name(tool)
            number = 1
            while name in taken:
                number += 1
                name = f"{plain[: _LONGEST - len(str(number)) - 1]}_{number}"
            names[tool] = name
            taken.add(name)
    return {tool: names[tool] for tool in tools}


def function_name(tool: str) -> str:
    """A name like that of a tool which every provider admits.

    >>> function_name("files.read")
    'files_read'
    """
    return _NOT_ADMITTED.sub("_", tool)[:_LONGEST] or "_"


def names_in(request: Request) -> Mapping[str, str]:
    """The names that the tools of a request have as functions."""
    return wire_names(request.tools)


def can_be_carried(request: Request) -> bool:
    """Whether functions carry all that is asked for: not where advice is wanted (SPEC R15)."""
    properties: Mapping[str, Any] = compose(request)["properties"]
    return properties.keys() == {"calls", "output"}


def first_schema(request: Request) -> dict[str, Any]:
    """The schema that a request is sent with."""
    return function_schema(request) if request.is_native else compose(request)


@lru_cache(maxsize=64)
def function_schema(request: Request) -> dict[str, Any]:
    """The composed schema of a request whose tools go as functions: each of them says what else is to be known of it,
    and no call has to name its place.
    """
    composed = compose(request)
    names = names_in(request)
    calls = [_described(request, *pair, names) for pair in zip(request.tools.values(), _calls(composed), strict=True)]
    properties = {
        **composed["properties"],
        **({"calls": {"type": "array", "items": {"anyOf": calls}}} if calls else {}),
    }
    return {**composed, "properties": properties}


def functions_of(schema: Mapping[str, Any]) -> list[Function]:
    """The functions of a schema that `function_schema` has made; the output is the last one."""
    calls = _calls(schema)
    names = wire_names(call["properties"]["_tool"]["const"] for call in calls)
    tools = [_function(call, names, schema) for call in calls]
    branches = [each for each in schema["properties"][OUTPUT].get("anyOf", ()) if each != {"type": "null"}]
    if not branches:
        return tools
    properties = {OUTPUT: branches[0] if len(branches) == 1 else {"anyOf": branches}}
    output = {"type": "object", "properties": properties, "required": [OUTPUT], "additionalProperties": False}
    return [*tools, Function(None, OUTPUT, texts.OUTPUT_FUNCTION, excerpt(output, dict(schema)))]


def _function(call: Mapping[str, Any], names: Mapping[str, str], schema: Mapping[str, Any]) -> Function:
    said = {key: call[key] for key in _SAID if key in call}
    said["properties"] = {name: part for name, part in said["properties"].items() if name != "_tool"}
    said["required"] = [name for name in said["required"] if name != "_tool"]
    tool = call["properties"]["_tool"]["const"]
    return Function(tool, names[tool], call.get("description", ""), excerpt(said, dict(schema)))


def _calls(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The call schemas of a composed schema, in the order of its tools."""
    calls: list[dict[str, Any]] = schema["properties"]["calls"].get("items", {}).get("anyOf", [])
    return calls


def _described(request: Request, tool: Tool, call: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    lines = list(_lines(request, tool, names[tool.name]))
    said = {key: part for key, part in call.items() if key != "description"}
    described = {"type": "object", "description": "\n".join(lines)} if lines else {}
    return {**described, **said, "required": [name for name in call["required"] if name != "_outputPath"]}


def _lines(request: Request, tool: Tool, name: str) -> Iterator[str]:
    """What is said of a function; first which tool it is, where it has another name."""
    if name != tool.name:
        yield texts.function_of(tool.name)
    yield from function_text(request, tool)
