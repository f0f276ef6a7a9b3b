"""Reach: what a model can do by a request, proven for every answer that the composed schema admits (SPEC R12.8).

A tool that the request does not declare cannot be called, a place that no call schema admits cannot be written, and no
tool sees a scope that its schema does not admit. What is said here is an upper bound: a run may do less.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from acts_celery.protocol.calls.delegates import declares_tools
from acts_celery.protocol.calls.tools import ANONYMOUS, Executor, Tool
from acts_celery.protocol.engine.loop_limits import LoopLimits
from acts_celery.protocol.language.references import Reference, parse_output_path
from acts_celery.protocol.requests import Request, compose, render
from acts_celery.protocol.requests.functions import first_schema
from acts_celery.protocol.schemas.walk import Walk, referred
from acts_celery.protocol.state.scopes import read_scope

from .finding import Finding

ANYTHING: Final = None
"""Stands for all places, or all scopes."""


@dataclass(frozen=True, slots=True)
class ToolReach:
    """What calls of one tool can do."""

    tool: str
    code: tuple[tuple[Executor, str], ...]
    """Who may run them."""
    writes: tuple[str, ...] | None
    """The places that they can write to, None for any place."""
    sees: tuple[str, ...] | None
    """The widest scopes that they can be given, None for any."""
    takes: bool
    """Whether a value can be passed to them: they have parameters."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        code = [{"executor": executor.value, "name": name} for executor, name in self.code]
        writes = list(self.writes) if self.writes is not None else None
        sees = list(self.sees) if self.sees is not None else None
        return {"tool": self.tool, "code": code, "writes": writes, "sees": sees, "takes_parameters": self.takes}


