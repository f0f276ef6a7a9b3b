"""Resolution upfront: what delegates declare of input and output is part of their tools (SPEC R9.2).

With `config.resolve: "upfront"` a tool that pins its `_delegate`, and one whose calls all name the same delegate, is
narrowed by the definition of that delegate: a call must fit the input that it declares, and its result
the definition's schema. So a model is shown, and a call held against, what the delegate takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from acts_celery.protocol.calls.delegates import input_schema
from acts_celery.protocol.calls.tools import ANONYMOUS, Tool
from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.language.paths import MISSING, parts_of

from .submission import Submission

Definitions = Callable[[str], Mapping[str, Any] | None]
"""The definition of a registered delegate, where it is not code."""

_MERGED: Final = frozenset({"type", "properties", "required", "additionalProperties"})
_REFERRING: Final = frozenset({"$ref", "$dynamicRef", "$id"})
_WORDS: Final = frozenset({"title", "description", "$schema", "$comment", "examples", "default"})


def is_upfront(submission: Submission) -> bool:
    """Whether a submission asks for it."""
    return submission.config.get("resolve") == "upfront"


def narrowed_tools(submission: Submission, definitions: Definitions) -> Mapping[str, Tool]:
    """The tools of a submission that asks for it, each as its delegate takes it."""
    tools = dict(submission.tools)
    for name, delegate in _delegates(submission):
        definition = _definition(submission, delegate, definitions)
        if definition is not None and not any(_references(definition)):
            pinned = {"type": "object", "properties": {"_delegate": {"const": delegate}}}
            declaration = tools[name].declaration if name in tools else pinned
            tools[name] = Tool(name, _narrowed(declaration, definition))
    return tools


def upfront_problems(submission: Submission, definitions: Definitions) -> Iterator[Problem]:
    """Definitions that cannot be merged into their tools."""
    for _, delegate in _delegates(submission):
        definition = _definition(submission, delegate, definitions)
        for key in _references(definition or {}):
            where = pointer("delegates", delegate) if delegate in submission.delegates else pointer("config", "resolve")
            yield Problem(where, f"its {key} has a $ref, which cannot be merged into the tool: write the schema out")


def _delegates(submission: Submission) -> Iterator[tuple[str, str]]:
    """The tools that lead to one delegate each, with its name."""
    named: dict[str, set[Any]] = {}
    for _, raw in submission.calls:
        if isinstance(raw, dict) and isinstance(raw.get("_tool"), str):
            delegate = raw.get("_delegate")
            named.setdefault(raw["_tool"], set()).add(delegate if isinstance(delegate, str) else None)
    for name, tool in submission.tools.items():
        if (pinned := tool.constants.get("_delegate")) is not None:
            named[name] = {pinned} if isinstance(pinned, str) else set()
    for name, delegates in named.items():
        if len(delegates) == 1 and not delegates & {None, ANONYMOUS}:
            yield name, next(iter(delegates))


def _definition(submission: Submission, delegate: str, definitions: Definitions) -> Mapping[str, Any] | None:
    own = submission.delegates.get(delegate)
    return own if isinstance(own, Mapping) else definitions(delegate)


def _references(definition: Mapping[str, Any]) -> Iterator[str]:
    """Which of its schemas holds a reference into itself, which would lead elsewhere in a tool."""
    for key, schema in (
        ("input schema", input_schema(definition.get("context", ()))),
        ("schema", definition.get("schema")),
    ):
        if any(isinstance(part, dict) and part.keys() & _REFERRING for part in parts_of(schema)):
            yield key


def _narrowed(declaration: Mapping[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's schema with what a definition declares of input and output; the same again where it has that already."""
    narrowed = dict(declaration)
    schema = input_schema(definition.get("context", ()))
    if isinstance(schema, Mapping):
        own = dict(narrowed.get("properties") or {})
        for name, said in (schema.get("properties") or {}).items():
            own[name] = _both(own.get(name, MISSING), said)
        narrowed["properties"] = own
        if required := [*dict.fromkeys((*narrowed.get("required", ()), *schema.get("required", ())))]:
            narrowed["required"] = required
        if schema.get("additionalProperties") is False:
            narrowed["additionalProperties"] = False
        rest = {key: value for key, value in schema.items() if key not in _MERGED | _WORDS}
        if rest and rest not in (parts := narrowed.get("allOf", [])):
            narrowed["allOf"] = [*parts, rest]
    if definition.get("schema") not in (None, {}, True):
        inside = narrowed.get("properties") or {}
        if "_output" in inside:
            narrowed["properties"] = {**inside, "_output": _both(inside["_output"], definition["schema"])}
        else:
            narrowed["_output"] = _both(narrowed.get("_output", MISSING), definition["schema"])
    return narrowed


def _both(own: Any, said: Any) -> Any:
    """A schema that admits what both admit."""
    if own in (MISSING, None, True, {}) or own == said:
        return said
    if said in (True, {}) or (isinstance(own, Mapping) and said in own.get("allOf", ())):
        return own
    return {"allOf": [own, said]}
