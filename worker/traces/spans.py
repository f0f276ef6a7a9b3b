"""A span, as plain values. Names and attributes are those of OpenTelemetry's semantic conventions for generative AI.

What the conventions have no name for is `acts.…`. Attributes that show what models and tools are given, and what they
answer, are there only where content is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from acts_celery.protocol.engine.costs import reported
from acts_celery.worker.wire.traces import TracePlace

OPERATION: Final = "gen_ai.operation.name"
WORKFLOW: Final = "invoke_workflow"
AGENT: Final = "invoke_agent"
PLAN: Final = "plan"
TOOL: Final = "execute_tool"
CHAT: Final = "chat"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
ERROR_TYPE: Final = "error.type"
RUN: Final = "acts.run.id"
STATUS: Final = "acts.status"

_LONGEST: Final = 1_000
"""Characters of what an error says."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why what a span is about has failed."""

    type: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Something that was done, from when to when. Times are those of the log's server, in ms."""

    operation: str
    about: str | None
    """What the operation is done to: the name of a tool, an agent, a model."""
    place: TracePlace
    above: str | None
    """The span that it is part of; None for the root of a trace."""
    start_ms: int
    end_ms: int
    fault: Fault | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Those that are None are left out."""

    @property
    def name(self) -> str:
        """As the conventions form it."""
        return self.operation if self.about is None else f"{self.operation} {self.about}"

    @property
    def all_attributes(self) -> dict[str, Any]:
        """The attributes, with those that every span has."""
        fault = {ERROR_TYPE: self.fault.type} if self.fault is not None else {}
        own = {key: value for key, value in self.attributes.items() if value is not None}
        return {OPERATION: self.operation, **own, **fault}


def fault_of(error: Mapping[str, Any] | None) -> Fault:
    """Of a call's error, as the log has it."""
    message = (error or {}).get("message")
    return Fault(str((error or {}).get("type") or "_OTHER"), str(message)[:_LONGEST] if message is not None else None)


def usage_attributes(usage: Any) -> dict[str, int]:
    """The tokens that a request has used, where its provider has reported them."""
    if (counts := reported(usage)) is None:
        return {}
    names = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens")
    return {name: count for name, count in zip(names, counts, strict=True) if count or name != names[2]}


def request_attributes(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a model was sent."""
    names = {
        "model": "gen_ai.request.model",
        "max_output_tokens": "gen_ai.request.max_tokens",
        "temperature": "gen_ai.request.temperature",
        "top_p": "gen_ai.request.top_p",
        "seed": "gen_ai.request.seed",
        "reasoning_effort": "gen_ai.request.reasoning.level",
    }
    found = {name: config[key] for key, name in names.items() if config.get(key) is not None}
    provider, colon, model = str(config.get("model") or "").partition(":")
    if colon:  # a model by its address, and not by a name that the operator has given it
        found |= {"gen_ai.provider.name": provider, names["model"]: model}
    if (stop := config.get("stop")) is not None:
        found["gen_ai.request.stop_sequences"] = [stop] if isinstance(stop, str) else stop
    return found


def shown_messages(messages: Iterable[Mapping[str, Any]]) -> str:
    """Chat messages as the conventions write them."""
    return as_json([{"role": each.get("role", "user"), "parts": _parts(each.get("content"))} for each in messages])


def _parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return [_part(each) for each in content]
    return [{"type": "text", "content": content if isinstance(content, str) else as_json(content)}]


def _part(part: Any) -> Any:
    is_text = isinstance(part, Mapping) and isinstance(part.get("text"), str)
    return {"type": "text", "content": part["text"]} if is_text else part


def as_json(value: Any) -> str:
    """A value as an attribute has it."""
    return json.dumps(value, ensure_ascii=False)
