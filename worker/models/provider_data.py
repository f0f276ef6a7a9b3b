"""Keeps what a provider says beside the fields that are read, and sends it back to the model that said it.

Some models refuse the next request without it: Gemini without the signature of each of its calls, Anthropic and
OpenRouter without the thoughts that came before a call. It is data of the provider's own. The log has it with the
answer, as a JSON text; nobody else is shown it, no other model is sent it (SPEC R12.6).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from typing import Any, Final

from acts_celery.protocol.requests.functions import OUTPUT

THINKING: Final = "thinking_blocks"
"""The field of a message or a call whose blocks stand before it in Anthropic's Messages."""
_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})
_READ: Final = {"role", "content", "refusal", "tool_calls"}
_OF_ANSWERS_ALONE: Final = {"function_call", "audio", "annotations"}
"""Fields of OpenAI's that an answer has and a request does not."""
_READ_OF_CALLS: Final = {"index", "id", "type", "function"}
_READ_OF_FUNCTIONS: Final = {"name", "arguments"}
_GROWING: Final = ("text", "summary", "data")
"""What comes in pieces of an entry of `reasoning_details` (OpenRouter)."""
_CALL_ID: Final = re.compile(r"t(\d{3,9})c(\d{4,9})")
"""An id that `protocol.requests.tool_messages` gives: of which tick, and which of its calls."""

Fields = dict[str, Any]


def of_message(message: Mapping[str, Any]) -> Fields:
    """The fields of a chat message, or of a piece of one, that are not read."""
    return _rest(message, _READ | _OF_ANSWERS_ALONE)


def of_call(call: Mapping[str, Any]) -> Fields:
    """The fields of a function call, or of a piece of one, that are not read."""
    function = call.get("function")
    inside = _rest(function, _READ_OF_FUNCTIONS) if isinstance(function, Mapping) else {}
    return {**_rest(call, _READ_OF_CALLS), **({"function": inside} if inside else {})}


def whole(pieces: Sequence[Mapping[str, Any]]) -> Fields:
    """Fields that came in pieces: texts and lists go on where the piece before ended."""
    found: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            found.setdefault(key, []).append(value)
    return {key: _joined(values) for key, values in found.items()}


def packed(model: str, message: Fields, calls: Iterable[tuple[bool, str | None, Fields]], most_bytes: int) -> str:
    """The text that the log gets; nothing where nothing was said, or too much. `model` tells whom it is sent back to;
    of each call it takes whether that is the output, the provider's id and its fields.
    """
    shown = json.dumps(message)
    kept: list[Fields] = []
    said: Fields = {"model": model, "message": message, "calls": kept}
    for is_output, id_, own in calls:
        own = {**own, **({"id": id_} if id_ is not None and json.dumps(id_) in shown else {})}
        if is_output:
            said.setdefault(OUTPUT, own)
        else:
            kept.append(own)
    if not (message or any(kept) or said.get(OUTPUT)):
        return ""
    try:
        text = json.dumps(said, allow_nan=False, separators=(",", ":"))
    except ValueError:  # a number that no JSON has
        return ""
    return text if len(text) <= most_bytes else ""


def restored(messages: Sequence[Mapping[str, Any]], data: Mapping[str, str], model: str) -> list[dict[str, Any]]:
    """Messages with what their model has said beside them; `data` are the texts of the log by tick."""
    read = {tick: _read(text, model) for tick, text in data.items() if tick.isdecimal()}
    said = {int(tick): own for tick, own in read.items() if own is not None}
    ids: dict[str, str] = {}
    return [_restored(message, said, ids) if said else dict(message) for message in messages]


def _restored(message: Mapping[str, Any], said: Mapping[int, Fields], ids: dict[str, str]) -> dict[str, Any]:
    """A message, with the ids of calls as their provider gave them, where it refers to them."""
    if message.get("role") == "tool":
        id_ = message.get("tool_call_id")
        return {**message, "tool_call_id": ids.get(str(id_), id_)}
    calls = message.get("tool_calls")
    places = [_CALL_ID.fullmatch(str(call.get("id"))) for call in calls] if isinstance(calls, list) else []
    own = said.get(int(places[0][1])) if places and places[0] is not None else None
    if own is None or calls is None:
        return dict(message)
    found = []
    for call, place in zip(calls, places, strict=True):
        kept = own["calls"]
        is_output = call["function"]["name"] == OUTPUT
        at = int(place[2]) if place is not None else len(kept)
        fields = own.get(OUTPUT, {}) if is_output else kept[at] if at < len(kept) else {}
        given = fields.get("id")
        if isinstance(given, str) and given not in ids.values():
            ids[call["id"]] = given
        found.append({**_merged(fields, call), "id": ids.get(call["id"], call["id"])})
    return {**_merged(own["message"], message), "tool_calls": found}


def _merged(fields: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Both; what is the engine's own stays as it is."""
    inside = {key: {**fields[key], **own[key]} for key in fields.keys() & own.keys() if _are_objects(fields, own, key)}
    return {**fields, **own, **inside}


def _are_objects(fields: Mapping[str, Any], own: Mapping[str, Any], key: str) -> bool:
    return isinstance(fields[key], dict) and isinstance(own[key], dict)


def _read(text: str, model: str) -> Fields | None:
    """What the log has, where this model has said it."""
    with suppress(ValueError, RecursionError):
        said = json.loads(text)
        if isinstance(said, dict) and said.get("model") == model:
            calls, message, output = said.get("calls"), said.get("message"), said.get(OUTPUT, {})
            parts = [message, output, *(calls if isinstance(calls, list) else [None])]
            return said if all(isinstance(part, dict) for part in parts) else None
    return None


def _rest(said: Mapping[str, Any], read: set[str]) -> Fields:
    return {key: value for key, value in said.items() if key not in read and value not in _NOTHING}


def _joined(values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, list) for value in values):
        return list(_entries(chain.from_iterable(values)))
    if all(isinstance(value, dict) for value in values):
        return whole(values)
    return values[-1]


def _entries(values: Iterable[Any]) -> Iterator[Any]:
    """The entries of a list that came in pieces; those of one entry have its index and type."""
    for key, group in groupby(values, _key):
        if key is None:
            yield from group
            continue
        pieces: list[Fields] = list(group)
        entry = {name: value for piece in pieces for name, value in piece.items() if value is not None}
        for name in _GROWING:
            if texts := [piece[name] for piece in pieces if isinstance(piece.get(name), str)]:
                entry[name] = "".join(texts)
        yield entry


def _key(entry: Any) -> tuple[int, Any, Any] | None:
    index = entry.get("index") if isinstance(entry, dict) else None
    return (index, str(entry.get("type")), str(entry.get("id"))) if isinstance(index, int) else None
