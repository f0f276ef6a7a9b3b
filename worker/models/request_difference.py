"""How a request differs from those that were recorded: said for people, of the one that is most like it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Final

from .request import ModelRequest

_AROUND: Final = 60
"""Characters that are shown before and behind the place where two texts part."""
_COMPARED: Final = 4_000
"""Characters of a message by which the request that is most alike is found."""


def difference(request: ModelRequest, recorded: Sequence[Mapping[str, Any]]) -> str:
    """Where the request parts from the recorded one that is most like it; empty where none was recorded."""
    if not recorded:
        return ""
    asked = request.shown
    number, nearest = max(enumerate(recorded, start=1), key=lambda each: _likeness(asked, each[1]))
    return f"; of {len(recorded)} recorded requests the nearest is number {number}: {_first(asked, nearest)}"


def _likeness(asked: Mapping[str, Any], recorded: Mapping[str, Any]) -> tuple[float, bool]:
    ours, theirs = _messages(asked), _messages(recorded)
    same = _same(ours, theirs)
    one, other = (each[same][:_COMPARED] if same < len(each) else "" for each in (ours, theirs))
    likeness = SequenceMatcher(None, one, other).quick_ratio()  # 1 where both are empty
    return same + likeness, asked["settings"] == recorded.get("settings")


def _messages(request: Mapping[str, Any]) -> list[str]:
    messages = request.get("messages")
    return [_text(message) for message in messages] if isinstance(messages, list) else []


def _first(asked: Mapping[str, Any], recorded: Mapping[str, Any]) -> str:
    for number, (ours, theirs) in enumerate(zip_longest(_messages(asked), _messages(recorded))):
        if ours is None or theirs is None:
            return (
                f"message {number} is {'not there any more' if ours is None else 'new'}: {(ours or theirs)[:_AROUND]}"
            )
        if ours != theirs:
            return f"in message {number} {_parted(ours, theirs)}"
    for name in ("settings", "schema"):
        if asked[name] != recorded.get(name):
            return f"in its {name} {_parted(_text(asked[name]), _text(recorded.get(name)))}"
    return "it was recorded as another version reads it"


def _parted(ours: str, theirs: str) -> str:
    at = _same(ours, theirs)
    start = max(at - _AROUND, 0)
    now, then = (f"{'…' if start else ''}{each[start : at + _AROUND]}" for each in (ours, theirs))
    return f"stood {then!r} where now is {now!r}"


def _same(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """How many elements, or characters, are the same before the first that differs."""
    pairs = enumerate(zip_longest(ours, theirs))
    return next((at for at, (one, other) in pairs if one != other), len(ours))


def _text(value: Any) -> str:
    """A message as `role: content`, and any other value as JSON."""
    if isinstance(value, Mapping) and value.keys() == {"role", "content"} and isinstance(value["content"], str):
        return f"{value['role']}: {value['content']}"
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
