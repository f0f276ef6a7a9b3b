"""Declarations: the tools that a document declares, and what is wrong with them (SPEC R4.1, R12.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from acts_celery.protocol.language.errors import Cause, Problem, pointer, shortened
from acts_celery.protocol.language.limits import CONTROL, has_control_characters
from acts_celery.protocol.language.messages import TRUST
from acts_celery.protocol.language.references import Path
from acts_celery.protocol.schemas import SchemaError

from .tools import WHO, Tool
from .trust import trust_problems


@dataclass(frozen=True, slots=True)
class NoSchema(Cause):
    """A tool's declaration is not a JSON Schema."""

    declaration: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Declared:
    """The tools that a document declares; of several declarations of a name only the last counts."""

    tools: dict[str, Tool] = field(default_factory=dict)
    """Those that it gives a schema."""
    places: dict[str, Path] = field(default_factory=dict)
    """All of them, in order, with where each stands. One that is not in `tools` is a bare name: it has the schema of
    the activity that is registered under it (SPEC R12.2).
    """


def read_tools(context: Any, shorthand: Any) -> tuple[Declared, list[Problem]]:
    """The tools declared by a context's messages and by the shorthand beside it: an object of name to schema, or a list
    of names and such objects.
    """
    declared = Declared()
    problems: list[Problem] = []
    sources: list[tuple[tuple[str | int, ...], Any]] = [
        (("context", index, "tool"), message.get("tool"))
        for index, message in enumerate(context)
        if isinstance(message, dict) and message.get("type") == "tool"
    ]
    if shorthand is not None:
        sources.append((("tools",), shorthand))
    for at, declarations in sources:
        if declarations is None:
            problems.append(Problem(pointer(*at[:-1]), 'a tool message needs "tool": tool name to JSON Schema'))
            continue
        if not isinstance(declarations, (dict, list)):
            problems.append(Problem(pointer(*at), "must be an object of tool name to JSON Schema, or a list of names"))
            continue
        listed = enumerate(declarations) if isinstance(declarations, list) else [(None, declarations)]
        for index, item in listed:
            problems += _declare(item, declared, *at, *(() if index is None else (index,)))
    return declared, problems


def _declare(item: Any, declared: Declared, *at: str | int) -> Iterator[Problem]:
    """Take in a bare name, or an object of tool name to JSON Schema."""
    if isinstance(item, str) and item:
        declared.tools.pop(item, None)
        declared.places[item] = at
    elif not isinstance(item, dict):
        yield Problem(pointer(*at), "must be the name of a tool, or an object of tool name to JSON Schema")
    else:
        for name, declaration in item.items():
            if not name:
                yield Problem(pointer(*at, name), "a tool needs a name")
            if has_control_characters(name):
                yield Problem(pointer(*at, name), CONTROL)
            tool = Tool(name, declaration)
            problem = _declaration_problem(tool, *at, name)
            if problem is not None:
                yield problem
                tool = Tool(name, {key: {} for key in WHO})  # so that nothing is said against its calls as well
            declared.tools[name] = tool
            declared.places[name] = (*at, name)


def _declaration_problem(tool: Tool, *at: str | int) -> Problem | None:
    declaration: Any = tool.declaration
    if not isinstance(declaration, dict):
        return Problem(pointer(*at), "a tool must be a JSON Schema object")
    if not isinstance(declaration.get("properties", {}), dict):
        return Problem(pointer(*at, "properties"), "must be an object")
    required = declaration.get("required", [])
    if not isinstance(required, list) or not all(isinstance(key, str) for key in required):
        return Problem(pointer(*at, "required"), "must be a list of strings")
    if TRUST in declaration and (problem := next(trust_problems(declaration[TRUST], *at, TRUST), None)) is not None:
        return problem
    try:
        _ = tool.compiled
    except SchemaError as error:
        place = tool.place_in_declaration(error.path)
        return Problem(pointer(*at, *place), f"not a JSON Schema: {shortened(error.message)}", NoSchema(declaration))
    if tool.hides_trust:
        return Problem(pointer(*at), f"{TRUST} counts only beside `properties`, at the top of a tool: move it there")
    return None
