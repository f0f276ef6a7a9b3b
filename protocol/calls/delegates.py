"""Delegates: the context that an isolated sub-request is given, and nothing else (SPEC R9.1, R9.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from protocol.language.messages import PROVENANCE, Message, render_data
from protocol.language.paths import MISSING


def delegate_context(
    own: Sequence[Message], scoped: Iterable[Message], parameters: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Its own messages, then the scoped messages of the parent, then the call's parameters as input (SPEC R9.2).

    `scoped` comes from `Execution.scoped_messages`; provenance and routing are in none of it (SPEC R1.4).
    """
    context = [{key: value for key, value in message.items() if not _is_hidden(key)} for message in own]
    context.extend(dict(message) for message in scoped)
    if parameters:
        context.append(render_data("input", dict(parameters), schema=input_schema(own)))
    return context


def input_schema(own: Sequence[Message]) -> Any:
    """The schema that a delegate declares for its input: that of its last input message that has one."""
    for message in reversed(own):
        kind = message.get("kind") if message.get("type") == "data" else message.get("type")
        if kind == "input" and "schema" in message:
            return message["schema"]
    return MISSING


def _is_hidden(key: str) -> bool:
    return key in PROVENANCE or key == "_instance"
