"""Tools as a model is shown them: a signature, what is said of it, and where its result goes (SPEC R12.2a, R12.5). The
type of the output, too.

refund(order: string, amount?: number) -> {refunded: number}
  Refund an order. Cannot be undone.
  amount: In euros; all of it where it is left out.
  writes †state.refund; sees state
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from acts_celery.protocol.calls.tools import Executor, Tool
from acts_celery.protocol.language.visible import one_line
from acts_celery.protocol.schemas import CompiledSchema, conjuncts
from acts_celery.protocol.schemas.addresses import normalized
from acts_celery.protocol.schemas.parts import admits_name

from .call_schemas import said_of_others
from .data_blocks import compact
from .request import Request
from .type_texts import type_text
from .widening import joined


def tool_text(request: Request, tool: Tool) -> str:
    """What a model is shown of a tool: a few lines."""
    return text_of(tool, _result(request, tool))


def function_text(request: Request, tool: Tool) -> Iterator[str]:
    """What its function says, where a provider carries the tools: all that its parameters do not say."""
    yield from _described(conjuncts((tool.document,), tool.document))
    if (result := _result(request, tool)) is not None:
        yield f"-> {type_text(result.document, result.document)}"
    yield from _pinned(tool)


def output_text(request: Request) -> str:
    """What a model is shown of the output's type: some lines, or nothing where no output is asked for."""
    document = normalized(request.schema)
    if document is False:
        return ""
    return "\n".join([type_text(document, document), *(f"  {line}" for line in _said_in(document))])


def text_of(tool: Tool, result: CompiledSchema | None) -> str:
    """The lines of a tool of which this is known of its results."""
    return "\n".join([_signature(tool, result), *(f"  {line}" for line in _said(tool))])


def _signature(tool: Tool, result: CompiledSchema | None) -> str:
    """The first line: name, parameters, and the type of the result where it is known."""
    parts = conjuncts((tool.document,), tool.document)
    required = {name for part in parts for name in part.get("required", ())}
    properties = _properties(parts)
    parameters = [
        f"{one_line(name)}{'' if name in required else '?'}: {type_text(schema, tool.document)}"
        for name, schema in properties.items()
        if not name.startswith("_")
    ]
    if others := said_of_others(parts, properties):
        parameters.append(f"[name]: {type_text(joined(others), tool.document)}")
    returns = f" -> {type_text(result.document, result.document)}" if result is not None else ""
    return f"{one_line(tool.name)}({', '.join(parameters)}){returns}"


def _said(tool: Tool) -> Iterator[str]:
    """The lines below the signature."""
    yield from _said_in(tool.document)
    yield from _pinned(tool)


def _said_in(document: Any) -> Iterator[str]:
    """What is said of an object, and of its properties."""
    parts = conjuncts((document,), document)
    yield from _described(parts)
    for name, schema in _properties(parts).items():
        if not name.startswith("_"):
            said = conjuncts((schema,), document)
            yield from (f"{one_line(name)}: {line}" for line in _described(said))


def _pinned(tool: Tool) -> Iterator[str]:
    """The line of what is fixed."""
    pins = [f"{word} {one_line(text)}" for word, text in _pins(tool)]
    if pins:
        yield "; ".join(pins)


def _pins(tool: Tool) -> Iterator[tuple[str, str]]:
    """Where its result goes, and what it sees, as far as that is fixed."""
    constants = tool.constants
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
    """What a place is said to be: by the first of the schemas that are applied there and say it."""
    described = (part["description"] for part in parts if isinstance(part.get("description"), str))
    for said in islice(filter(str.strip, described), 1):
        yield one_line(" ".join(said.split()))


def _properties(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said of each property, by its name: by all that say something of it."""
    found: dict[str, list[Any]] = {}
    for part in parts:
        for name, schema in part.get("properties", {}).items():
            found.setdefault(name, []).append(schema)
    joined = {name: said[0] if len(said) == 1 else {"allOf": said} for name, said in found.items()}
    return {name: said for name, said in joined.items() if admits_name(parts, name)}


def _result(request: Request, tool: Tool) -> CompiledSchema | None:
    """What is known of its results: by the tool, else by the signature of the activity that runs its calls."""
    if tool.compiled_output is not None:
        return tool.compiled_output
    runner = request.runner(tool)
    code = request.known.activity(runner.name) if runner.executor is Executor.ACTIVITY else None
    return code.compiled_output if code is not None else None