@dataclass(frozen=True, slots=True)
class Reach:
    """What a request can come to."""

    model: str | None
    """The model that `config` names."""
    tools: tuple[ToolReach, ...]
    calls: int
    """The most calls, over all ticks."""
    requests: int
    """The most requests to models, attempts at one of them counted once."""
    tokens: int | None
    """The most tokens of all requests and answers, where `config` says so."""
    money: float | None
    """The most US dollars of the same."""
    first_bytes: int
    """The bytes of the first request: messages and schema."""
    unenforced: str | None = None
    """Why the model's provider cannot enforce the composed schema, where that is known: answers are only validated."""
    findings: tuple[Finding, ...] = ()
    """What of it the provider cannot enforce, where it enforces the rest."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "model": self.model,
            "tools": [tool.to_dict() for tool in self.tools],
            "calls": self.calls,
            "requests": self.requests,
            "tokens": self.tokens,
            "money": self.money,
            "first_request_bytes": self.first_bytes,
            "unenforced": self.unenforced,
        }

    def passed(self, place: Reference) -> tuple[str, ...]:
        """The tools that a model, which is shown all of the context, may pass a value to: as a parameter, or where a
        scope covers its place.
        """
        return tuple(tool.tool for tool in self.tools if tool.takes or _covers(tool.sees, place))


def reach_of(request: Request, code: Container[str] = ()) -> Reach:
    """What a model can do by a request; `code` are the delegates that are code, and ask no model."""
    composed = compose(request)
    calls = composed["properties"]["calls"].get("items", {}).get("anyOf", ())
    tools = tuple(
        _tool_reach(request, tool, schema, composed) for tool, schema in zip(request.tools.values(), calls, strict=True)
    )
    limits = LoopLimits.of(request.config)
    asking = _asking(request, tools, code)
    most_calls = limits.calls if tools else 0
    first = json.dumps([render(request), first_schema(request)], ensure_ascii=False, separators=(",", ":"))
    return Reach(
        model=request.config.get("model"),
        tools=tools,
        calls=most_calls,
        requests=limits.ticks + most_calls * asking,
        tokens=limits.tokens,
        money=request.config.get("money"),
        first_bytes=len(first.encode()),
    )


def _tool_reach(request: Request, tool: Tool, schema: Mapping[str, Any], composed: Mapping[str, Any]) -> ToolReach:
    shown = schema["properties"]
    scopes = _texts(shown.get("_scopes", False), composed, tool.constants.get("_scopes"))
    code = tuple(dict.fromkeys(_code(request, tool, schema)))
    is_latent = any(executor is Executor.LATENT for executor, _ in code)  # a model that is shown everything
    is_closed = schema["additionalProperties"] is False and "patternProperties" not in schema
    return ToolReach(
        tool=tool.name,
        code=code,
        writes=_places(_texts(shown.get("_outputPath", False), composed, tool.constants.get("_outputPath"))),
        sees=ANYTHING if scopes is None or is_latent else tuple(dict.fromkeys(scopes)),
        takes=any(not name.startswith("_") for name in shown) or not is_closed,
    )


def _code(request: Request, tool: Tool, schema: Mapping[str, Any]) -> Iterator[tuple[Executor, str]]:
    """Which code may run a call: what the call can choose, and what runs it where it chooses nothing."""
    chosen = {key: schema["properties"].get(key, {}).get("enum", ()) for key in ("_delegate", "_activity")}
    if not any(chosen[key] and key in schema["required"] for key in chosen):
        runner = request.runner(tool)
        yield runner.executor, runner.name
    yield from ((Executor.DELEGATE, name) for name in chosen["_delegate"])
    yield from ((Executor.ACTIVITY, name) for name in chosen["_activity"])


def _texts(said: Any, composed: Any, pinned: Any) -> list[str] | None:
    """The texts that a schema of one text, or of a list of them, names; None where it admits others as well. What is
    not shown is what the tool pins.
    """
    named = _listing(composed)(said)
    return named if named is None else [*([pinned] if isinstance(pinned, str) else pinned or ()), *named]


def _listing(composed: Any) -> Walk[list[str] | None]:
    """The texts that a part of a schema admits, where it plainly lists all of them."""

    def listed(said: Any) -> list[str] | None:
        if not isinstance(said, dict):
            return [] if said is False else None
        if "const" in said or "enum" in said:
            values = [said["const"]] if "const" in said else said["enum"]
            texts = (text for value in values for text in (value if isinstance(value, list) else [value]))
            return [text for text in texts if text is not None]
        for keyword in filter(said.__contains__, ("anyOf", "oneOf")):
            branches = list(map(walk, said[keyword]))
            if None not in branches:
                return [text for branch in branches for text in branch or ()]
        closer = [*said.get("allOf", ()), said.get("items"), referred(said.get("$ref"), composed)]
        return next((named for part in closer if (named := walk(part)) is not None), None)

    walk = Walk(listed, cyclic=None)
    return walk


def _places(texts: list[str] | None) -> tuple[str, ...] | None:
    """Each place that output paths lead to."""
    if texts is None:
        return ANYTHING
    return tuple(dict.fromkeys(str(place) for text in texts for place in parse_output_path(text).references))


def _asking(request: Request, tools: Iterable[ToolReach], code: Container[str]) -> int:
    """The most requests to models that one call can come to. Where it is answered by a run of its own, that one's calls
    count as this one's do (SPEC R13.3), and may come to more.
    """
    delegates = request.submission.delegates
    elements = request.known.limits.elements
    most, has_children = 0, False
    for tool in tools:
        times = elements if request.tools[tool.tool].lists else 1
        most = max([most, *(times * _requests(request, runner, code) for runner in tool.code)])
        has_children = has_children or any(_has_tools(delegates.get(name)) for _, name in tool.code)
    if not has_children:
        return most
    below = max(_requests(request, (Executor.DELEGATE, name), code) for name in delegates)
    return max(most, below * (elements if "_each" in json.dumps(delegates, default=str) else 1))


def _has_tools(definition: Any) -> bool:
    """Whether a delegate is answered by a run of its own (SPEC R9.3)."""
    return isinstance(definition, Mapping) and declares_tools(definition)


def _requests(request: Request, runner: tuple[Executor, str], code: Container[str]) -> int:
    """The most requests to models that one call can come to."""
    executor, name = runner
    if executor is Executor.ACTIVITY or (executor is Executor.DELEGATE and name in code):
        return 0
    definition = request.submission.delegates.get(name) if executor is Executor.DELEGATE else {}
    if name == ANONYMOUS or executor is Executor.LATENT:
        return 1
    if not isinstance(definition, Mapping):
        return LoopLimits.of(request.config).ticks  # a file: it may have tools of its own
    own = LoopLimits.of({**request.config, **(definition.get("config") or {})})
    most = min(own.ticks, LoopLimits.of(request.config).ticks)
    return most if declares_tools(definition) else 1


def _covers(scopes: tuple[str, ...] | None, place: Reference) -> bool:
    return scopes is ANYTHING or any(read_scope(scope).overlaps(place) for scope in scopes)
