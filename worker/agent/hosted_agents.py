"""Agents as they are: each request to a model and each call of a tool becomes a call of a run.

An agent is the model of a loop (SPEC R13). Asked for a tick, it is run from its beginning; what the log has of earlier
steps is given to it, and the first step that the log has not is the answer: one call. That call runs the agent once
more up to the same place and carries out this one step; its result is the step's record. So the loop's own rules hold
for each step - it is logged, checked, held for approval, asked about - and nothing waits in a process.

An agent has to take the same steps again when it is given the same results, as with any engine for durable execution.
Each tool has an activity of its own, which takes no other step: what the worker's code says of the tool - effects,
sources, once - holds whatever a submission says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_core import to_jsonable_python

from ...protocol.calls.tools import ONCE
from ...protocol.messages import TRUST
from ...protocol.templates import escaped
from .. import limits
from ..errors import ActivitiesError
from ..registry.activities import Policy, RegisteredModel, make_activity, registry
from ..registry.models import BadRequest
from .agent_frameworks import MODEL, ArgumentsChanged, Framework, Replay, Stopped, framework_of

_OWN: Final = {"_scopes": {"const": ["†input", "†state.steps"]}, "_outputPath": {"pattern": r"^†state\.steps\.s\d+$"}}
"""The meta-properties of a step."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_BLOCK: Final = re.compile(r"^## Data: †(input|state\.steps\.s\d+)\b.*\n((?:(?!## ).*\n?)+)", re.MULTILINE)
_ERROR: Final = re.compile(r"^## Error: (\{.*\})$", re.MULTILINE)


