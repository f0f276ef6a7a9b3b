"""Turns: a conversation as Anthropic's Messages take it, with the marks up to which it is cached (SPEC R12.6).

Calls and their results are blocks there: the results stand first in the turn of the user that follows the calls, all
of them. What is sent again is billed at a tenth where a mark says so: one stands behind tools and system, one at the
end of what was sent for the tick before, one at the end, which the next tick begins with. Four are allowed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from .provider_data import THINKING

Block = dict[str, Any]
Turn = dict[str, Any]

_MARK: Final = {"cache_control": {"type": "ephemeral"}}


def turns(messages: Iterable[Mapping[str, Any]]) -> list[Turn]:
    """The turns of chat messages without those of the system; what one side says in a row is one turn, of blocks."""
    found: list[Turn] = []
    for message in messages:
        role = "assistant" if message.get("role") == "assistant" else "user"
        blocks = list(_blocks(message))
        if found and found[-1]["role"] == role:
            found[-1]["content"] += blocks
        elif blocks:
            found.append({"role": role, "content": blocks})
    return found


def mark(system: Sequence[Block], messages: Sequence[Turn]) -> None:
    """Put the marks on system and turns, in place."""
    answers = [at for at, turn in enumerate(messages) if turn["role"] == "assistant"]
    ends = [at for at in (answers[-1] - 1 if answers else -1, len(messages) - 1) if at >= 0]
    for turn in (messages[at] for at in dict.fromkeys(ends)):
        if isinstance(turn["content"], str):
            turn["content"] = [_text(turn["content"])]
        turn["content"][-1] |= _MARK
    if system:
        system[-1].update(_MARK)


def _blocks(message: Mapping[str, Any]) -> Iterator[Block]:
    content = message.get("content")
    yield from map(dict, message.get(THINKING, ()))
    if message.get("role") == "tool":
        yield {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": content}
    elif isinstance(content, str):
        yield from ([_text(content)] if content.strip() else [])
    elif isinstance(content, list):
        yield from map(dict, content)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield from map(dict, call.get(THINKING, ()))
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": _input(function["arguments"])}


def _input(arguments: str) -> Any:
    """The arguments of a call, which the engine has written, or who wrote the context."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": value}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
