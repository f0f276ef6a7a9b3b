"""Tools as a model is shown them: a signature, a description, and where results go (SPEC R12.2a, R12.5); and the type
of the output.

refund(order: string, amount?: number) -> {refunded: number}
  Refund an order. Cannot be undone.
  amount: In euros; all of it where it is left out.
  writes †state.refund; sees state
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final, TypeVar

from .. import limits
from ..calls.pins import NOTHING
from ..calls.tools import Executor, Tool
from ..errors import one_line
from ..schemas import CompiledSchema, conjuncts, excerpt
from ..schemas.walk import admits_name, all_of, normalized, properties_in, referred
from . import texts
from .data_blocks import compact
from .schema import Request, compose, said_of_others
from .widening import joined

# Types as a model is shown them: a schema in the way of programs (SPEC R12.2a).
#
#     {refunded: number, at?: string(date), by: "card" | "bank"}
#
# It is an outline: the schema of the whole answer says the rest. So of a large type the first thousands of characters
# are written, and how many fields, choices or values are left out.

T = TypeVar("T")

_ANY: Final = "any"
_OR: Final = " | "
_PLAIN: Final = frozenset({"string", "number", "integer", "boolean", "null", "object"})


def type_text(schema: Any, document: Any) -> str:
    """The type that a schema describes, as programs write it; `any` where it is too deep or has no name.

    >>> type_text({"properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}, {})
    '{a: string, b?: any}'
    """
    return _Types(document).text(schema, 0)


class _Types:
    """Writes the types of a document, until there are as many characters as are shown."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._left = limits.MOST_CHARACTERS

    def text(self, schema: Any, depth: int) -> str:
        if not isinstance(schema, dict) or depth > limits.TOOL_TEXTS_DEEPEST:
            return self._counted("never" if schema is False else _ANY)
        if "const" in schema:
            return self._counted(compact(schema["const"]))
        if "enum" in schema:
            return _OR.join(
                self._first(schema["enum"], lambda value: self._counted(compact(value)), limits.TOOL_TEXTS_MOST_VALUES)
            )
        if "$ref" in schema:
            return self.text(referred(schema["$ref"], self._document), depth + 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema and "properties" not in schema:
                return _union(self._below(schema[keyword], depth))
        types = schema.get("type")
        if isinstance(types, list):
            return _union(self.text({**schema, "type": each}, depth) for each in types)
        if types is None and schema.get("allOf"):
            return _joined(self._below(schema["allOf"], depth))
        return self._of_type(types, schema, depth)

    def _of_type(self, type_: Any, schema: Mapping[str, Any], depth: int) -> str:
        if type_ == "array":
            if places := self._below(schema.get("prefixItems", ()), depth):
                return f"[{', '.join(places)}]"
            item = self.text(schema.get("items", True), depth + 1)
            return f"({item})[]" if _OR in item else f"{item}[]"
        if type_ == "object" or (type_ is None and "properties" in schema):
            return self._object(schema, depth)
        if type_ == "string" and isinstance(schema.get("format"), str):
            return self._counted(f"string({one_line(schema['format'])})")
        return self._counted(type_ if isinstance(type_, str) else _ANY)

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        required = schema.get("required", ())

        def field(pair: tuple[str, Any]) -> str:
            name = self._counted(f"{one_line(pair[0])}{'' if pair[0] in required else '?'}: ")
            return name + self.text(pair[1], depth + 1)

        fields = self._first(schema.get("properties", {}).items(), field)
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and not fields:
            return f"{{[name]: {self.text(others, depth + 1)}}}"
        return f"{{{', '.join(fields)}}}" if fields else self._counted("object")

    def _below(self, schemas: Iterable[Any], depth: int) -> list[str]:
        return self._first(schemas, lambda schema: self.text(schema, depth + 1))

    def _first(self, parts: Iterable[T], write: Callable[[T], str], most: int | None = None) -> list[str]:
        """Write the parts for which there is room, and the number of the others."""
        parts, written = list(parts), list[str]()
        for part in parts[:most]:
            if self._left <= 0:
                break
            written.append(write(part))
        left = len(parts) - len(written)
        return [*written, f"… {left} more"] if left else written

    def _counted(self, text: str) -> str:
        self._left -= len(text)
        return text


def _union(types: Iterable[str]) -> str:
    return _OR.join(dict.fromkeys(types)) or _ANY


def _joined(types: list[str]) -> str:
    """Type of a value that is of all given types; a plain type beside one that says more is left out."""
    known = [each for each in dict.fromkeys(types) if each != _ANY]
    known = [each for each in known if each not in _PLAIN] or [each for each in known if each != "number"] or known
    return " & ".join(f"({each})" if _OR in each and len(known) > 1 else each for each in known) or _ANY


def tool_text(request: Request, tool: Tool) -> str:
    """Lines that show a tool to a model."""
    return text_of(tool, result_of(request, tool))


def output_text(request: Request) -> str:
    """Lines that show the output's type to a model; empty if no output is asked for."""
    document = normalized(request.schema)
    if document is False:
        return ""
    return "\n".join([type_text(document, document), *(f"  {line}" for line in _descriptions_in(document))])


def text_of(tool: Tool, result: CompiledSchema | None) -> str:
    """Lines that show a tool whose results have the schema `result`."""
    return "\n".join(
        [
            _signature(tool, result),
            *(f"  {line}" for line in (*_descriptions_in(tool.document, tool.inputs.inside.texts), *_pinned(tool))),
        ]
    )


def _signature(tool: Tool, result: CompiledSchema | None) -> str:
    """The first line: name, parameters, and the type of the result where it is known."""
    parts = conjuncts((tool.document,), tool.document)
    required = {name for part in parts for name in part.get("required", ())}
    properties, inside = _properties(parts), tool.inputs.inside
    shown = {name: tool.inputs.offered(one, inside.deeper.get(name, NOTHING)) for name, one in properties.items()}
    parameters = [
        f"{one_line(name)}{'' if name in required else '?'}: {type_text(schema, tool.document)}"
        for name, schema in (shown if inside.deeper else properties).items()
        if not name.startswith("_") and name not in inside.texts
    ]
    if others := said_of_others(parts, properties):
        parameters.append(f"[name]: {type_text(joined(others), tool.document)}")
    returns = f" -> {type_text(result.document, result.document)}" if result is not None else ""
    return f"{one_line(tool.name)}({', '.join(parameters)}){returns}"


def _descriptions_in(document: Any, left_out: Container[str] = ()) -> Iterator[str]:
    """Descriptions of an object and of its properties."""
    parts = conjuncts((document,), document)
    yield from _described(parts)
    for name, schema in _properties(parts).items():
        if not name.startswith("_") and name not in left_out:
            said = conjuncts((schema,), document)
            yield from (f"{one_line(name)}: {line}" for line in _described(said))


def _pinned(tool: Tool) -> Iterator[str]:
    """Line with the parameters, places and scopes that the tool pins."""
    pins = [f"{word} {one_line(text)}" for word, text in _pins(tool)]
    if pins:
        yield "; ".join(pins)


def _pins(tool: Tool) -> Iterator[tuple[str, str]]:
    """Pinned parameters, places, scopes and lists, each with the word before it."""
    constants = tool.constants
    if given := [f"{name} = {text}" for name, text in tool.inputs.inside.listed()]:
        yield "is given", ", ".join(given)
    if paths := tool.choices("_outputPath"):
        yield "writes", " or ".join(paths)
    if isinstance(scopes := constants.get("_scopes"), list) and scopes:
        yield "sees", ", ".join(map(str, scopes))
    elif choices := list(_scope_choices(tool)):
        yield "possible", f'"_scopes": {compact(choices)}'
    if tool.lists:
        named = " or ".join(map(compact, tool.lists))
        yield ("always" if "_each" in constants else "possible"), f'"_each": {named}'


def _scope_choices(tool: Tool) -> Iterator[Any]:
    """The scopes that its calls may choose from, where they are listed."""
    said = _properties(conjuncts((tool.document,), tool.document)).get("_scopes", {})
    for part in conjuncts((said,), tool.document):
        for items in conjuncts((part.get("items", {}),), tool.document):
            yield from items.get("enum", ())


def _described(parts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Description of a place, from the first of its schemas that has one."""
    described = (part["description"] for part in parts if isinstance(part.get("description"), str))
    for said in islice(filter(str.strip, described), 1):
        yield one_line(" ".join(said.split()))


def _properties(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Schema of each property, by name, from all parts that describe it."""
    return {name: all_of(said) for name, said in properties_in(parts).items() if admits_name(parts, name)}


def result_of(request: Request, tool: Tool) -> CompiledSchema | None:
    """Schema of a tool's results: its own, else from the activity that runs its calls."""
    if tool.compiled_output is not None:
        return tool.compiled_output
    runner = request.runner(tool)
    code = request.known.activity(runner.name) if runner.executor is Executor.ACTIVITY else None
    return code.compiled_output if code is not None else None


# Functions: a request's tools and its output as the functions of a provider's own tool calling (SPEC R12.6).
#
#     {"name": "refund", "description": "…", "parameters": {"type": "object", "properties": {"order": …}}}
#     {"name": "output", "description": "…", "parameters": {"type": "object", "properties": {"output": …}}}
#
# All of it follows from the composed schema, so that is what is written down and sent about. A call's meta-properties
# are parameters like the others. What a function cannot say - conditions on a call as a whole - is validated
# afterwards.

JSON: Final = "json"
TOOLS: Final = "tools"
"""The `wire` of a request whose tools are shown in its messages, and of one whose tools go as functions."""
REQUIRED: Final = "required"
"""Its `tool_choice` where words alone are no answer."""
_ANY_PLACE: Final = {"$ref": "#/$defs/reference"}
"""The schema of an `_outputPath` that the tool does not describe."""
OUTPUT: Final = "output"
"""The function of the output, and its parameter."""
_ADMITTED: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_ADMITTED: Final = re.compile(r"[^a-zA-Z0-9_-]")
_SAID: Final = ("type", "properties", "required", "additionalProperties", "patternProperties")
"""The keywords of a call schema that functions have: providers refuse others at the top."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a model may call."""

    tool: str | None
    """Tool of the function; None for the function of the output."""
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
                name = f"{plain[: limits.TOOL_TEXTS_LONGEST - len(str(number)) - 1]}_{number}"
            names[tool] = name
            taken.add(name)
    return {tool: names[tool] for tool in tools}


def function_name(tool: str) -> str:
    """A name that every provider admits, as near as possible to the tool's.

    >>> function_name("files.read")
    'files_read'
    """
    return _NOT_ADMITTED.sub("_", tool)[: limits.TOOL_TEXTS_LONGEST] or "_"


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
    names = wire_names(request.tools)
    calls = [
        _described_function(request, tool, call, names[tool.name])
        for tool, call in zip(request.tools.values(), _calls(composed), strict=True)
    ]
    shown = {"calls": {"type": "array", "items": {"anyOf": calls}}} if calls else {}
    return {**composed, "properties": composed["properties"] | shown}


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


def _described_function(request: Request, tool: Tool, call: Mapping[str, Any], name: str) -> dict[str, Any]:
    lines = list(_function_lines(request, tool, name))
    said = {key: part for key, part in call.items() if key != "description"}
    described = {"type": "object", "description": "\n".join(lines)} if lines else {}
    if request.may_say_null and call["properties"].get("_outputPath") == _ANY_PLACE:
        said["properties"] = {**call["properties"], "_outputPath": {"anyOf": [_ANY_PLACE, {"type": "null"}]}}
    return {**described, **said, "required": [name for name in call["required"] if name != "_outputPath"]}


def _function_lines(request: Request, tool: Tool, name: str) -> Iterator[str]:
    """Lines that describe a function: the tool's name, if the function's differs, and all that its parameters do not
    say.
    """
    if name != tool.name:
        yield texts.function_of(tool.name)
    yield from _described(conjuncts((tool.document,), tool.document))
    if (result := result_of(request, tool)) is not None:
        yield f"-> {type_text(result.document, result.document)}"
    yield from _pinned(tool)