@dataclass(frozen=True)
class HostedAgent:
    """An agent that workers run as it is, each of its steps a call, by its name."""

    name: str
    """The name of its model, and the first part of the names of its activities."""
    framework: Framework
    effects: frozenset[str]
    once: frozenset[str]
    untrusted: Mapping[str, str]
    deps: Callable[[Any], Any] | None

    def request(self, prompt: Any, *, deps: Any = None, **config: Any) -> dict[str, Any]:
        """A submission that runs the agent with a prompt: `client.submit_document(desk.request("…"))`. The prompt is a
        text, or the first state of a graph. `deps` is a JSON value that the agent's dependencies are made of, and
        `config` is what any request has, such as `approve`.
        """
        said = {"prompt": prompt, **({"deps": deps} if deps is not None else {})}
        usual = {"ticks": limits.HOSTED_STEPS, "calls": limits.HOSTED_STEPS, "trust": {"show": "value"}}
        approve = [*self.framework.approve, *config.pop("approve", ())]
        return {
            "context": [{"type": "input", "data": said}, {"type": "state", "data": {"steps": {}}}],
            "tools": {
                **{tool: self._declaration(tool, code) for tool, code in self.codes.items()},
                f"{self.name}.failed": {"type": "object", "properties": {"_outputPath": _OWN["_outputPath"]}},
            },
            "schema": {**self.framework.output, "_literal": True},
            "config": {"model": self.name, **usual, **({"approve": approve} if approve else {}), **config},
        }

    @property
    def codes(self) -> dict[str, str]:
        """The activities of the tools, by the tools' names."""
        own = {tool: f"{self.name}.{tool}" for tool in self.framework.tools}
        return own | {tool: tool for tool in (f"{self.name}{MODEL}", self._other)}

    @property
    def _other(self) -> str:
        """The tool of steps that have no name of their own."""
        return f"{self.name}.step"

    def _declaration(self, tool: str, code: str) -> dict[str, Any]:
        schema = self.schema(tool)
        return {**schema, "properties": {**schema["properties"], "_activity": {"const": code}}}

    def schema(self, tool: str) -> dict[str, Any]:
        """The schema of a tool's activity."""
        anything = (
            {"step": {"type": "string"}, "arguments": {}} if tool == self._other else {"agent": {"type": "string"}}
        )
        schema = self.framework.tools.get(tool, {"type": "object", "properties": anything})
        trust = {"effects": True} if tool in self.effects else {}
        labels = {"result": [self.untrusted[tool]]} if tool in self.untrusted else {}
        return {
            **schema,
            "properties": {
                **{key: {**part, "_literal": True} for key, part in schema.get("properties", {}).items()},
                **_OWN,
            },
            **({ONCE: True} if tool in self.once else {}),
            **({TRUST: trust | labels} if trust or labels else {}),
        }

    async def plan(self, messages: Sequence[Mapping[str, Any]], schema: Any, config: Mapping[str, Any]) -> Any:
        """The next step of the agent as a call, or its output. Raises `BadRequest` where it fails."""
        said, records, failed = _read(messages)
        if failed is not None:
            place, why = failed
            call = self._failure(why.get("type", "Unknown"), why.get("message", "its end is not known"))
            return _answer({**call, "_outputPath": place})
        try:
            came = await self._through(Replay(records), said)
        except BadRequest:
            raise
        except Exception as error:
            raise BadRequest(f"the agent has failed: {type(error).__name__}: {error}") from error
        if not isinstance(came, Stopped):
            return {"calls": [], "output": _literal(to_jsonable_python(came))}
        place = f"†state.steps.s{came.number}"
        tool = f"{self.name}{MODEL}" if came.step == MODEL else came.step
        if tool not in self.codes:
            call = {"_tool": self._other, "step": came.step, "arguments": _literal(came.value)}
        elif isinstance(came.value, Mapping) and not any(key.startswith("_") for key in came.value):
            call = {"_tool": tool, **_literal(came.value)}
        else:
            call = self._failure("InvalidCall", "the arguments are a JSON object of which no name begins with _")
        return _answer({**call, "_outputPath": place})

    def _failure(self, kind: str, reason: str) -> dict[str, Any]:
        return {"_tool": f"{self.name}.failed", "_output": _literal({"failed": kind, "reason": reason})}

    async def take(self, tool: str, call: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
        """The record of the step that a call of a tool is. Raises `BadRequest` where the agent's next step is another
        one, and what the step raises.
        """
        said, steps = context["input"], (context.get("state") or {}).get("steps") or {}
        number = _number(call["_outputPath"])
        records = {_number(name): record for name, record in steps.items() if _number(name) < number}
        given: Any = {key: value for key, value in call.items() if not key.startswith("_")}
        step = MODEL if tool == f"{self.name}{MODEL}" else tool
        if tool == self._other:
            step, given = given["step"], given.get("arguments", {})
            if step in self.framework.tools:
                raise BadRequest(f"{step!r} is a tool of its own: call that")
        try:
            came = await self._through(Replay(records, (step, given)), said)
        except ArgumentsChanged as changed:
            came = await self._through(Replay(records, (step, given), {str(changed): given}), said)
        if not isinstance(came, Stopped):
            raise BadRequest("the agent has changed: it has no such step now")
        return {"step": came.step, "result": came.value}

    async def _through(self, replay: Replay, said: Mapping[str, Any]) -> Any:
        deps = None if self.deps is None else self.deps(said.get("deps"))
        return await replay.through(self.framework.run(replay, said["prompt"], deps))


def host_agent(
    agent: Any,
    *,
    name: str | None = None,
    effects: Collection[str] = (),
    once: Collection[str] = (),
    untrusted: Mapping[str, str] | None = None,
    deps: Callable[[Any], Any] | None = None,
) -> HostedAgent:
    """Register an agent of pydantic-ai or of the OpenAI Agents SDK, or a compiled graph of LangGraph, under its name,
    so that workers run it: as the model that plans its steps, and as activities that take them. `effects` and `once`
    name tools that are as `@activity` says, `untrusted` names tools with the sources of their results; `deps` makes the
    agent's dependencies from what the request gives. Raises `ActivitiesError`.
    """
    framework = framework_of(agent)
    name = name or framework.name
    if not _NAME.fullmatch(name):
        fit = re.sub(r"[^A-Za-z0-9_-]+", "_", name) or "desk"
        raise ActivitiesError(f'an agent needs a name of letters, digits, "_" and "-": host_agent(agent, name="{fit}")')
    named = {"effects": effects, "once": once, "untrusted": untrusted or {}}
    for option, tools in named.items():
        if unknown := [tool for tool in tools if tool not in framework.tools]:
            there = ", ".join(framework.tools) or "none"
            raise ActivitiesError(
                f"{option} names {unknown[0]!r}, which is no function of the agent; there are {there}"
            )
    for tool, schema in framework.tools.items():
        if bad := [key for key in schema.get("properties", {}) if key.startswith("_")]:
            raise ActivitiesError(f"{tool!r}: a parameter such as {bad[0]!r} begins with _, as meta-properties do")
    hosted = HostedAgent(name, framework, frozenset(effects), frozenset(once), dict(untrusted or {}), deps)
    for tool, code in hosted.codes.items():
        made = make_activity(_taking(hosted, tool), code, None, Policy(once=tool in hosted.once))
        registry.add_activity(replace(made, schema=hosted.schema(tool)))
    registry.add_model(RegisteredModel(hosted.name, hosted.plan))
    return hosted


def _taking(hosted: HostedAgent, tool: str) -> Callable[..., Any]:
    async def take(call: dict[str, Any], context: dict[str, Any]) -> Any:
        """Take a step of an agent."""
        return await hosted.take(tool, call, context)

    return take


def _number(place: str) -> int:
    """The number of a step, by its place."""
    return int(place.rpartition("s")[2])


def _answer(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"calls": [dict(call)], "output": None}


def _literal(value: Any) -> Any:
    """A value in which nothing is a reference."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, dict):
        return {key: _literal(part) for key, part in value.items()}
    return [_literal(part) for part in value] if isinstance(value, list) else value


def _read(messages: Sequence[Mapping[str, Any]]) -> tuple[Any, dict[int, Any], tuple[str, Mapping[str, Any]] | None]:
    """The request's input, the records of steps, and, if the call that was made last has none, its place and error.
    Only what the engine writes counts: the first block, and the message behind each answer. What people say follows
    those. Raises `BadRequest`.
    """
    said, records, calls, report = None, dict[int, Any](), None, ""
    for message in messages:
        content = str(message.get("content"))
        if message.get("role") == "assistant":
            calls, report = json.loads(content)["calls"], ""
        elif calls is None and said is None:
            said = next((value for place, value in _blocks(content) if place == "input"), None)
        elif calls and not report:
            report = content
            place = calls[0]["_outputPath"]
            for name, value in _blocks(content):
                if f"†{name}" == place:
                    records[_number(place)] = value
        elif calls is not None and not report:
            raise BadRequest(f"the agent's output does not fit: {content}")
    if not calls or _number(place := calls[0]["_outputPath"]) in records:
        return said, records, None
    (reason,) = _ERROR.findall(report)[-1:] or ["{}"]
    return said, records, (place, json.loads(reason.replace("††", "†")).get("error", {}))


def _blocks(content: str) -> Iterator[tuple[str, Any]]:
    """The values of data blocks, by their places. Raises `BadRequest` for one that is not shown."""
    for place, block in _BLOCK.findall(content):
        line = next(line for line in reversed(block.splitlines()) if line.strip())
        try:
            yield place, json.loads(line.replace("††", "†"))
        except ValueError:
            text = f"the agent needs all of †{place}: leave out config.show, config.show_bytes and config.trust.show"
            raise BadRequest(text) from None
